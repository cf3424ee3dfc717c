"""DINOv3 (arXiv 2508.10104): facebookresearch/dinov3, a state dict of the backbone, and transformers'
DINOv3ViT. The positions are rotary, computed from the grid of patches, so that any image size will do. The
keys have no bias: Meta's file masks it, transformers leaves it out, and here it is zero.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from vitreous.checkpoints.canonicalize import PLAIN_VIT, held_by_format, with_layer_scale
from vitreous.checkpoints.format import (
    GATED,
    POSITIONED,
    Family,
    Format,
    Spec,
    activation_of,
    as_pair,
    configured,
    reading_as,
    shape_fields,
)
from vitreous.checkpoints.formats.huggingface_preprocessing import preprocessing_of
from vitreous.checkpoints.formats.timm import TIMM_VIT
from vitreous.checkpoints.source import Source, number_of
from vitreous.checkpoints.torch_files import write_torch
from vitreous.checkpoints.weights import WeightRow, with_unused, write_weight_rows
from vitreous.errors import InputError
from vitreous.models.config import ViTConfig
from vitreous.models.config_parts import AxialRotaryConfig
from vitreous.models.model import Model
from vitreous.models.preprocessing import IMAGENET_MEAN, IMAGENET_STD

ROTARY = {"pairs": "halves", "axes": "yx", "coordinates": "centered"}
LIMITS = PLAIN_VIT | {
    "num_classes": (None,),
    "mlp": ("gelu", "swiglu"),
    "norm_eps": (1e-5,),
    "position.kind": ("rotary-2d",),
    "position.rotary": None,
    "position.rotary.kind": ("axial",),
    "position.rotary.pairs": ("halves",),
    "position.rotary.axes": ("yx",),
    "position.rotary.coordinates": ("centered",),
    "registers": None,
    "edge": ("refuse", "drop"),
}
KEPT = ("layer_scale", "qkv_bias")


def axial_rotary(config: ViTConfig) -> AxialRotaryConfig:
    """Return the rotary positions of a model that `LIMITS` hold."""
    assert isinstance(config.rotary, AxialRotaryConfig)
    return config.rotary


def image_size(source: Source, described: object = None) -> tuple[int, int]:
    """Return the size that the user or config.json says; 256, with which the models are published,
    otherwise."""
    for size in (source.specified.get("image_size"), described):
        if pair := as_pair(size):
            return pair
    source.assumed.append("images of 256x256 (or pass image_size=: any size will do)")
    return 256, 256


def register_count(source: Source, name: str) -> int:
    return source.shape(name)[1] if name in source.tensors else 0


# Meta's own names. A file tells the number of heads by that of the wavelengths.
PERIODS = "rope_embed.periods"
MASK = "blocks.0.attn.qkv.bias_mask"
QKV_BIAS = "blocks.{}.attention.qkv.bias"


META = TIMM_VIT._replace(
    names={"stem.projection": "patch_embed.proj", "norm": "norm"},
    gates=("mlp.w1", "mlp.w2"),
    after_gates="mlp.w3",
    tokens={"class_token": "cls_token", "registers": "storage_tokens"},
    positioned=POSITIONED,
)


def masked_row() -> WeightRow:
    """Return the biases of q, k and v beside a mask, which is zero for those of the keys."""

    def write(bias: Tensor) -> tuple[Tensor, ...]:
        mask = torch.ones_like(bias)
        mask.chunk(3)[1].zero_()
        if (bias * (1 - mask)).any():
            raise InputError("dinov3 cannot hold a bias of the keys")
        return bias, mask

    theirs = ("blocks.{}.attn.qkv.bias", "blocks.{}.attn.qkv.bias_mask")
    return WeightRow((QKV_BIAS,), theirs, lambda bias, mask: (bias * mask,), write)


def meta_rows(config: ViTConfig, *, masked: bool = True) -> list[WeightRow]:
    rows = META.table(config)
    return [masked_row() if masked and row.ours == (QKV_BIAS,) else row for row in rows]


def computed_periods(count: int, temperature: float) -> Tensor:
    """Return the wavelengths of a temperature."""
    return temperature ** (torch.arange(count, dtype=torch.float32) / count)


def read_dinov3(source: Source) -> Spec:
    masked = MASK in source.tensors
    shapes = shape_fields(source, META.rows(gated="blocks.0.mlp.w1.weight" in source.tensors))
    periods = source.tensors[PERIODS].read().float()
    # published files have them rounded to bfloat16, and Meta's code computes with these
    known = torch.equal(periods, computed_periods(len(periods), 100.0))
    waves = {"temperature": 100.0} if known else {"periods": tuple(periods.tolist())}
    fields = {
        **shapes,
        "norm_eps": 1e-5,
        "registers": register_count(source, "storage_tokens"),
        "heads": shapes["width"] // (4 * len(periods)),
        "image_size": image_size(source),
        "qkv_bias": "blocks.0.attn.qkv.bias" in source.tensors,
        "position": {"kind": "rotary-2d", "rotary": ROTARY | waves},
    }
    config = configured(ViTConfig, source, fields)
    look = {"mean": IMAGENET_MEAN, "std": IMAGENET_STD, "resize": "squash", "interpolation": "bilinear"}
    reading = reading_as("DINOv3", source, config, meta_rows(config, masked=masked), **look)
    unused = [name for name in source.tensors if name.startswith(("projectors.", "local_cls_norm."))]
    return reading._replace(ignored=("mask_token", PERIODS, *unused))


def write_dinov3(model: Model, path: Path) -> None:
    config, weights = held_by_format(model, "dinov3", LIMITS, keep=KEPT)
    rotary = axial_rotary(config)
    count = config.resolved_head_dim // 4
    periods = computed_periods(count, rotary.temperature or 100.0)
    periods = torch.tensor(rotary.periods) if rotary.periods else periods
    unused = {"mask_token": torch.zeros(1, config.width), PERIODS: periods}
    write_torch(write_weight_rows(meta_rows(config), weights) | unused, path)


DINOV3 = Format(
    name="dinov3",
    about="facebookresearch/dinov3: a state dict of the backbone",
    families=("DINOv3",),
    keys=(r"rope_embed\.periods", r"patch_embed\.proj\.weight"),
    read=read_dinov3,
    write=write_dinov3,
    limits=LIMITS,
    suffixes=(".pth", ".pt"),
    unsaid=("image_size",),
    typical={"norm_eps": 1e-5, "num_classes": None, "position": {"kind": "rotary-2d", "rotary": ROTARY}},
    without=(r"attention\.qkv\.bias$",),  # of keys
)

# The names of transformers, in files and without the prefix that a module has in memory.
FAMILY = Family(
    names={"stem.projection": "embeddings.patch_embeddings", "norm": "norm"},
    layer="layer.{}.",
    layer_names={
        "attention_norm": "norm1",
        "attention.out": "attention.o_proj",
        "mlp_norm": "norm2",
        "mlp.expand": "mlp.up_proj",
        "mlp.contract": "mlp.down_proj",
    },
    attention=("attention.q_proj.", "attention.k_proj.", "attention.v_proj."),
    gates=("mlp.gate_proj", "mlp.up_proj"),
    scales=("layer_scale1.lambda1", "layer_scale2.lambda1"),
    tokens={"class_token": "embeddings.cls_token", "registers": "embeddings.register_tokens"},
    limits=LIMITS | dict.fromkeys(("norm_eps", "mlp")) | {"position.rotary.periods": (None,)},
    keep=KEPT,
)
MASK_TOKEN = "embeddings.mask_token"  # only for pre-training


def is_dinov3_vit(source: Source) -> bool:
    """Return whether a checkpoint of transformers is a DINOv3ViT."""
    return any(name.removeprefix("model.").startswith("layer.0.layer_scale1") for name in source.tensors)


def read_dinov3_vit(source: Source) -> Spec:
    source = source.renamed(lambda name: name.removeprefix("model."))
    tensors, described = source.tensors, source.facts.model
    if "layer.0.mlp.up_proj.bias" not in tensors:
        raise InputError(f"{source.where}: a DINOv3ViT without biases (mlp_bias=false) is not supported")
    found = [f"{each}bias" for each in FAMILY.attention]
    biases = tuple(each if f"layer.0.{each}" in tensors else None for each in found)
    family = FAMILY._replace(biases=biases)
    shapes = shape_fields(source, family.rows())
    activation = activation_of(source, "hidden_act", described.get("hidden_act", "gelu"))
    rope = described.part("rope_parameters")
    theta = number_of(
        described.get("rope_theta") or rope.get("rope_theta", 100.0), f"{source.where}: rope_theta"
    )
    fields = {
        **shapes,
        "registers": register_count(source, "embeddings.register_tokens"),
        "mlp": GATED[activation] if shapes["mlp"] == "swiglu" else activation,
        "norm_eps": described.get("layer_norm_eps", 1e-5),
        "image_size": image_size(source, described.get("image_size", 224 if described else None)),
        "qkv_bias": any(biases),
        "position": {"kind": "rotary-2d", "rotary": ROTARY | {"temperature": theta}},
    }
    if heads := described.get("num_attention_heads", 6 if described else None):
        fields["heads"] = heads
    config = configured(ViTConfig, source, fields)
    ignored = (MASK_TOKEN, *(() if config.registers else ("embeddings.register_tokens",)))
    rows = family.table(config)
    look = preprocessing_of(source, config, usual="dinov3_vit")
    return Spec(source, config, rows, look, ignored=ignored, task=None)


def transformers_form(
    config: ViTConfig, weights: dict[str, Tensor]
) -> tuple[ViTConfig, dict[str, Tensor], dict[str, object]]:
    """Return DINOv3ViT's config.json of a model, and its weights with LayerScale."""
    rotary = axial_rotary(config)
    config, weights = with_layer_scale(config, weights)
    layers = range(config.depth) if config.qkv_bias else ()
    keys = [weights[f"blocks.{i}.attention.qkv.bias"].chunk(3)[1] for i in layers]
    described: dict[str, object] = {
        "model_type": "dinov3_vit",
        "architectures": ["DINOv3ViTModel"],
        "intermediate_size": config.mlp_dim,
        "use_gated_mlp": config.gated_mlp,
        "num_register_tokens": config.registers,
        "rope_theta": rotary.temperature or 100.0,
        "query_bias": config.qkv_bias,
        "key_bias": any(bool(key.any()) for key in keys),
        "value_bias": config.qkv_bias,
        "layerscale_value": config.layer_scale,
    }
    return config, weights, described


def written_rows(config: ViTConfig, described: dict[str, object]) -> list[WeightRow]:
    """Return the table that a config.json of `transformers_form` asks for, with the tokens that no output
    needs."""
    present = [described[f"{name}_bias"] for name in ("query", "key", "value")]
    named = zip(FAMILY.attention, present, strict=True)
    biases = tuple(f"{each}bias" if has else None for each, has in named)
    tokens, *rows = FAMILY._replace(biases=biases).table(config)
    unused = {MASK_TOKEN: torch.zeros(1, 1, config.width)}
    if not config.registers:
        unused["embeddings.register_tokens"] = torch.zeros(1, 0, config.width)
    return [with_unused(tokens, unused), *rows]
