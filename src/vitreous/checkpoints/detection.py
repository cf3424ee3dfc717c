"""Which format a checkpoint is of, in which of its state dicts and below which prefix; and what it holds."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import NamedTuple

from vitreous.checkpoints.files import Source, likelihood
from vitreous.checkpoints.format import OF_THE_FILE, Converted, Format
from vitreous.checkpoints.formats import formats, formats_of_addons, formats_of_images
from vitreous.checkpoints.heads import with_head
from vitreous.checkpoints.tensors import Entry
from vitreous.checkpoints.weights import listing
from vitreous.errors import InputError, nearest
from vitreous.models.settings import check_names

log = logging.getLogger(__name__)


class Found(NamedTuple):
    """A format that recognizes a state dict.

    Attributes:
        key: of the state dict in its file, and the prefix of its names there.
        source: its tensors without the prefix; the others are left out.
    """

    format: Format
    key: str
    prefix: str
    source: Source

    @property
    def likelihood(self) -> tuple[int, int]:
        return likelihood(self.key), likelihood(self.prefix) if self.prefix else 0


def convert(source: Source, format: str | None = None, key: str | None = None) -> tuple[Format, Converted]:
    """What an opened checkpoint holds: configuration, weights, preprocessing and labels, by the format that
    recognizes it.

    Args:
        format: of the checkpoint; None detects it.
        key: the state dict to take, of several in the file, or the prefix of its names.

    Raises:
        InputError: none recognizes it, several of its parts are models, or the format cannot read it.
    """
    chosen, source = detect(source, format, key)
    fields = {name: value for name, value in source.overrides.items() if name not in OF_THE_FILE}
    if fields and chosen.overridable:
        check_names(fields, chosen.overridable)
    return chosen, with_head(chosen.read(source))


def detect(source: Source, format: str | None, key: str | None) -> tuple[Format, Source]:
    """The format of a checkpoint, and its weights without the names that training code puts before them."""
    found: list[Found] = []
    for part in parts_of(source, key):
        found += recognized(*part, format)
    for each in formats_of_images():
        if each.check:
            each.check(source, format is None)
    names = "\n".join(all_names(source))
    for pattern, what in UNKNOWN_PARTS.items():  # a Vision Transformer's but for a part
        if re.search(rf"(?m){pattern}", names):
            raise InputError(f"{source.where}: this is {what}")
    if found:
        chosen = most_probable(source, found)
        if chosen.key or chosen.prefix:
            log.info("%s: the weights under %s", source.where, ".".join(filter(None, chosen[1:3])))
        return chosen.format, with_layers_of_other_parts(source, chosen, {each.key for each in found})
    if format:  # whose reader says what is missing
        return formats()[format], source
    raise InputError(f"{source.where}: {unrecognized(source)}")


# Parts of a training file that are not of the model.
TRAINING = re.compile("opt|sched|scaler|loss|state|criterion|callback|param_groups", re.IGNORECASE)


def with_layers_of_other_parts(source: Source, chosen: Found, models: Collection[str]) -> Source:
    """The weights of a model, with the single layers that its file holds beside it, which may be its head,
    among what is left out. models: the parts that are models themselves."""
    own = chosen.source.tensors
    widths = {shape[0] for shape in map(own.shape, own) if len(shape) == 1}
    beside: dict[str, Entry] = {}
    for key, tensors in source.parts.items():
        shapes = [shape for shape in map(tensors.shape, tensors) if len(shape) > 1]
        fits = len(shapes) == 1 and not widths.isdisjoint((shapes[0][1], shapes[0][1] / 2))
        if fits and key not in models and not TRAINING.search(key):
            beside |= {f"{key}.{name}": entry for name, entry in tensors.entries.items()}
    return replace(chosen.source, left_out={**chosen.source.left_out, **beside})


def all_names(source: Source) -> list[str]:
    """The names of all weights in a file, part by part."""
    return list(chain.from_iterable((source.parts or {"": source.tensors}).values()))


def parts_of(source: Source, key: str | None) -> Iterator[tuple[str, Source]]:
    """The state dicts that may be meant, with their keys. Raises InputError: there is none at `key`."""
    parts = source.parts or {"": source.tensors}
    if key is None or key in parts:
        for name in parts if key is None else [key]:
            yield name, replace(source, tensors=parts[name], inside=f"{name}." if name else "", parts={})
        return
    prefix = f"{key.rstrip('.')}."
    below: list[tuple[str, Source]] = []
    for name, tensors in parts.items():
        if any(each.startswith(prefix) for each in tensors):
            below.append((name, replace(source, tensors=tensors, parts={}).below(prefix)))
    if not below:
        tops = {each.partition(".")[0] for each in all_names(source)}
        known = [*filter(None, parts), *sorted(tops)]
        raise InputError(f"{source.where} has no weights under key={key!r}: {nearest(key, known)}")
    yield from below


def recognized(key: str, source: Source, format: str | None) -> Iterator[Found]:
    """The format that recognizes a state dict as it is; otherwise every prefix below which one does.

    Add-ons are asked, and imported, where no format of images recognizes it as it is, and before prefixes:
    the weights of a model that has a ViT inside are also those of a ViT.
    """
    if any(WRAPPERS.search(name) for name in source.tensors):
        source = source.renamed(lambda name: WRAPPERS.sub("", name))
    source = without_decoder(source)
    names = "\n".join(source.tensors)
    candidates = [formats()[format]] if format else formats_of_images()
    chosen = next((each for each in candidates if each.recognizes(source, names)), None)
    if not chosen and not format:
        candidates = [*formats_of_addons(), *candidates]
        chosen = next((each for each in candidates if each.recognizes(source, names)), None)
    if chosen:
        yield Found(chosen, key, "", source)
        return
    places: dict[str, Format] = {}
    for each in candidates:
        for prefix in each.prefixes(names):
            places.setdefault(prefix, each)
    # not the inner names of a model that is recognized further out
    for prefix, each in places.items():
        if not any(prefix.startswith(outer) for outer in places if outer != prefix):
            yield Found(each, key, prefix, source.below(prefix, *each.beside))


# What PyTorch puts into names of modules that are sharded, recomputed or compiled.
WRAPPERS = re.compile(r"(?<![\w])_(fsdp_wrapped_module|checkpoint_wrapped_module|orig_mod)\.")


def without_decoder(source: Source) -> Source:
    """A masked autoencoder without its decoder, whose mask token is not DINOv2's."""
    last = "decoder_embed.weight"
    own: list[str] = []
    for name in source.tensors:
        if name.endswith(last):
            prefix = name.removesuffix(last)
            own += [f"{prefix}decoder_", f"{prefix}mask_token"]
    return source.without([name for name in source.tensors if name.startswith(tuple(own))])


# What self-distillation (DINO, iBOT, MSN) has beside a student and a teacher that is its average; knowledge
# distillation has none of these, and there the student is what was trained.
SELF_DISTILLATION = re.compile(
    r"dino|ibot|last_layer|prototype|predictor|projector|mask_token|(^|\.)(center|head\.mlp)(\.|$)"
)


def most_probable(source: Source, found: Sequence[Found]) -> Found:
    """The one to take. Raises InputError: several are as likely, or nothing tells whether a teacher is the
    average of its student."""
    best = min(each.likelihood for each in found)
    chosen, *others = [each for each in found if each.likelihood == best]
    named = [".".join(filter(None, (each.key, each.prefix))) for each in found]
    student = next((name for name in named if "student" in name), None)
    teacher = next((name for name in named if "teacher" in name), None)
    if student and teacher and named[found.index(chosen)] in (student, teacher):
        everything = [*source.parts, *all_names(source)]
        if not any(SELF_DISTILLATION.search(name) for name in everything):
            raise InputError(
                f"{source.where} holds a student and a teacher, and does not tell which is meant: pass "
                f"key={student.rstrip('.')!r} for what was trained (knowledge distillation), or "
                f"key={teacher.rstrip('.')!r} for its average (self-distillation)"
            )
    if others:
        raise InputError(f"{source.where} holds several models: pass key= with one of {listing(named)}")
    if len(found) > 1:
        taken = named[found.index(chosen)]
        rest = listing([name for name in named if name != taken])
        taken = taken if chosen.prefix else repr(taken)
        log.warning("the weights under %s are taken, not those under %s", taken, rest)
    return chosen


# What files are that a format may recognize, and that have a part which is not known here.
UNKNOWN_PARTS = {
    r"\.(SCB|absmax|quant_map|qweight|qzeros|weight_scale_inv|zero_point)$|_packed_params": "a quantized "
    "model: give its weights before quantization",
    r"\.base_layer\.|\.lora_[AB]\.\w+\.weight$": "a model beside a LoRA adapter that is not merged into "
    "it, and its state dict does not tell the scale: merge it (peft: merge_and_unload), or save the adapter "
    "with save_pretrained",
    r"^pixel_embed\.": "a TNT, whose pixels are tokens, too, which is not known here",
    r"^blocks\.\d+\.proj\.weight$": "a Hiera, whose layers pool their tokens, which is not known here",
    r"blocks_token_only\.|^patch_transformer\.layers\.": "a CaiT, whose class attention is not known here",
    r"\.reattn_(norm|weights)": "a DeepViT, whose heads are mixed after the softmax, which is not known here",
    r"(?<!\w)tokens_to_token\.": "a T2T-ViT, whose tokens are made by attention: it is not known here",
    r"(^|\.)channel_embed$": "a model of groups of channels, as SatMAE: its channel_embed is not known here",
    r"^((model|module)\.)?token_type_embeddings\.weight$": "a ViLT: one encoder of text and images",
    r"(^|\.)interactions\.\d+\.(injector|extractor)\.": "a ViT-Adapter, which is not known here",
    r"\.attn\.rel_pos_[hw]$": "an encoder with windowed attention (Segment Anything, ViTDet), which is not "
    "known here",
}
# What other files are, by names of weights: a sentence about each.
OTHERS = {
    r"layers\.\d\.(blocks\.\d+\.attn\.(relative_position|logit_scale)|downsample\.)|"
    r"features\.\d\.\d+\.attn\.(relative_position|logit_scale)": "a Swin Transformer",
    r"\.local_mp\.|^cls_attn_blocks\.": "an XCiT (cross-covariance attention)",
    r"block1\.\d+\.attn\.(sr|kv)\.|stages\.\d\.blocks\.\d+\.attn\.(sr|kv)\.": "a PVT (a pyramid of maps)",
    r"attn_grid\.|attn_block\.": "a MaxViT",
    r"MixerBlock_\d|mlp_tokens\.": "an MLP-Mixer",
    r"^stem\.conv1\.linear\.|\.attention_biases$": "a LeViT",
    r"^network\.\d\.\d+\.attn\.": "a VOLO",
    r"^cls_token_0$": "a CrossViT",
    r"^cls_token1$": "a CoaT",
    r"^stages\.\d\.\d\.transformer\.\d": "a MobileViT",
    r"^conv_stem\.weight$": "an EfficientNet or a MobileNet",
    r"^patch_embeds\.\d": "a Twins",
    r"^levels\.\d\.transformer_encoder\.": "a NesT",
    r"^transformers\.\d\.blocks\.": "a PiT",
    r"layer[1-4]\.\d+\.conv\d\.weight|resnet\.encoder\.": "a ResNet",
    r"stages\.\d\.(blocks\.|layers\.)?\d+\.(gamma|dwconv|conv_dw)|convnext": "a ConvNeXt",
    r"lora_[AB]\.|lora_(down|up)\.": "a LoRA adapter, which is not a model: merge it into its model "
    "(peft: merge_and_unload), or give the folder with its adapter_config.json",
    r"model\.diffusion_model\.|down_blocks\.\d": "a diffusion model",
    r"features\.\d+\.\d?\.?weight": "a convolutional network of torchvision",
    r"^params/.*/kernel$": "a model of Flax under other names than those of vit_jax and big_vision: write it "
    "with PyTorch's names (transformers 4: from_pretrained(..., from_flax=True))",
    r"/vars/\d+$": "a model of Keras other than the ViT of keras-hub",
    r":0$": "the weights of TensorFlow",
    r"(transformer\.h|model\.layers)\.\d+\.|encoder\.layer\.\d+\.attention\.self\.query": "a language model",
}


def unrecognized(source: Source) -> str:
    """What a checkpoint is that no format recognizes, as the rest of a sentence."""
    tensors = all_names(source)
    names = "\n".join(tensors)
    kind = source.config.get("model_type", source.config.get("architecture"))
    named = f" (config.json calls it {kind})" if kind else ""
    for pattern, what in OTHERS.items():
        if re.search(rf"(?m){pattern}", names):
            return f"this is {what}{named}; vitreous reads Vision Transformers: {', '.join(formats())}"
    keys = [key for key in source.parts if key]
    inside = f", under {listing(keys)}" if keys else ""
    return (
        f"no known format has weights like {', '.join(tensors[:5])}{inside}{named}; the formats are "
        f"{', '.join(formats())}"
    )
