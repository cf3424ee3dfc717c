"""DINOv2 under Meta's own keys (facebookresearch/dinov2): a backbone with LayerScale, no head. The class
token has a position, the registers have none."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch

from vitreous.checkpoints.canonicalize import held
from vitreous.checkpoints.format import (
    PLAIN_VIT,
    Format,
    Overrides,
    Reading,
    Source,
    asked_heads,
    assumed_preprocessing,
    square_grid,
    vit_config,
)
from vitreous.checkpoints.formats.timm import timm_block
from vitreous.checkpoints.torch_files import write_torch
from vitreous.checkpoints.weights import Row, Token, pair, tokens_and_positions, write_rows
from vitreous.models.config import ViTConfig
from vitreous.models.names import Model
from vitreous.models.preprocessing import IMAGENET_MEAN, IMAGENET_STD

LIMITS = PLAIN_VIT | {
    "num_classes": (None,),
    "mlp": ("gelu", "swiglu"),
    "registers": None,
}


def read_dinov2(source: Source, overrides: Overrides) -> Reading:
    # FSDP-trained files hold their blocks in chunks: blocks.0.11.norm1 is layer 11.
    source = source.with_tensors(lambda name: re.sub(r"^blocks\.\d+\.(\d+\.)", r"blocks.\1", name))
    width, channels, p, q = (source.size("patch_embed.proj.weight", axis, ndim=4) for axis in range(4))
    swiglu = "blocks.0.mlp.w12.weight" in source.tensors
    patches = source.size("pos_embed", 1, ndim=3) - 1
    fields: dict[str, Any] = {
        "width": width,
        "channels": channels,
        "patch_size": (p, q),
        "image_size": square_grid(source, patches, overrides, (p, q)),
        "heads": asked_heads(source, overrides, width),
        "depth": source.count(lambda i: f"blocks.{i}.norm1.weight"),
        "mlp": "swiglu" if swiglu else "gelu",
        "mlp_dim": source.size("blocks.0.mlp.w12.weight", 0, ndim=2) // 2
        if swiglu
        else source.size("blocks.0.mlp.fc1.weight", 0, ndim=2),
        "layer_scale": 1.0 if "blocks.0.ls1.gamma" in source.tensors else None,
        "qkv_bias": "blocks.0.attn.qkv.bias" in source.tensors,
        "registers": source.size("register_tokens", 1, ndim=3) if "register_tokens" in source.tensors else 0,
        "num_classes": None,
    }
    config = vit_config(fields, overrides)
    preprocessing, assumed = assumed_preprocessing(
        config, "DINOv2", mean=IMAGENET_MEAN, std=IMAGENET_STD, crop_fraction=0.875
    )
    return Reading(
        source, config, dinov2_rows(config), preprocessing, assumed=assumed, ignored=("mask_token",)
    )


def dinov2_rows(config: ViTConfig) -> list[Row]:
    tokens = [Token("cls_token", (1, 1, config.width))]
    if config.registers:
        tokens.append(Token("register_tokens", (1, config.registers, config.width), positioned=False))
    table = [
        *pair("stem.projection", "patch_embed.proj"),
        tokens_and_positions(
            tokens, width=config.width, with_class=1, position="pos_embed", shape=(1, -1, config.width)
        ),
    ]
    for layer in range(config.depth):
        table += timm_block(
            f"blocks.{layer}", config, ("w12", "w3") if config.mlp == "swiglu" else ("fc1", "fc2")
        )
    return [*table, *pair("norm", "norm")]


def write_dinov2(model: Model, path: Path) -> None:
    config, weights = held(model, "dinov2", LIMITS, keep=("layer_scale", "qkv_bias"))
    mask_token = {"mask_token": torch.zeros(1, config.width)}  # not used after pre-training, but expected
    write_torch(write_rows(dinov2_rows(config), weights) | mask_token, path)


DINOV2 = Format(
    name="dinov2",
    about="facebookresearch/dinov2: a state dict of the backbone",
    keys=("mask_token", r"patch_embed\.proj\.weight"),
    read=read_dinov2,
    write=write_dinov2,
    limits=LIMITS,
    interpolation="dinov2",
    suffixes=(".pth", ".pt"),
    unsaid=("heads", "image_size"),
)
