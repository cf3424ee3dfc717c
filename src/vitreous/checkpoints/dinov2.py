"""DINOv2 under Meta's own keys (facebookresearch/dinov2): a backbone with LayerScale, no head. The class
token has a position, the registers have none."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch

from vitreous.checkpoints.absorbing import Limits, check_limits, only_vit, plain
from vitreous.checkpoints.algebra import Row, Token, pair, same, tokens_and_positions, write_rows
from vitreous.checkpoints.reading import Reading, Told, asked_heads, assumed_preprocessing, vit_config
from vitreous.checkpoints.source import Source, square_grid
from vitreous.checkpoints.tensor_files import write_torch
from vitreous.models.config import ViTConfig
from vitreous.models.names import Model
from vitreous.models.preprocessing import IMAGENET_MEAN, IMAGENET_STD

INTERPOLATION = "dinov2"
SUFFIXES = (".pth", ".pt")
LIMITS: Limits = {
    "num_classes": (None,),
    "representation_size": (None,),
    "mlp": ("gelu", "swiglu"),
    "norm_eps": (1e-6,),
    "norm": ("pre",),
    "position.where": ("stem",),
    "position.kind": ("learned",),
    "stem.kind": ("patch",),
    "stem.norm_before": (False,),
    "stem.norm_after": (False,),
    "pad": (False,),
    "class_token": (True,),
    "distillation_token": (False,),
    "embedding_norm": (False,),
    "pooling": ("class",),
    "final_norm": ("tokens",),
    "qk_norm": (False,),
    "head_dim": (None,),
}


def recognizes(source: Source) -> bool:
    return "mask_token" in source.tensors and "patch_embed.proj.weight" in source.tensors


def read(source: Source, told: Told) -> Reading:
    # FSDP-trained files hold their blocks in chunks: blocks.0.11.norm1 is layer 11.
    source = source.with_tensors(lambda name: re.sub(r"^blocks\.\d+\.(\d+\.)", r"blocks.\1", name))
    width, channels, p, q = (source.size("patch_embed.proj.weight", axis, ndim=4) for axis in range(4))
    swiglu = "blocks.0.mlp.w12.weight" in source.tensors
    patches = source.size("pos_embed", 1, ndim=3) - 1
    fields: dict[str, Any] = {
        "width": width,
        "channels": channels,
        "patch_size": (p, q),
        "image_size": square_grid(source, patches, told, (p, q)),
        "heads": asked_heads(source, told, width),
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
    config = vit_config(fields, told)
    preprocessing, assumed = assumed_preprocessing(
        config, "DINOv2", mean=IMAGENET_MEAN, std=IMAGENET_STD, crop_fraction=0.875
    )
    return Reading(source, config, rows(config), preprocessing, assumed=assumed, ignored=("mask_token",))


def rows(config: ViTConfig) -> list[Row]:
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
        table += block_rows(f"blocks.{layer}", config)
    return [*table, *pair("norm", "norm")]


def block_rows(block: str, config: ViTConfig) -> list[Row]:
    """One encoder layer; both sides call it blocks.N."""
    names = ("w12", "w3") if config.mlp == "swiglu" else ("fc1", "fc2")
    ours = ("gate_expand", "contract") if config.mlp == "swiglu" else ("expand", "contract")
    scales = [] if config.layer_scale is None else [("attention_branch", "ls1"), ("mlp_branch", "ls2")]
    return [
        *pair(f"{block}.attention_norm", f"{block}.norm1"),
        *pair(f"{block}.attention.qkv", f"{block}.attn.qkv", bias=config.qkv_bias),
        *pair(f"{block}.attention.out", f"{block}.attn.proj"),
        *pair(f"{block}.mlp_norm", f"{block}.norm2"),
        *(
            row
            for mine, theirs in zip(ours, names, strict=True)
            for row in pair(f"{block}.mlp.{mine}", f"{block}.mlp.{theirs}")
        ),
        *(same(f"{block}.{branch}.scale.gamma", f"{block}.{scale}.gamma") for branch, scale in scales),
    ]


def write(model: Model, path: Path) -> None:
    config, weights = plain(only_vit(model, "dinov2"), keep=("layer_scale", "qkv_bias"))
    check_limits(config, LIMITS, "dinov2")
    mask_token = {"mask_token": torch.zeros(1, config.width)}  # not used after pre-training, but expected
    write_torch(write_rows(rows(config), weights) | mask_token, path)
