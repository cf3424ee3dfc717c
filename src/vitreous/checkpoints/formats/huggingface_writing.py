"""A model as transformers holds it: a folder with model.safetensors, config.json and
preprocessor_config.json, of the family that has its parts. Dinov2's head sees the class token and the mean of
the patches side by side, so it holds heads on either of them, with zeros for the other.
"""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vitreous.checkpoints.canonicalize import held, without_patch_bias
from vitreous.checkpoints.files import write_safetensors
from vitreous.checkpoints.format import PLAIN_VIT, Format, Limits
from vitreous.checkpoints.formats.huggingface import (
    CLIP,
    DINOV2,
    PREFIXES,
    SIGLIP,
    VIT,
    Family,
    huggingface_rows,
    read_huggingface,
)
from vitreous.checkpoints.formats.huggingface_preprocessing import label_fields, preprocessor_config
from vitreous.checkpoints.weights import write_rows
from vitreous.errors import InputError
from vitreous.models.config import ViTConfig
from vitreous.models.names import Model
from vitreous.models.vit import ViT

log = logging.getLogger(__name__)

EVERY = PLAIN_VIT | dict.fromkeys(("mlp", "norm_eps", "pooling", "representation_size"))
DINOV2_LIMITS = EVERY | {
    "registers": None,
    "representation_size": (None,),
    "pooling": ("class", "mean", "class+mean"),
}
VIT_LIMITS = EVERY | {
    "distillation_token": None,
    "embedding_norm": None,
    "pooling": ("class", "class+distillation"),
}
CLIP_LIMITS = EVERY | {
    "embedding_norm": None,
    "representation_size": (None,),
    "pooling": ("class",),
}
SIGLIP_LIMITS = EVERY | {
    "class_token": (False,),
    "representation_size": (None,),
    "num_classes": (None,),
}
HEADS = ("classifier.", "cls_classifier.", "distillation_classifier.", "visual_projection.")
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_tanh": "gelu_pytorch_tanh",
    "quick_gelu": "quick_gelu",
    "relu": "relu",
    "silu": "silu",
    "swiglu": "gelu",  # not used there
}


def family_for(config: ViTConfig) -> tuple[Family, Limits]:
    """The family that has this model's parts, and what it can hold."""
    if config.embedding_norm:
        return CLIP, CLIP_LIMITS
    if config.pooling == "attention":
        return SIGLIP, SIGLIP_LIMITS
    more = config.registers or config.mlp == "swiglu" or config.layer_scale is not None
    if more or config.pooling in ("mean", "class+mean"):
        return DINOV2, DINOV2_LIMITS
    return VIT, VIT_LIMITS


def write_huggingface(model: Model, path: Path) -> None:
    if not isinstance(model, ViT):
        raise InputError(f"huggingface cannot hold a {type(model).__name__}, only a ViT")
    family, limits = family_for(model.config)
    keep = ("layer_scale", "qkv_bias") if family is DINOV2 else ("qkv_bias",) if family is VIT else ()
    config, weights = held(model, "huggingface", limits, keep=keep)
    config, weights, described = FORMS[family](config, weights)
    tensors = write_rows(huggingface_rows(config, family), weights)
    prefix = described.pop("prefix")
    named = {
        name if name.startswith(HEADS) else prefix + name: tensor.contiguous().clone()
        for name, tensor in tensors.items()
    }
    if model.preprocessing.resize == "fit":
        log.warning("huggingface has no preprocessing that pads images: it is written as crop")
    path.mkdir(parents=True, exist_ok=True)
    write_safetensors(named, path / "model.safetensors")
    description = common(config) | described | (label_fields(model) if family in (VIT, DINOV2) else {})
    for name, content in (
        ("config", description),
        ("preprocessor_config", preprocessor_config(model.preprocessing)),
    ):
        (path / f"{name}.json").write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", "utf-8")


def common(config: ViTConfig) -> dict[str, Any]:
    """What every family's config.json says."""
    height, width = config.image_size
    p, q = config.patch_size
    return {
        "hidden_size": config.width,
        "num_hidden_layers": config.depth,
        "num_attention_heads": config.heads,
        "hidden_act": ACTIVATIONS[config.mlp],
        "layer_norm_eps": config.norm_eps,
        "image_size": height if height == width else [height, width],
        "patch_size": p if p == q else [p, q],
        "num_channels": config.channels,
        "dtype": "float32",
    }


Form = tuple[ViTConfig, dict[str, Tensor], dict[str, Any]]


def vit_form(config: ViTConfig, weights: dict[str, Tensor]) -> Form:
    """ViT, or DeiT with its second token."""
    if config.representation_size and config.num_classes is not None:
        raise InputError(
            "huggingface cannot hold a representation layer under a head; drop both with "
            "drop=('representation',) or --drop representation_size, or the head alone with --drop head"
        )
    described: dict[str, Any] = {
        "model_type": "deit" if config.distillation_token else "vit",
        "intermediate_size": config.mlp_dim,
        "qkv_bias": config.qkv_bias,
    }
    if config.distillation_token:
        name = "DeiTForImageClassificationWithTeacher" if config.num_classes is not None else "DeiTModel"
    else:
        name = "ViTForImageClassification" if config.num_classes is not None else "ViTModel"
    if config.representation_size:
        described |= {"pooler_output_size": config.representation_size, "pooler_act": "tanh"}
    prefix = "" if config.num_classes is None else f"{described['model_type']}."
    return config, weights, described | {"architectures": [name], "prefix": prefix}


def dinov2_form(config: ViTConfig, weights: dict[str, Tensor]) -> Form:
    """Dinov2, with registers or without."""
    kind = "dinov2_with_registers" if config.registers else "dinov2"
    ratio = config.mlp_dim / config.width
    if config.mlp == "swiglu":
        ratio = fitting_ratio(config)
    if ratio != int(ratio) and config.mlp != "swiglu":
        raise InputError(
            f"huggingface's Dinov2 cannot hold mlp_dim={config.mlp_dim}, only multiples of the width"
        )
    described: dict[str, Any] = {
        "model_type": kind,
        "mlp_ratio": int(ratio),
        "use_swiglu_ffn": config.mlp == "swiglu",
        "qkv_bias": config.qkv_bias,
        "layerscale_value": config.layer_scale or 1.0,
    }
    if config.registers:
        described["num_register_tokens"] = config.registers
    if config.layer_scale is None:
        for layer in range(config.depth):
            for branch in ("attention_branch", "mlp_branch"):
                weights[f"blocks.{layer}.{branch}.scale.gamma"] = torch.ones(config.width)
    pooling = config.pooling
    if config.num_classes is None:
        if pooling != "class":
            raise InputError(f"huggingface cannot hold pooling={pooling} without a head")
    elif pooling != "class+mean":
        weight = weights["head.weight"]
        both = (
            (weight, torch.zeros_like(weight)) if pooling == "class" else (torch.zeros_like(weight), weight)
        )
        weights["head.weight"] = torch.cat(both, dim=1)
    config = config.model_copy(update={"layer_scale": config.layer_scale or 1.0, "pooling": "class+mean"})
    name = {"dinov2": "Dinov2", "dinov2_with_registers": "Dinov2WithRegisters"}[kind]
    name += "Model" if config.num_classes is None else "ForImageClassification"
    prefix = "" if config.num_classes is None else f"{kind}."
    return config, weights, described | {"architectures": [name], "prefix": prefix}


def fitting_ratio(config: ViTConfig) -> int:
    """The mlp_ratio that gives Dinov2's SwiGLU our width: two thirds of it, rounded up to a multiple of 8."""
    for ratio in range(1, 17):
        if (int(config.width * ratio * 2 / 3) + 7) // 8 * 8 == config.mlp_dim:
            return ratio
    raise InputError(f"huggingface's Dinov2 cannot hold swiglu with mlp_dim={config.mlp_dim}")


def clip_form(config: ViTConfig, weights: dict[str, Tensor]) -> Form:
    """CLIP's image tower: no bias at the patches (the positions take it) nor in the projection."""
    described: dict[str, Any] = {"model_type": "clip_vision_model", "intermediate_size": config.mlp_dim}
    weights = without_patch_bias(config, weights)
    config = config.model_copy(
        update={"stem": config.stem.model_copy(update={"bias": False}), "head_bias": False}
    )
    if config.num_classes is None:
        return config, weights, described | {"architectures": ["CLIPVisionModel"], "prefix": ""}
    if weights.pop("head.bias").any():
        raise InputError("huggingface's CLIP cannot hold head_bias=True; drop the head with --drop head")
    described |= {"architectures": ["CLIPVisionModelWithProjection"], "projection_dim": config.num_classes}
    return config, weights, described | {"prefix": "vision_model."}


def siglip_form(config: ViTConfig, weights: dict[str, Tensor]) -> Form:
    """SigLIP's image tower."""
    described: dict[str, Any] = {"model_type": "siglip_vision_model", "intermediate_size": config.mlp_dim}
    return (
        config,
        weights,
        described | {"architectures": ["SiglipVisionModel"], "prefix": "", "vision_use_head": True},
    )


FORMS = {VIT: vit_form, DINOV2: dinov2_form, CLIP: clip_form, SIGLIP: siglip_form}


def huggingface_limits(model: Model) -> Limits:
    return family_for(model.config)[1] if isinstance(model, ViT) else {}


HUGGINGFACE = Format(
    name="huggingface",
    about="transformers: ViT, DeiT, Dinov2, ViTMAE's encoder, the image towers of CLIP and SigLIP",
    keys=(rf"({'|'.join(map(re.escape, PREFIXES))})embeddings\.patch_embedding(s\.projection)?\.weight",),
    read=read_huggingface,
    write=write_huggingface,
    limits=huggingface_limits,
    interpolation="huggingface",
)
