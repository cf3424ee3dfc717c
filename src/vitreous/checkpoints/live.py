"""A live module of another library as a checkpoint: its state dict, and what only its attributes tell."""

from __future__ import annotations

import logging
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from inspect import signature
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from vitreous.checkpoints.files import read_checkpoint
from vitreous.checkpoints.format import ACTIVATION_NAMES, checkpoint_formats
from vitreous.checkpoints.formats import timm_naflex
from vitreous.checkpoints.formats.timm import CROP_MODES
from vitreous.checkpoints.pickles import StoredModule
from vitreous.checkpoints.source import CONFIG, OPEN_CLIP_CONFIG, Documents, File
from vitreous.checkpoints.torch_files import parts_in_memory
from vitreous.errors import InputError
from vitreous.layers.embedding import to_patches
from vitreous.layers.pooling import DistilledHead
from vitreous.models.model import Model, modes_restored
from vitreous.models.preprocessing import Preprocessing
from vitreous.models.vit import ViT

log = logging.getLogger(__name__)
TOLERANCE = 2e-5  # of the largest output
# Outputs of transformers that are not of the model's layers.
OF_TRAINING = ("loss", "attentions", "mask", "ids_restore")
HEADS = ("num_heads", "nhead", "heads", "num_attention_heads")


def open_module(module: nn.Module) -> File:
    """Open a module: its weights, and what its attributes tell. Raises InputError: it is a model of this
    package, or has no weights."""
    name = f"the {type(module).__name__}"
    if type(module).__module__.startswith("vitreous."):
        raise InputError(f"this {type(module).__name__} is already a model of vitreous: use it directly")
    save = getattr(module, "save_pretrained", None)
    if save is not None and hasattr(module, "config"):
        # The files of such a module have other names than its memory, so it is saved and read.
        with tempfile.TemporaryDirectory() as folder:
            save(folder)
            saved = read_checkpoint(Path(folder))
            tensors = {name: entry.read().clone() for name, entry in saved.tensors.items()}
        return tensors_in_memory(name, tensors, saved.documents)
    state = module.state_dict()
    if not state:
        raise InputError(f"{name} has no weights: it is not a Vision Transformer")
    for format in checkpoint_formats().values():
        if format.module_facts and (known := format.module_facts(module)) is not None:
            return tensors_in_memory(name, state, {}, {**known, "norm_eps": norm_eps(module)})
    if isinstance(getattr(module, "transformer", None), nn.Module) and hasattr(module, "conv1"):
        state = {f"visual.{key}": tensor for key, tensor in state.items()}  # the tower alone
    return tensors_in_memory(name, state, *facts_of_module(module))


def tensors_in_memory(
    where: str, state: Mapping[str, Tensor], documents: Documents, stated: Mapping[str, object] | None = None
) -> File:
    """Return tensors in memory, which are copied when they are read, with what is known of them."""
    return File(where, {"": parts_in_memory(state).get("", {})}, documents, stated or {})


def facts_of_module(module: Any) -> tuple[Documents, dict[str, object]]:
    """Return what the attributes of a module tell, live or stored whole: a description as its codebase would
    write it, and the fields of our configuration that no weight shows."""
    cfg = getattr(module, "pretrained_cfg", None)
    blocks = getattr(module, "blocks", None)
    first = next(iter(blocks), None) if blocks is not None else None
    # This leaves out a Swin, a ResNet, and what wraps another module.
    if isinstance(cfg, Mapping) and first is not None:
        return {CONFIG: timm_config(module, cfg)}, {"norm_eps": norm_eps(module)}
    tower = getattr(module, "visual", module)
    if hasattr(tower, "conv1") and hasattr(tower, "transformer") and hasattr(tower, "class_embedding"):
        return {OPEN_CLIP_CONFIG: open_clip_config(tower)}, {"norm_eps": norm_eps(tower)}
    size = getattr(module, "image_size", None)
    facts = {
        "heads": next(attributes(module, HEADS), None),
        "norm_eps": norm_eps(module),
        "image_size": size if isinstance(size, int) else None,
    }
    return {}, {name: value for name, value in facts.items() if value is not None}


def open_clip_config(tower: Any) -> dict[str, object]:
    """Return the open_clip_config.json that describes the tower of a module of open_clip, or of OpenAI's
    code."""
    parts = [class_name(part).lower() for part in tower.transformer.modules()]
    acts = [name for name in parts if name in ACTIVATION_NAMES]
    width = tower.class_embedding.shape[0]
    heads = next(attributes(tower.transformer, HEADS), 1)
    size = getattr(tower, "image_size", getattr(tower, "input_resolution", None))
    vision: dict[str, object] = {
        "image_size": list(size) if isinstance(size, tuple) else size,
        "head_width": width // heads if isinstance(heads, int) else 64,
        "pool_type": getattr(tower, "pool_type", "tok"),
        "final_ln_after_pool": getattr(tower, "final_ln_after_pool", False),
    }
    look = getattr(tower, "preprocess_cfg", None) or getattr(tower, "image_preprocess_cfg", None)
    return {
        "model_cfg": {"quick_gelu": "quickgelu" in acts, "vision_cfg": vision},
        **({"preprocess_cfg": dict(look)} if isinstance(look, Mapping) else {}),
    }


def class_name(module: object) -> str:
    """Return the name of the class of a module, live or stored whole."""
    return module.class_name if isinstance(module, StoredModule) else type(module).__name__


def timm_config(module: Any, cfg: Mapping[str, object]) -> dict[str, object]:
    """Return the config.json that timm would write, with the arguments that the module was made with."""
    parts = [class_name(part).lower() for part in module.blocks.modules()]
    args: dict[str, object] = {
        "num_heads": next(attributes(module, HEADS), None),
        "img_size": next(attributes(module, ("img_size",)), None),
        "act_layer": next((name for name in parts if name in ACTIVATION_NAMES), None),
        "no_embed_class": getattr(module, "no_embed_class", None),
        "pool_include_prefix": getattr(module, "pool_include_prefix", None),
    } | eva_arguments(module)
    args["global_pool"] = getattr(module, "global_pool", None)
    if embeds := getattr(module, "embeds", None):
        args = {name: value for name, value in args.items() if name in timm_naflex.ARGUMENTS}
        args |= timm_naflex.arguments_of_module(embeds)
    return {
        "architecture": cfg.get("architecture", ""),
        "model_args": {name: value for name, value in args.items() if value is not None},
        "pretrained_cfg": {name: value for name, value in cfg.items() if value is not None},
    }


# By the name of a class of timm: the argument for it.
ROPES = {"RotaryEmbeddingCat": "cat", "RotaryEmbeddingDinoV3": "dinov3", "RotaryEmbeddingMixed": "mixed"}


def eva_arguments(module: Any) -> dict[str, object]:
    """Return the arguments of timm's Eva that no weight shows; empty for its VisionTransformer."""
    block = class_name(next(iter(module.blocks)))
    found: dict[str, object] = (
        {"use_post_norm": True} if block in ("ResPostBlock", "EvaBlockPostNorm") else {}
    )
    if class_name(module) != "Eva":
        return found
    found["use_rot_pos_emb"] = module.rope is not None
    if module.attn_pool is not None:
        found["attn_pool_num_heads"] = module.attn_pool.num_heads
    if (rope := module.rope) is None:
        return found
    reference = getattr(rope, "ref_feat_shape", None)
    return found | {
        "rope_type": ROPES.get(class_name(rope), class_name(rope)),
        "rope_temperature": rope.temperature,
        "rope_grid_indexing": rope.grid_indexing,
        "rope_rotate_half": getattr(rope, "rotate_half", False),
        "rope_grid_offset": getattr(rope, "grid_offset", 0.0),
        "ref_feat_shape": None if reference is None else list(reference),
    }


def attributes(module: Any, names: tuple[str, ...]) -> Iterator[object]:
    """Yield the values of the first of `names` that each submodule has."""
    for each in module.modules():
        for name in names:
            if isinstance(value := getattr(each, name, None), int | tuple):
                yield value


def norm_eps(module: Any) -> float | None:
    """Return the eps of the first normalization that has one."""
    for each in module.modules():
        eps = getattr(each, "eps", None)
        if re.search("LayerNorm|RMSNorm", class_name(each), re.I) and isinstance(eps, float):
            return eps
    return None


def preprocessing_of(module: nn.Module) -> Preprocessing:
    """Return what the module says of its images: timm's configuration, or the size that others state."""
    said: dict[str, Any] = getattr(module, "pretrained_cfg", None) or {}
    stated = (said.get("input_size", (3, 224, 224))[1:], *attributes(module, ("img_size", "image_size")))
    config = getattr(getattr(module, "config", None), "image_size", None)
    size = stated[-1] if config is None else config
    facts = {"mean": said.get("mean"), "std": said.get("std"), "interpolation": said.get("interpolation")}
    facts["resize"] = CROP_MODES.get(str(said.get("crop_mode")))
    known = {name: value for name, value in facts.items() if value and value != "random"}
    return Preprocessing(size=size, crop_fraction=said.get("crop_pct") or 1.0, **known)


def labels_of(module: nn.Module) -> list[str] | None:
    """Return the classes that a model of transformers names, where they are more than LABEL_0, LABEL_1."""
    named = getattr(getattr(module, "config", None), "id2label", None) or {}
    labels = [str(named.get(number, f"LABEL_{number}")) for number in range(len(named))]
    return labels if labels and labels != [f"LABEL_{number}" for number in range(len(labels))] else None


@torch.no_grad()
def check_outputs(module: nn.Module, model: nn.Module) -> None:
    """Compare everything that a module and the model made from it make of the same images, vectors or tokens:
    logits, features, tokens, and the tokens after each layer. Raises InputError: one differs, or the model
    has nothing like it: the module has a part that this package does not know."""
    ours, theirs = next(model.parameters()), next(module.parameters())
    if ours.is_meta:
        return
    share = TOLERANCE if {ours.dtype, theirs.dtype} == {torch.float32} else 0.05
    unknown = f"the {type(module).__name__} has a part that is not supported: its"
    with modes_restored(module):
        module.eval()
        for name, several, other in outputs_of_both(module, model, ours, theirs):
            fitting = [each for each in several if each.shape == other.shape]
            if not fitting:
                raise InputError(
                    f"{unknown} outputs ({name}) have shape {tuple(other.shape)}, but those of the model "
                    f"made from it have shape {tuple(several[0].shape)}; if that is its head, pass the "
                    "encoder "
                    "inside it, or replace the head with nn.Identity()"
                )
            wanted = other.float().cpu()
            difference = min((each.float().cpu() - wanted).abs().max().item() for each in fitting)
            if not difference <= share * other.abs().max().item() + 1e-7:
                raise InputError(
                    f"{unknown} outputs differ by {difference:.1e} ({name}) from those of the model that was "
                    "made from it"
                )


def outputs_of_both(
    module: object, model: nn.Module, ours: Tensor, theirs: Tensor
) -> Iterator[tuple[str, Sequence[Tensor], Tensor]]:
    """Yield the name of every output of a module, of which `theirs` is a weight; what could equal it of the
    model, of which `ours` is one; and the output itself. Raises InputError: the module does not take images
    that the model takes."""
    rng = torch.Generator().manual_seed(0)
    if own := getattr(model, "paired_outputs", None):
        for one, other in own(module, ours, theirs, rng):
            if isinstance(other, Tensor):
                yield "output", [one], other
        return
    assert isinstance(model, Model)  # there is no other
    images = torch.randn(2, model.config.channels, *model.config.image_size, generator=rng)
    try:
        found = dict(their_outputs(module, model, images.to(theirs)))
    except InputError:
        raise
    except Exception as error:
        # The code of another library may raise anything.
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(
            f"the {type(module).__name__} does not take images of shape {tuple(images.shape)}, which the "
            f"model made from it takes: {reason}"
        ) from None
    images = images.to(ours)
    answer, features = model(images), model.features(images)
    answers = {"logits": answer, "image_embeds": answer}
    if isinstance(model, ViT) and isinstance(model.head, DistilledHead):
        answers |= dict(zip(("cls_logits", "distillation_logits"), model.head.both(features), strict=True))
    tokens: list[Tensor] = []
    if isinstance(model, ViT):
        layers = range(model.config.depth + 1)
        after = model.intermediates(images, layers=[*layers])
        tokens = [model.tokens(images), *after, *model.intermediates(images, layers=[*layers], norm=True)]
        patches = [each[:, model.config.num_prefix_tokens :] for each in tokens]
        maps = [each.mT.reshape(*each.mT.shape[:2], *model.config.grid) for each in patches]
        tokens += patches + maps
    for name, other in found.items():
        kind = name.partition("[")[0]
        if kind in answers or (kind == "output" and other.ndim == answer.ndim):
            yield name, [answers.get(kind, answer)], other
        elif kind in ("pooler_output", "features"):
            yield name, [answer, features], other
        else:
            yield name, tokens or [answer], other


def their_outputs(module: Any, model: nn.Module, images: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Yield what a module makes of images, by its name: the fields of an output of transformers, or what the
    methods of timm give."""
    options: dict[str, object] = {"output_hidden_states": True} if hasattr(module, "save_pretrained") else {}
    known = signature(module.forward).parameters
    # With this a masked autoencoder drops no patch.
    if "noise" in known and isinstance(model, ViT):
        masked, (rows, columns) = module.config.mask_ratio, model.config.grid
        options["noise"] = torch.arange(float(rows * columns), device=images.device).expand(len(images), -1)
        module.config.mask_ratio = 0.0
        try:
            yield from tensors_in("output", module(images, **options))
        finally:
            module.config.mask_ratio = masked
    # flat patches, of images of any shape
    elif "spatial_shapes" in known and isinstance(model, ViT):
        flat, grid = to_patches(images, model.config.patch_size), model.config.grid
        shapes = torch.tensor([grid] * len(images), device=images.device)
        yield from tensors_in("output", module(flat, flat.new_ones(flat.shape[:2]), shapes, **options))
    elif hasattr(module, "encode_image"):  # of CLIP's own code
        yield "image_embeds", module.encode_image(images)
        return
    else:  # without the text of a model with two towers
        yield from tensors_in("output", getattr(module, "get_image_features", module)(images, **options))
    # the head of a fresh model may be zero
    if hasattr(module, "forward_features"):
        after = module.forward_features(images)
        yield from tensors_in("forward_features", after)
        if hasattr(module, "forward_head") and isinstance(after, Tensor) and not hasattr(module, "head_dist"):
            yield from tensors_in("features", module.forward_head(after, pre_logits=True))
    if hasattr(module, "forward_intermediates") and hasattr(module, "forward_features"):
        given = module.forward_intermediates(images, intermediates_only=True, output_fmt="NLC")
        yield from tensors_in("forward_intermediates", given)


def tensors_in(name: str, output: object) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors of an output, by the names of its fields and their numbers."""
    if isinstance(output, Tensor) and output.is_floating_point():
        yield name, output
    elif isinstance(output, Mapping):
        for field, value in output.items():
            if field not in OF_TRAINING:
                yield from tensors_in(field, value)
    elif isinstance(output, list | tuple):
        for number, each in enumerate(output):
            yield from tensors_in(f"{name}[{number}]", each)
