"""The head beside an encoder, under whatever name; and what beside it is known not to be one."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from torch import Tensor

from vitreous.checkpoints.format import Spec
from vitreous.checkpoints.formats.huggingface_configs import towers
from vitreous.checkpoints.source import Source
from vitreous.checkpoints.tensors import Entry
from vitreous.checkpoints.weights import WeightRow, no_head_bias, same
from vitreous.models.config import ViTConfig

log = logging.getLogger(__name__)

# Parts of larger models and of training that are not a head, anywhere in a name: other towers and what
# couples them, the decoders and heads of pre-training, losses, averages and counters.
NO_HEADS = re.compile(
    r"(^|\.)(student|teacher|ema\w*|online\w*|target_encoder|text\w*|textual|language_model|lm_head"
    r"|decode[dr]?_\w+|decoder|aux\w*_head\w*|mask_token|masked_embed|mask_embed|predictor\w*|projector\w*|projection_head|proj_head|prototypes?\w*"
    r"|dino_head|ibot_head|dino_loss|ibot_patch_loss|momentum\w*|\w*queue\w*|itm_head|vision_proj|criterion|loss\w*|center"
    r"|multi_modal_projector|mlp1|connector|neck|local_cls_norm"
    r"|enc_to_dec|patch_to_emb|to_pixels|to_bits|last_teacher_centers|teacher_centers"  # of vit-pytorch
    r"|head\.(mlp\.\d|last_layer)|layernorm|pooler|qformer|query_tokens|language_projection"
    r"|fc\.(fc|bn)\d|class_predictor|box_predictor)(\.|_|$)"
)
# Of these, what may be a head as well, where nothing else of pre-training or of a larger model is beside it:
# few layers, without attention.
PERHAPS_HEADS = re.compile(
    r"^(decoder|predictor|projector)\.((fc|linear|dense|mlp|net|head|norm)?\d*\.)*"
    r"(weight|bias|running_\w+|num_batches_tracked)$"
)
# Buffers that are computed again, wherever they are.
COMPUTED = re.compile(r"(^|\.)(relative_position_index|position_ids)$")
# The classes of transformers whose heads give something else than one vector of an image, and of those around
# a tower: no weight outside of it is a head.
OTHER_HEADS = re.compile(
    r"For(?!ImageClassification|MaskedLM)[A-Z]\w+$|Backbone$|^(?!VisionTextDualEncoder)[A-Z]\w+Model$"
)
# The names of a layer of another network that is beside the encoder.
LAYERS = re.compile(r"\.((layers?|blocks?|resblocks|h|stages)\.)\d+\.")
# Prefixes of encoders in self-supervised pre-training, whose heads compare views.
HEADS_OF_VIEWS = re.compile(r"(^|\.)(teacher|student|base_encoder|target_encoder|momentum\w*|online\w*)\.")
NORMED = ("running_mean", "running_var", "num_batches_tracked", "weight", "bias")


def with_linear_head(converted: Spec) -> Spec:
    """Return the specification of an encoder with the one linear layer beside it that fits as its head: under
    any name, after a dropout, or after a norm. What is known not to be a head is left out.

    Other weights, which may be a head of another kind, stay among the tensors and are refused.
    """
    config, source = converted.config, converted.source
    if not isinstance(config, ViTConfig):
        return converted
    biased = [row for row in converted.rows if row.ours == ("head.bias",) and row.theirs]
    if config.num_classes is not None and biased and biased[0].theirs[0] not in source.tensors:
        rows = [row for row in converted.rows if row is not biased[0]]
        converted = converted._replace(rows=[*rows, no_head_bias(config.num_classes)])
    patterns: list[str] = []
    for row in converted.rows:
        for name in row.theirs:
            patterns.append(re.escape(name).replace(r"\{\}", r"\d+"))  # for any number of a layer
    known = re.compile("|".join(patterns) or "$^")
    unknown: list[str] = []
    for name in source.tensors:
        if not known.fullmatch(name) and name not in converted.ignored:
            unknown.append(name)
    if not unknown and not source.left_out:
        return converted
    source = source.without(unknown)
    rest = possible_heads(source, unknown, config.channels)
    no_head_wished = source.specified.get("num_classes", "") in (None, "none", "None")
    if not rest or no_head_wished:
        return converted._replace(source=source)
    if config.num_classes is None and (found := headed(converted._replace(source=source), rest)):
        return found
    left_out = {name: entry for name, entry in source.left_out.items() if name not in rest}
    # These tensors are refused later, with what is missing.
    tensors = source.tensors | rest
    return converted._replace(source=replace(source, tensors=tensors, left_out=left_out))


def possible_heads(source: Source, unknown: Sequence[str], channels: int) -> dict[str, Entry]:
    """Return the weights that are left over and may be a head: those that are known to be something else are
    not.

    Args:
        unknown: of the encoder, and not read.
        channels: of images.
    """
    architectures = source.facts.whole.get("architectures")
    named = str(architectures[0]) if isinstance(architectures, list) and architectures else ""
    of_other_task = bool(OTHER_HEADS.search(named)) and next(towers(source.facts.whole), None) is not None
    of_other_task |= bool(re.search("For(Depth|Semantic|Object|Pose)", named))
    of_views = bool(HEADS_OF_VIEWS.search(source.inside))
    others = [name for name in source.left_out if name not in unknown]  # the weights outside of the encoder
    networks: set[str] = set()  # the beginnings of the names of networks with numbered layers
    for name in others:
        if match := LAYERS.search(f".{name}"):
            networks.add(name[: match.start()].partition(".")[0] + ".")
    # parts of pre-training that are all that is there: a decoder or a predictor, or one projector, which of
    # several layers compares views
    perhaps = set(others) if all(PERHAPS_HEADS.search(name) for name in others) else set()
    if any(re.match(r"projector\.\w+\.", name) for name in perhaps):
        perhaps = set()
    inside = source.inside.split(".")
    maps: set[str] = set()  # the parts that are decoders of maps
    for name in others:
        shape = source.left_out[name].shape
        if len(shape) > 3 and shape[0] != channels:
            maps.add(part_of(name, inside))

    rest: dict[str, Entry] = {}
    for name, entry in source.left_out.items():
        outside = name not in unknown
        if not entry.shape or COMPUTED.search(name):  # a counter or a temperature
            continue
        if outside and len(entry.shape) == 1 and name.rpartition(".")[2] not in NORMED:  # a metric
            continue
        if outside and part_of(name, inside) in maps:
            continue
        if of_other_task and (outside or name.startswith(("head.", "neck.", "visual_projection."))):
            continue
        if of_views and name.startswith("head."):
            continue
        of_encoder = not outside and LAYERS.search(f".{name}")  # a part of the encoder itself
        no_head = name not in perhaps and NO_HEADS.search(name)
        if not of_encoder and (no_head or name.startswith(tuple(networks)) or "/" in name):
            continue
        # a matrix of whole numbers is a counter: a confusion matrix, a queue of labels
        if outside and not entry.read().is_floating_point():
            continue
        rest[name] = entry
    return rest


def part_of(name: str, inside: Sequence[str]) -> str:
    """Return the part of the whole model that a weight outside of the encoder belongs to.

    Args:
        inside: the names that lead to the encoder.
    """
    first, _, rest = name.partition(".")
    return f"{first}.{rest.partition('.')[0]}" if first in inside else first


def headed(converted: Spec, rest: Mapping[str, Entry]) -> Spec | None:
    """Return it with a head made of the weights `rest`; None where they are not one linear layer,
    perhaps after a norm, whose input is what an encoder gives."""
    config, source = converted.config, converted.source
    assert isinstance(config, ViTConfig)
    matrices = [name for name, entry in rest.items() if len(entry.shape) == 2]
    inputs = {config.width: {}, 2 * config.width: {"pooling": {"kind": "class+mean"}}}
    if len(matrices) != 1 or not matrices[0].endswith("weight"):
        return None
    weight = matrices[0]
    classes, width = rest[weight].shape
    projection = weight.startswith("visual_projection.")  # on what the pooler gives
    changes: dict[str, object] = {"num_classes": classes, **inputs.get(width, {})}
    changes |= {} if projection else {"representation_size": None}
    if width not in inputs or (width != config.width and not config.class_token):
        return None
    bias = weight.removesuffix("weight") + "bias"
    biases = [bias] if bias in rest else []
    norm = [name for name in rest if name not in (weight, bias)]
    owner = {name.rpartition(".")[0] for name in norm}
    kinds = {name.rpartition(".")[2]: name for name in norm}
    sizes = {rest[name].shape for kind, name in kinds.items() if kind != "num_batches_tracked"}
    if len(owner) > 1 or kinds.keys() - set(NORMED) or sizes - {(width,)}:
        return None
    places = [re.search(r"\d+$", each) for each in (*owner, weight.removesuffix(".weight"))]
    if len(places) == 2 and all(places) and int(places[0][0]) > int(places[1][0]):  # type: ignore[index]
        # There is a norm after the layer, as in GIT's projection.
        return None
    rows = list(converted.rows)
    before: list[str] = []
    # BatchNorm1d is an affine map, which the layer absorbs.
    if "running_mean" in kinds:
        before = [kinds[kind] for kind in NORMED if kind in kinds and kind != "num_batches_tracked"]
        eps = 1e-5 if "weight" in kinds else 1e-6  # of PyTorch; of MAE's probe, which has no weights
        source.assumed.append(f"eps={eps} of the BatchNorm {owner.pop()}")
    elif norm:
        if config.final_norm == "pooled" or width != config.width:
            return None
        changes["final_norm"] = "pooled" if config.final_norm == "none" else "both"
        rows += [same(f"pool.norm.{kind}", name) for kind, name in kinds.items()]
        source.assumed.append(f"eps={config.norm_eps} of the LayerNorm {owner.pop()}")
    elif config.representation_size and not projection:
        source.assumed.append(f"{weight} reads the class token, not the pooler")
    if config.representation_size and not projection:
        rows = [row for row in rows if not row.ours[0].startswith("representation.")]
        unused = [name for name in source.tensors if name.startswith("pooler.")]
        source = source.without(unused)

    def read(matrix: Tensor, *parts: Tensor) -> tuple[Tensor, ...]:
        given = dict(zip([*biases, *before], parts, strict=True))
        added = given.get(bias, matrix.new_zeros(classes))
        if before:
            scale = (given[kinds["running_var"]] + eps).rsqrt()
            shift = -given[kinds["running_mean"]] * scale
            if "weight" in kinds:
                gain = given[kinds["weight"]]
                scale, shift = scale * gain, shift * gain + given[kinds["bias"]]
            matrix, added = matrix * scale, added + matrix @ shift
        return matrix, added

    names = (weight, *biases, *before)
    rows = [row for row in rows if row.ours[0] not in ("head.weight", "head.bias")]
    rows.append(WeightRow(("head.weight", "head.bias"), names, read, read))
    used = {*names, *(norm if not before else ())}
    tensors = source.tensors | {name: rest[name] for name in used}
    left = {name: entry for name, entry in source.left_out.items() if name not in used}
    log.info("%s: the head is %s, %d classes", source.where, weight.removesuffix(".weight"), classes)
    return converted._replace(
        config=ViTConfig.checked(config.model_dump(), changes),
        rows=rows,
        source=replace(source, tensors=tensors, left_out=left),
        task=converted.task or "classification",
    )
