"""A model as transformers holds it: a folder with model.safetensors, config.json and
preprocessor_config.json, of the family that has its parts. Dinov2's head sees the class token and the mean of
the patches side by side, so it holds heads on either of them, with zeros for the other.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from vitreous.checkpoints.canonicalize import (
    held_by_format,
    ratio_for,
    with_layer_scale,
    without_key_bias,
    without_patch_bias,
)
from vitreous.checkpoints.format import Format, hidden_act_of
from vitreous.checkpoints.formats import dinov3
from vitreous.checkpoints.formats import huggingface_families as families
from vitreous.checkpoints.formats.huggingface import huggingface_rows, read_huggingface
from vitreous.checkpoints.formats.huggingface_configs import check_family, transformers_facts
from vitreous.checkpoints.formats.huggingface_preprocessing import (
    label_fields,
    naflex_preprocessor_config,
    preprocessor_config,
)
from vitreous.checkpoints.native import write_json
from vitreous.checkpoints.torch_files import write_state_dict
from vitreous.checkpoints.weights import WeightRow, linear_kernel, with_unused, write_weight_rows
from vitreous.errors import InputError, Param
from vitreous.models.config import ViTConfig
from vitreous.models.config_parts import AxialRotaryConfig, TokenPoolingConfig
from vitreous.models.model import Model
from vitreous.models.vit import ViT

log = logging.getLogger(__name__)

Weights = dict[str, Tensor]
HuggingFaceConfig = dict[str, object]

# Where the code of InternViT is, for transformers.AutoModel with trust_remote_code=True.
INTERNVIT_CODE = "OpenGVLab/InternViT-300M-448px"
HEADS = ("classifier.", "cls_classifier.", "distillation_classifier.", "visual_projection.")


def write_huggingface(model: Model, path: Path) -> None:
    if not isinstance(model, ViT):
        raise InputError(f"huggingface cannot hold a {type(model).__name__}, only a ViT")
    form = form_for(model)
    config, weights = held_by_format(model, "huggingface", form.family.limits, keep=form.family.keep)
    config, weights, described = form.adapt(config, weights)
    rows = form.rows(config, described) if form.rows else huggingface_rows(config, form.family)
    tensors = write_weight_rows(rows, weights)
    prefix = "vision_model." if form.family is families.CLIP else f"{described['model_type']}."
    prefix = "" if config.num_classes is None else prefix
    named = {name if name.startswith(HEADS) else prefix + name: tensor for name, tensor in tensors.items()}
    if form.family.square and len(set(config.image_size)) > 1:
        kinds = described["architectures"]
        assert isinstance(kinds, list)  # as each form gives it
        log.warning("only vitreous can use this folder: transformers' %s takes only square images", kinds[0])
    labels = {} if form.family is families.CLIP else label_fields(model)
    look = preprocessor_config(model.preprocessing)
    if described["model_type"] == "siglip2_vision_model":
        look = naflex_preprocessor_config(look, config)
    write_folder(path, named, described | labels, config, look)


def write_folder(
    path: Path,
    tensors: Weights,
    described: HuggingFaceConfig,
    config: ViTConfig,
    preprocessor: HuggingFaceConfig,
) -> None:
    """Write what transformers reads: weights, config.json with what every family says, and the
    preprocessing."""
    path.mkdir(parents=True, exist_ok=True)
    write_state_dict(tensors, path / "model.safetensors")
    write_json(common(config) | described, path / "config.json")
    write_json(preprocessor, path / "preprocessor_config.json")


def common(config: ViTConfig) -> dict[str, object]:
    """Return what every family's config.json says."""
    height, width = config.image_size
    p, q = config.patch_size
    return {
        "hidden_size": config.width,
        "num_hidden_layers": config.depth,
        "num_attention_heads": config.heads,
        "hidden_act": hidden_act_of(config.mlp),
        "layer_norm_eps": config.norm_eps,
        "image_size": height if height == width else [height, width],
        "patch_size": p if p == q else [p, q],
        "num_channels": config.channels,
        "dtype": "float32",
    }


def vit_form(config: ViTConfig, weights: Weights) -> tuple[ViTConfig, Weights, HuggingFaceConfig]:
    """Return ViT, DeiT with its second token, or I-JEPA without any."""
    headed = config.num_classes is not None
    if config.representation_size and headed:
        raise InputError(
            "huggingface cannot hold a representation layer under a head; leave both out with "
            f"{Param('drop')} representation_size, or the head alone with {Param('drop')} head"
        )
    if config.distillation_token and not headed:
        raise InputError("huggingface cannot hold pooling=class+distillation without a head")
    kind, teacher = ("DeiT", "WithTeacher") if config.distillation_token else ("ViT", "")
    kind = kind if config.class_token else "IJepa"
    described: HuggingFaceConfig = {
        "model_type": kind.lower(),
        "intermediate_size": config.mlp_dim,
        "qkv_bias": config.qkv_bias,
        "architectures": [f"{kind}ForImageClassification{teacher}" if headed else f"{kind}Model"],
    }
    if config.representation_size:
        described |= {"pooler_output_size": config.representation_size, "pooler_act": "tanh"}
    return config, weights, described


def dinov2_form(config: ViTConfig, weights: Weights) -> tuple[ViTConfig, Weights, HuggingFaceConfig]:
    """Return Dinov2, with registers or without."""
    pooling, headed = config.pooling.kind, config.num_classes is not None
    name = "Dinov2WithRegisters" if config.registers else "Dinov2"
    described: HuggingFaceConfig = {
        "model_type": "dinov2_with_registers" if config.registers else "dinov2",
        "mlp_ratio": mlp_ratio(config),
        "use_swiglu_ffn": config.mlp == "swiglu",
        "qkv_bias": config.qkv_bias,
        "layerscale_value": config.layer_scale or 1.0,
        "architectures": [name + ("ForImageClassification" if headed else "Model")],
    }
    if config.registers:
        described["num_register_tokens"] = config.registers
    config, weights = with_layer_scale(config, weights)
    if not headed and pooling != "class":
        raise InputError(f"huggingface cannot hold pooling={pooling} without a head")
    if headed and pooling != "class+mean":
        weight = weights["head.weight"]
        zeros = torch.zeros_like(weight)
        weights["head.weight"] = torch.cat([weight, zeros] if pooling == "class" else [zeros, weight], dim=1)
    return config.model_copy(update={"pooling": TokenPoolingConfig(kind="class+mean")}), weights, described


def dinov2_rows(config: ViTConfig, described: HuggingFaceConfig) -> list[WeightRow]:
    """Add the token that pre-training puts for masked patches: transformers warns where it lacks."""
    tokens, *rows = huggingface_rows(config, families.DINOV2)
    return [with_unused(tokens, {"embeddings.mask_token": torch.zeros(1, config.width)}), *rows]


def tips_form(config: ViTConfig, weights: Weights) -> tuple[ViTConfig, Weights, HuggingFaceConfig]:
    """Return TIPSv2: Dinov2 without a head, under the names of its authors."""
    swiglu, ratio = config.mlp == "swiglu", ratio_for(config.mlp_dim, config.width)
    described: HuggingFaceConfig = {
        "model_type": "tipsv2_vision_model",
        "mlp_ratio": mlp_ratio(config) if swiglu else ratio,
        "use_swiglu_ffn": swiglu,
        "qkv_bias": config.qkv_bias,
        "num_register_tokens": config.registers,
        "architectures": ["Tipsv2VisionModel"],
    }
    return *with_layer_scale(config, weights), described


def tips_rows(config: ViTConfig, described: HuggingFaceConfig) -> list[WeightRow]:
    unused = {"mask_token": torch.zeros(1, config.width)}
    if not config.registers:
        unused["register_tokens"] = torch.zeros(1, 0, config.width)
    tokens, *rows = huggingface_rows(config, families.TIPS)
    return [with_unused(tokens, unused), *rows]


def mlp_ratio(config: ViTConfig) -> int:
    """Return the mlp_ratio that gives Dinov2's MLP our width; SwiGLU has two thirds of it, rounded up to a
    multiple of 8."""
    if config.mlp != "swiglu":
        if config.mlp_dim % config.width:
            raise InputError(
                f"huggingface's Dinov2 cannot hold mlp_dim={config.mlp_dim}, only multiples of the width"
            )
        return config.mlp_dim // config.width
    for ratio in range(1, 17):
        if (int(config.width * ratio * 2 / 3) + 7) // 8 * 8 == config.mlp_dim:
            return ratio
    raise InputError(f"huggingface's Dinov2 cannot hold swiglu with mlp_dim={config.mlp_dim}")


def clip_form(config: ViTConfig, weights: Weights) -> tuple[ViTConfig, Weights, HuggingFaceConfig]:
    """Return CLIP's image tower: no bias at the patches (the positions take it) nor in the projection."""
    config, weights = without_patch_bias(config, weights)
    described: HuggingFaceConfig = {"model_type": "clip_vision_model", "intermediate_size": config.mlp_dim}
    if config.num_classes is None:
        return config, weights, described | {"architectures": ["CLIPVisionModel"]}
    described |= {"architectures": ["CLIPVisionModelWithProjection"], "projection_dim": config.num_classes}
    return config, weights, described


def siglip_form(config: ViTConfig, weights: Weights) -> tuple[ViTConfig, Weights, HuggingFaceConfig]:
    described: HuggingFaceConfig = {"model_type": "siglip_vision_model", "intermediate_size": config.mlp_dim}
    return config, weights, described | {"architectures": ["SiglipVisionModel"], "vision_use_head": True}


def siglip2_form(config: ViTConfig, weights: Weights) -> tuple[ViTConfig, Weights, HuggingFaceConfig]:
    """Return SigLIP 2 for images of any shape (NaFlex)."""
    described: HuggingFaceConfig = {"model_type": "siglip2_vision_model", "intermediate_size": config.mlp_dim}
    described |= {"num_patches": prod(config.grid), "vision_use_head": True}
    return config, weights, described | {"architectures": ["Siglip2VisionModel"]}


def siglip2_rows(config: ViTConfig, _: HuggingFaceConfig) -> list[WeightRow]:
    """Return SigLIP's table, with flat patches."""
    rows = huggingface_rows(config, families.SIGLIP)
    kernel = ("stem.projection.weight",)
    flat = linear_kernel("embeddings.patch_embedding.weight", config.patch_size, config.channels)
    return [flat if row.ours == kernel else row for row in rows]


def beit_form(config: ViTConfig, weights: Weights) -> tuple[ViTConfig, Weights, HuggingFaceConfig]:
    """Return BEiT, whose last norm is after the mean of the patches, or on the tokens."""
    mean = config.pooling.kind == "mean"
    if config.final_norm != ("pooled" if mean else "tokens"):
        raise InputError(
            f"huggingface's BEiT cannot hold final_norm={config.final_norm} "
            f"with pooling={config.pooling.kind}"
        )
    if config.grid[0] != config.grid[1]:
        raise InputError("huggingface's BEiT cannot hold images that are not square")
    shared = config.position.shared
    described: HuggingFaceConfig = {
        "model_type": "beit",
        "intermediate_size": config.mlp_dim,
        "use_relative_position_bias": not shared,
        "use_shared_relative_position_bias": shared,
        "use_absolute_position_embeddings": config.position.absolute,
        "use_mean_pooling": mean,
        "layer_scale_init_value": config.layer_scale or 0.0,
        "architectures": ["BeitModel" if config.num_classes is None else "BeitForImageClassification"],
    }
    return config, without_key_bias(weights), described


def mlcd_form(config: ViTConfig, weights: Weights) -> tuple[ViTConfig, Weights, HuggingFaceConfig]:
    if weights.pop("stem.projection.bias").any():
        raise InputError("huggingface's MLCD cannot hold a bias of the patches")
    theta = dinov3.axial_rotary(config).temperature or 100.0
    described: HuggingFaceConfig = {
        "model_type": "mlcd_vision_model",
        "intermediate_size": config.mlp_dim,
        "rope_parameters": {"rope_type": "axial", "rope_theta": theta},
        "architectures": ["MLCDVisionModel"],
    }
    return config, weights, described


def internvl_form(config: ViTConfig, weights: Weights) -> tuple[ViTConfig, Weights, HuggingFaceConfig]:
    """Return the tower of InternVL, whose features are the mean of its tokens."""
    rms = config.norm_kind == "rms"
    if config.qk_norm == "layer" and not rms:
        raise InputError("huggingface's InternViT cannot hold qk_norm=layer unless norm_kind=rms")
    described: HuggingFaceConfig = {
        "model_type": "internvl_vision",
        "intermediate_size": config.mlp_dim,
        "attention_bias": config.qkv_bias,
        "use_qk_norm": config.qk_norm == "layer",
        "norm_type": "rms_norm" if rms else "layer_norm",
        "architectures": ["InternVLVisionModel"],
    }
    return *with_layer_scale(config, weights), described


def internvit_form(config: ViTConfig, weights: Weights) -> tuple[ViTConfig, Weights, HuggingFaceConfig]:
    """Return the same model as the code beside OpenGVLab's files has it; its features are the class token."""
    config, weights, described = internvl_form(config, weights)
    names = {"AutoConfig": "configuration_intern_vit.InternVisionConfig"}
    names["AutoModel"] = "modeling_intern_vit.InternVisionModel"
    return (
        config,
        weights,
        {
            "model_type": "intern_vit_6b",
            "auto_map": {key: f"{INTERNVIT_CODE}--{name}" for key, name in names.items()},
            "intermediate_size": config.mlp_dim,
            "qkv_bias": config.qkv_bias,
            "qk_normalization": config.qk_norm == "layer",
            "norm_type": described["norm_type"],
            "use_flash_attn": False,  # which is for 16 bits alone
            "architectures": ["InternVisionModel"],
        },
    )


class TransformersForm(NamedTuple):
    """How a family is written."""

    family: families.Family
    adapt: Callable[
        [ViTConfig, Weights], tuple[ViTConfig, Weights, HuggingFaceConfig]
    ]  # what config.json says
    rows: Callable[[ViTConfig, HuggingFaceConfig], list[WeightRow]] | None = (
        None  # where not those of the family
    )


def form_for(model: ViT) -> TransformersForm:
    """Return the family that has this model's parts; where two have them, the one that its weights are
    from."""
    config, named = model.config, (model.origin and model.origin.architecture) or ""
    if config.position.kind == "relative-bias":
        return TransformersForm(families.BEIT, beit_form)
    if isinstance(config.rotary, AxialRotaryConfig) and config.rotary.class_angles:
        return TransformersForm(families.MLCD, mlcd_form)
    if config.rotary is not None:
        return TransformersForm(dinov3.FAMILY, dinov3.transformers_form, dinov3.written_rows)
    if "tokens" in config.extra_norms:
        return TransformersForm(families.CLIP, clip_form)
    square = config.grid[0] == config.grid[1] and config.patch_size[0] == config.patch_size[1]
    if config.pooling.kind == "attention" and named.startswith("Siglip2") and square:
        return TransformersForm(families.SIGLIP, siglip2_form, siglip2_rows)
    if config.pooling.kind == "attention":
        return TransformersForm(families.SIGLIP, siglip_form)
    if not config.class_token and config.pooling.kind == "mean":
        return TransformersForm(families.IJEPA, vit_form)
    if config.final_norm == "none" and config.pooling.kind == "class":
        return TransformersForm(families.INTERNVIT, internvit_form)
    if config.final_norm == "none":
        return TransformersForm(families.INTERNVL, internvl_form)
    if named.startswith("Tipsv2") and config.num_classes is None and config.pooling.kind == "class":
        return TransformersForm(families.TIPS, tips_form, tips_rows)
    more = config.registers or config.mlp == "swiglu" or config.layer_scale is not None
    if more or config.pooling.kind in ("mean", "class+mean"):
        return TransformersForm(families.DINOV2, dinov2_form, dinov2_rows)
    return TransformersForm(families.VIT, vit_form)


HUGGINGFACE = Format(
    name="huggingface",
    about="transformers: ViT, DeiT, DINOv2, DINOv3, BEiT, I-JEPA, MLCD, TIPSv2, InternViT, CLIP, SigLIP",
    families=(
        "ViT",
        "DeiT",
        "MAE, with its decoder",
        "I-JEPA",
        "DINOv2",
        "DINOv3",
        "CLIP",
        "SigLIP",
        "SigLIP 2, NaFlex",
        "BEiT, BEiT v2",
        "data2vec",
        "InternViT",
        "MLCD",
        "TIPSv2",
    ),
    keys=(r"embeddings\.patch_embedding(s(\.projection)?)?\.weight",),
    outer_names=HEADS,
    entries=(("model_type", "tipsv2"), ("model_type", "tipsv2_vision_model")),
    read=read_huggingface,
    gather=transformers_facts,
    check_architecture=check_family,
    write=write_huggingface,
    limits=lambda model: form_for(model).family.limits if isinstance(model, ViT) else {},
    interpolation="huggingface",
)
