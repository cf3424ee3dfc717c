"""Codebases whose only files are state dicts: torchvision, facebookresearch/dinov2 and
FrancescoSaverioZuppichini/ViT. A class token has a position, registers have none."""

from __future__ import annotations

from math import sqrt
from pathlib import Path
from typing import Any

import torch
from einops import rearrange
from torch import Tensor

from vitreous.checkpoints.canonicalize import PLAIN_VIT, held_by_format
from vitreous.checkpoints.format import (
    POSITIONED,
    Family,
    Format,
    Spec,
    configured,
    image_size_of,
    reading_as,
    shape_fields,
)
from vitreous.checkpoints.formats.timm import TIMM_VIT
from vitreous.checkpoints.source import Source
from vitreous.checkpoints.torch_files import write_torch
from vitreous.checkpoints.weights import WeightRow, write_weight_rows
from vitreous.models.config import ViTConfig
from vitreous.models.model import Model
from vitreous.models.preprocessing import IMAGENET_MEAN, IMAGENET_STD


def state_dict_config(source: Source, family: Family, *, gated: bool = False, **fields: object) -> ViTConfig:
    """Return the configuration that shapes tell, of a model with a class token.

    Args:
        gated: whether its MLP is.
        fields: that the file or `like` states, over those of the shapes; of an `image_size`, whether it fits
            is seen.
    """
    stated = [fields.pop("image_size")] if "image_size" in fields else []
    shapes = shape_fields(source, family.rows(gated=gated))
    positions = source.positions(family.positions) - 1
    size = image_size_of(source, shapes["patch_size"], positions, described=stated)
    return configured(ViTConfig, source, {**shapes, **fields, "image_size": size})


# DINOv2 under Meta's own keys: a backbone, in most files with LayerScale, and no head.
DINOV2_VIT = TIMM_VIT._replace(
    names={"stem.projection": "patch_embed.proj", "norm": "norm"},
    gates=("mlp.w12",),
    after_gates="mlp.w3",
    tokens={"class_token": "cls_token", "registers": "register_tokens"},
    positioned=POSITIONED,
    limits=PLAIN_VIT | {"num_classes": (None,), "mlp": ("gelu", "swiglu"), "registers": None},
    keep=("layer_scale", "qkv_bias"),
)


def read_dinov2(source: Source) -> Spec:
    # FSDP-trained files hold their blocks in chunks: blocks.0.11.norm1 is layer 11.
    source = source.under({r"^blocks\.\d+\.(\d+\.)": r"blocks.\1"})
    config = state_dict_config(
        source,
        DINOV2_VIT,
        gated="blocks.0.mlp.w12.weight" in source.tensors,
        qkv_bias="blocks.0.attn.qkv.bias" in source.tensors,
        registers=source.size_if_there("register_tokens", 1, ndim=3) or 0,
    )
    look = {"mean": IMAGENET_MEAN, "std": IMAGENET_STD, "crop_fraction": 0.875}
    reading = reading_as("DINOv2", source, config, DINOV2_VIT.table(config), **look)
    # the models with registers are resized with antialiasing
    interpolation = "timm" if config.registers else None
    return reading._replace(ignored=("mask_token",), interpolation=interpolation)


def write_dinov2(model: Model, path: Path) -> None:
    tensors = DINOV2_VIT.write(model, "dinov2")
    # The mask token is not used after pre-training, but every file has it.
    mask = torch.zeros(1, tensors["cls_token"].shape[-1])
    write_torch(tensors | {"mask_token": mask}, path)


DINOV2 = Format(
    name="dinov2",
    about="facebookresearch/dinov2: a state dict of the backbone",
    families=("DINOv2",),
    keys=("mask_token", r"patch_embed\.proj\.weight"),
    read=read_dinov2,
    write=write_dinov2,
    limits=DINOV2_VIT.limits,
    interpolation="dinov2",
    suffixes=(".pth", ".pt"),
    unsaid=("heads", "image_size"),
    typical={"num_classes": None},
)

# FrancescoSaverioZuppichini/ViT scales by 1/sqrt(D) *after* the softmax and not before it, orders qkv by
# (head, channel, q/k/v), and averages all tokens, the class token among them, before the last LayerNorm.
FRANKZVIT_FIELDS: dict[str, Any] = {"norm_eps": 1e-5, "pooling": "mean-all", "final_norm": "pooled"}
FRANKZVIT_VIT = Family(
    names={"stem.projection": "0.projection.0", "pool.norm": "2.1", "head": "2.2"},
    layer="1.{}.",
    layer_names={
        "attention_norm": "0.fn.0",
        "attention.out": "0.fn.1.projection",
        "mlp_norm": "1.fn.0",
        "mlp.expand": "1.fn.1.0",
        "mlp.contract": "1.fn.1.3",
    },
    attention=(),  # interleaved
    tokens={"class_token": "0.cls_token"},
    positions="0.positions",
    table_axes=2,
    limits=PLAIN_VIT | {"norm_eps": (1e-5,), "pooling.kind": ("mean-all",), "final_norm": ("pooled",)},
)


def frankzvit_rows(config: ViTConfig, *, apart: bool = False, after: bool = True) -> list[WeightRow]:
    """Return the table with its interleaved q, k and v, and the misplaced scale moved into their weights: q
    times sqrt(D_h) undoes our scale before the softmax, v divided by sqrt(D) is theirs after it.

    Args:
        apart: the README's first form, whose q, k and v are apart; there the scale is 1 / sqrt(D_h).
        after: the scale is after the softmax, as in the README; in the notebook it is before.
    """
    head_dim = config.resolved_head_dim
    scaling = sqrt(head_dim if apart else config.width)
    each = torch.tensor([sqrt(head_dim), 1.0, 1 / scaling])
    if not after:
        each = torch.tensor([sqrt(head_dim) / scaling, 1.0, 1.0])
    factors = each.repeat_interleave(config.heads * head_dim)
    sizes = {"three": 3, "K": config.heads}

    def scale(rows: Tensor) -> Tensor:
        return factors.view(-1, *[1] * (rows.ndim - 1))

    def read(*parts: Tensor) -> tuple[Tensor, ...]:
        one = "(K E three) ... -> (three K E) ..."
        rows = torch.cat(parts) if apart else rearrange(parts[0], one, **sizes)
        return (rows * scale(rows),)

    def write(rows: Tensor) -> tuple[Tensor, ...]:
        rows = rows / scale(rows)
        return rows.chunk(3) if apart else (rearrange(rows, "(three K E) ... -> (K E three) ...", **sizes),)

    ours, theirs = "blocks.{}.attention.qkv", "1.{}.0.fn.1"
    names = ("queries", "keys", "values") if apart else ("qkv",)
    table = FRANKZVIT_VIT.table(config)
    for kind in ("weight", "bias"):
        stored = tuple(f"{theirs}.{name}.{kind}" for name in names)
        table.append(WeightRow((f"{ours}.{kind}",), stored, read, write))
    return table


def read_frankzvit(source: Source) -> Spec:
    config = state_dict_config(source, FRANKZVIT_VIT, **FRANKZVIT_FIELDS)
    after = source.specified.get("scale_after_softmax")
    if after is None:
        source.assumed.append(
            "attention divided after the softmax, as the README has it (pass scale_after_softmax=False for a "
            "model of the notebook, which divides before it)"
        )
    apart = "1.0.0.fn.1.queries.weight" in source.tensors
    rows = frankzvit_rows(config, apart=apart, after=after is not False)
    return reading_as("the README", source, config, rows, resize="squash", interpolation="bilinear")


def write_frankzvit(model: Model, path: Path) -> None:
    config, weights = held_by_format(model, "frankzvit", FRANKZVIT_VIT.limits, headless=False)
    write_torch(write_weight_rows(frankzvit_rows(config), weights), path)


FRANKZVIT = Format(
    name="frankzvit",
    about="FrancescoSaverioZuppichini/ViT: a state dict",
    families=("ViT",),
    keys=(r"0\.cls_token", r"0\.positions"),
    read=read_frankzvit,
    write=write_frankzvit,
    limits=FRANKZVIT_VIT.limits,
    suffixes=(".pt", ".pth"),
    unsaid=("heads", "image_size"),
    typical=FRANKZVIT_FIELDS,
)
