"""torchvision's VisionTransformer, with the keys of the published files (mlp.linear_1) and of later
releases (mlp.0). Exact GELU, LayerNorm eps 1e-6, class token with a position, an optional tanh layer before
the head."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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
from vitreous.checkpoints.weights import Row, Token, pair, same, tokens_and_positions, write_rows
from vitreous.models.config import ViTConfig
from vitreous.models.names import Model
from vitreous.models.preprocessing import IMAGENET_MEAN, IMAGENET_STD

LAYER = "encoder.layers.encoder_layer_{}"
LIMITS = PLAIN_VIT | {"channels": (3,), "representation_size": None}


def read_torchvision(source: Source, overrides: Overrides) -> Reading:
    width, channels, p, q = (source.size("conv_proj.weight", axis, ndim=4) for axis in range(4))
    published = f"{LAYER.format(0)}.mlp.linear_1.weight" in source.tensors
    first = "linear_1" if published else "0"
    head = "heads.head.weight" in source.tensors
    representation = "heads.pre_logits.weight" in source.tensors
    fields: dict[str, Any] = {
        "width": width,
        "channels": channels,
        "patch_size": (p, q),
        "image_size": square_grid(
            source, source.size("encoder.pos_embedding", 1, ndim=3) - 1, overrides, (p, q)
        ),
        "heads": asked_heads(source, overrides, width),
        "depth": source.count(lambda i: f"{LAYER.format(i)}.ln_1.weight"),
        "mlp_dim": source.size(f"{LAYER.format(0)}.mlp.{first}.weight", 0, ndim=2),
        "num_classes": source.size("heads.head.weight", 0, ndim=2) if head else None,
        "representation_size": source.size("heads.pre_logits.weight", 0, ndim=2) if representation else None,
    }
    config = vit_config(fields, overrides)
    preprocessing, assumed = assumed_preprocessing(
        config,
        "torchvision",
        mean=IMAGENET_MEAN,
        std=IMAGENET_STD,
        interpolation="bilinear",
        crop_fraction=0.875,
    )
    return Reading(
        source, config, torchvision_rows(config, published=published), preprocessing, assumed=assumed
    )


def torchvision_rows(config: ViTConfig, *, published: bool) -> list[Row]:
    first, second = ("linear_1", "linear_2") if published else ("0", "3")
    table = [
        *pair("stem.projection", "conv_proj"),
        tokens_and_positions(
            [Token("class_token", (1, 1, config.width))],
            width=config.width,
            with_class=1,
            position="encoder.pos_embedding",
            shape=(1, -1, config.width),
        ),
    ]
    for layer in range(config.depth):
        mine, theirs = f"blocks.{layer}", LAYER.format(layer)
        table += [
            *pair(f"{mine}.attention_norm", f"{theirs}.ln_1"),
            same(f"{mine}.attention.qkv.weight", f"{theirs}.self_attention.in_proj_weight"),
            same(f"{mine}.attention.qkv.bias", f"{theirs}.self_attention.in_proj_bias"),
            *pair(f"{mine}.attention.out", f"{theirs}.self_attention.out_proj"),
            *pair(f"{mine}.mlp_norm", f"{theirs}.ln_2"),
            *pair(f"{mine}.mlp.expand", f"{theirs}.mlp.{first}"),
            *pair(f"{mine}.mlp.contract", f"{theirs}.mlp.{second}"),
        ]
    table += pair("norm", "encoder.ln")
    if config.representation_size:
        table += pair("representation.linear", "heads.pre_logits")
    return [*table, *(pair("head", "heads.head") if config.num_classes is not None else [])]


def write_torchvision(model: Model, path: Path) -> None:
    """A state dict with the keys of the published files."""
    config, weights = held(model, "torchvision", LIMITS, headless=False)
    write_torch(write_rows(torchvision_rows(config, published=True), weights), path)


TORCHVISION = Format(
    name="torchvision",
    about="torchvision's vit_*: a state dict",
    keys=(r"conv_proj\.weight", r"encoder\.pos_embedding"),
    read=read_torchvision,
    write=write_torchvision,
    limits=LIMITS,
    interpolation="torchvision",
    suffixes=(".pth", ".pt"),
    unsaid=("heads", "image_size"),
)
