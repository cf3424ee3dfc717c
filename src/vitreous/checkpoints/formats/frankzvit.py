"""FrancescoSaverioZuppichini/ViT. It scales by 1/sqrt(D) *after* the softmax and not before it, orders qkv
by (head, channel, q/k/v), and averages all tokens, the class token among them, before the last LayerNorm."""

from __future__ import annotations

from math import sqrt
from pathlib import Path
from typing import Any

import torch
from einops import rearrange
from torch import Tensor

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
from vitreous.checkpoints.torch_files import write_torch
from vitreous.checkpoints.weights import Row, Token, converted, pair, tokens_and_positions, write_rows
from vitreous.models.config import ViTConfig
from vitreous.models.names import Model

LIMITS = PLAIN_VIT | {
    "norm_eps": (1e-5,),
    "pooling": ("mean-all",),
    "final_norm": ("pooled",),
}


def read_frankzvit(source: Source, overrides: Overrides) -> Reading:
    width, channels, p, q = (source.size("0.projection.0.weight", axis, ndim=4) for axis in range(4))
    fields: dict[str, Any] = {
        "width": width,
        "channels": channels,
        "patch_size": (p, q),
        "image_size": square_grid(source, source.size("0.positions", 0, ndim=2) - 1, overrides, (p, q)),
        "heads": asked_heads(source, overrides, width),
        "depth": source.count(lambda i: f"1.{i}.0.fn.1.qkv.weight"),
        "mlp_dim": source.size("1.0.1.fn.1.0.weight", 0, ndim=2),
        "num_classes": source.size("2.2.weight", 0, ndim=2),
        "norm_eps": 1e-5,
        "pooling": "mean-all",
        "final_norm": "pooled",
    }
    config = vit_config(fields, overrides)
    preprocessing, assumed = assumed_preprocessing(
        config, "the README", resize="squash", interpolation="bilinear"
    )
    return Reading(source, config, frankzvit_rows(config), preprocessing, assumed=assumed)


def frankzvit_rows(config: ViTConfig) -> list[Row]:
    table = [
        *pair("stem.projection", "0.projection.0"),
        tokens_and_positions(
            [Token("0.cls_token", (1, 1, config.width))],
            width=config.width,
            with_class=1,
            position="0.positions",
            shape=(-1, config.width),
        ),
    ]
    for layer in range(config.depth):
        mine, attention, mlp = f"blocks.{layer}", f"1.{layer}.0.fn", f"1.{layer}.1.fn"
        table += [
            *pair(f"{mine}.attention_norm", f"{attention}.0"),
            *qkv(f"{mine}.attention.qkv", f"{attention}.1.qkv", config),
            *pair(f"{mine}.attention.out", f"{attention}.1.projection"),
            *pair(f"{mine}.mlp_norm", f"{mlp}.0"),
            *pair(f"{mine}.mlp.expand", f"{mlp}.1.0"),
            *pair(f"{mine}.mlp.contract", f"{mlp}.1.3"),
        ]
    return [*table, *pair("pool.norm", "2.1"), *pair("head", "2.2")]


def qkv(ours: str, theirs: str, config: ViTConfig) -> list[Row]:
    """The interleaved rows put in order, and the misplaced scale moved into the weights: q times sqrt(D_h)
    undoes our scale before the softmax, v divided by sqrt(D) stands for theirs after it."""
    factors = torch.tensor([sqrt(config.resolved_head_dim), 1.0, 1 / sqrt(config.width)]).view(3, 1, 1, 1)

    def read(t: Tensor) -> Tensor:
        parts = rearrange(t.reshape(len(t), -1), "(K E three) D -> three K E D", three=3, K=config.heads)
        return (parts * factors).reshape(t.shape)

    def write(t: Tensor) -> Tensor:
        parts = t.reshape(3, config.heads, config.resolved_head_dim, -1) / factors
        return rearrange(parts, "three K E D -> (K E three) D").reshape(t.shape)

    return [converted(f"{ours}.{name}", f"{theirs}.{name}", read, write) for name in ("weight", "bias")]


def write_frankzvit(model: Model, path: Path) -> None:
    config, weights = held(model, "frankzvit", LIMITS, headless=False)
    write_torch(write_rows(frankzvit_rows(config), weights), path)


FRANKZVIT = Format(
    name="frankzvit",
    about="FrancescoSaverioZuppichini/ViT: a state dict",
    keys=(r"0\.cls_token", r"0\.positions"),
    read=read_frankzvit,
    write=write_frankzvit,
    limits=LIMITS,
    suffixes=(".pt", ".pth"),
    unsaid=("heads", "image_size"),
)
