"""lucidrains/vit-pytorch: ViT and SimpleViT, of new releases and of old ones (no LayerNorms around the patch
projection, the last norm in front of the head, a class token that is averaged in). LayerNorm eps 1e-5, q, k
and v without bias; with one head as wide as the tokens, no projection out of it.
"""

from __future__ import annotations

import re
from math import isqrt
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from vitreous.checkpoints.canonicalize import held
from vitreous.checkpoints.format import (
    PLAIN_VIT,
    Format,
    Overrides,
    Reading,
    Source,
    asked_heads,
    asked_image_size,
    assumed_preprocessing,
    square_grid,
    vit_config,
)
from vitreous.checkpoints.torch_files import write_torch
from vitreous.checkpoints.weights import Row, Token, fixed, pair, same, tokens_and_positions, write_rows
from vitreous.errors import InputError
from vitreous.models.config import ViTConfig
from vitreous.models.names import Model
from vitreous.models.vit import ViT

LIMITS = PLAIN_VIT | {
    "norm_eps": (1e-5,),
    "position.kind": ("learned", "sincos-2d"),
    "position.temperature": (None, 10_000.0),
    "stem.norm_before": (True,),
    "stem.norm_after": (True,),
    "class_token": None,
    "pooling": ("class", "mean"),
    "head_dim": None,
}


class Names(NamedTuple):
    """How one release lays a model out."""

    simple: bool  # SimpleViT: computed positions, no class token, no bias after the heads
    norms: bool  # LayerNorms around the patch projection
    wrapped: bool  # PreNorm wrappers around attention and MLP: blocks' norms stand beside `fn`
    last_norm: str  # name of the last LayerNorm
    head: str
    second: int  # index of the MLP's second matrix
    projected: bool  # a projection out of the heads


def names_of(source: Source) -> Names:
    """The release, from the keys."""
    tensors = source.tensors
    wrapped = "transformer.layers.0.0.fn.to_qkv.weight" in tensors
    attention, mlp = ("0.fn", "1.fn.net") if wrapped else ("0", "1.net")
    first = 0 if wrapped else 1
    simple = "linear_head.weight" in tensors or "linear_head.1.weight" in tensors
    head = "linear_head" if simple else "mlp_head"
    sequential = f"{head}.1.weight" in tensors  # Sequential(LayerNorm, Linear) of older releases
    later = f"transformer.layers.0.{mlp}.{first + 3}.weight" in tensors  # dropout between the two matrices
    return Names(
        simple=simple,
        norms=len(tensors.shape("to_patch_embedding.1.weight")) == 1,
        wrapped=wrapped,
        last_norm=f"{head}.0" if sequential else "transformer.norm",
        head=f"{head}.1" if sequential else head,
        second=first + (3 if later else 2),
        projected=any(
            re.match(rf"transformer\.layers\.0\.{re.escape(attention)}\.to_out", name) for name in tensors
        ),
    )


def read_vit_pytorch(source: Source, overrides: Overrides) -> Reading:
    names = names_of(source)
    # pool="mean" of new releases keeps an empty class token in its files
    empty = [n for n in ("cls_token",) if n in source.tensors and 0 in source.tensors.shape(n)]
    source = source.with_tensors(lambda name: None if name in empty else name)
    mlp = "1.fn.net.0" if names.wrapped else "1.net.1"
    attention = "0.fn" if names.wrapped else "0"
    index = 2 if names.norms else 1
    width = source.size(f"to_patch_embedding.{index}.weight", 0, ndim=2)
    patch_dim = source.size(f"to_patch_embedding.{index}.weight", 1, ndim=2)
    inner = source.size(f"transformer.layers.0.{attention}.to_qkv.weight", 0, ndim=2) // 3
    heads = asked_heads(source, overrides, inner) if names.projected else 1
    channels = int(overrides.get("channels", 3))
    patch = patch_size(source, overrides, patch_dim, channels)
    class_token = "cls_token" in source.tensors
    pooled_norm = names.last_norm != "transformer.norm"
    fields: dict[str, Any] = {
        "width": width,
        "channels": channels,
        "patch_size": patch,
        "heads": heads,
        "head_dim": None if inner == width else inner // heads,
        "depth": source.count(lambda i: f"transformer.layers.{i}.{attention}.to_qkv.weight"),
        "mlp_dim": source.size(f"transformer.layers.0.{mlp}.weight", 0, ndim=2),
        "num_classes": source.size(f"{names.head}.weight", 0, ndim=2),
        "stem": {"kind": "patch", "form": "linear", "norm_before": names.norms, "norm_after": names.norms},
        "norm_eps": 1e-5,
        "qkv_bias": False,
        "class_token": class_token,
        "pooling": "class" if class_token else "mean",
        "final_norm": "pooled" if pooled_norm else "tokens",
    }
    if names.simple:
        fields |= {"image_size": asked_image_size(source, overrides), "position": {"kind": "sincos-2d"}}
    else:
        shape = source.shape("pos_embedding")  # (N + 1, D), or (1, N + 1, D) in older releases
        patches = (shape[-2] if len(shape) in (2, 3) else 0) - int(class_token)
        fields["image_size"] = square_grid(source, patches, overrides, patch)
    config = vit_config(fields, overrides)
    assumed_pool = ("pooling by the class token (pass pooling='mean-all' for pool='mean')",)
    preprocessing, assumed = assumed_preprocessing(config, "vit-pytorch's examples", interpolation="bilinear")
    old_pool = assumed_pool if class_token and pooled_norm and "pooling" not in overrides else ()
    table = vit_pytorch_rows(config, names)
    return Reading(source, config, table, preprocessing, assumed=(*assumed, *old_pool))


def patch_size(source: Source, overrides: Overrides, patch_dim: int, channels: int) -> tuple[int, int]:
    """The sides of a patch of `patch_dim` numbers: a square, unless the user says otherwise."""
    size = overrides.get("patch_size")
    if size is not None:
        p, q = (size, size) if isinstance(size, int) else size
        if p * q * channels == patch_dim:
            return p, q
    side = isqrt(patch_dim // channels)
    if side * side * channels != patch_dim or not side:
        raise InputError(
            f"{source.where}: a patch of {patch_dim} numbers is not a square of {channels} channels: pass "
            "patch_size=(rows, columns), or channels="
        )
    return side, side


def vit_pytorch_rows(config: ViTConfig, names: Names) -> list[Row]:
    """The whole table."""
    index = 2 if names.norms else 1
    table = pair("stem.projection", f"to_patch_embedding.{index}")
    if names.norms:
        table += pair("stem.norm_before", "to_patch_embedding.1") + pair(
            "stem.norm_after", "to_patch_embedding.3"
        )
    tokens = [Token("cls_token", (1, config.width))] if config.class_token else []
    position = None if names.simple else "pos_embedding"
    table.append(
        tokens_and_positions(
            tokens, width=config.width, with_class=len(tokens), position=position, shape=(-1, config.width)
        )
    )
    for layer in range(config.depth):
        table += block_rows(layer, config, names)
    last = "norm" if config.final_norm == "tokens" else "pool.norm"
    return [*table, *pair(last, names.last_norm), *pair("head", names.head)]


def block_rows(layer: int, config: ViTConfig, names: Names) -> list[Row]:
    mine, theirs = f"blocks.{layer}", f"transformer.layers.{layer}"
    if names.wrapped:
        attention, mlp, first = f"{theirs}.0.fn", f"{theirs}.1.fn.net", 0
        norms = (f"{theirs}.0.norm", f"{theirs}.1.norm")
    else:
        attention, mlp, first = f"{theirs}.0", f"{theirs}.1.net", 1
        norms = (f"{theirs}.0.norm", f"{theirs}.1.net.0")
    return [
        *pair(f"{mine}.attention_norm", norms[0]),
        same(f"{mine}.attention.qkv.weight", f"{attention}.to_qkv.weight"),
        *out_rows(f"{mine}.attention.out", attention, config, names),
        *pair(f"{mine}.mlp_norm", norms[1]),
        *pair(f"{mine}.mlp.expand", f"{mlp}.{first}"),
        *pair(f"{mine}.mlp.contract", f"{mlp}.{names.second}"),
    ]


def out_rows(ours: str, attention: str, config: ViTConfig, names: Names) -> list[Row]:
    """The projection out of the heads: with a bias, without one (SimpleViT), or none at all."""
    no_bias = fixed(f"{ours}.bias", torch.zeros(config.width), part="a bias after the heads")
    if not names.projected:
        return [
            fixed(f"{ours}.weight", torch.eye(config.width), part="a projection out of one head"),
            no_bias,
        ]
    if names.simple:
        return [same(f"{ours}.weight", f"{attention}.to_out.weight"), no_bias]
    return pair(ours, f"{attention}.to_out.0")


def write_vit_pytorch(model: Model, path: Path) -> None:
    """A state dict of a new release: SimpleViT where positions are computed, ViT otherwise."""
    simple = isinstance(model, ViT) and (model.config.position.kind, model.config.pooling) == (
        "sincos-2d",
        "mean",
    )
    keep = ("qkv_bias", "position") if simple else ("qkv_bias",)
    config, weights = held(model, "vit-pytorch", LIMITS, keep=keep, headless=False)
    if config.class_token != (config.pooling == "class"):
        raise InputError("vit-pytorch cannot hold a class token that is not what is pooled")
    weights = without_qkv_bias(config, weights)
    names = Names(
        simple=simple,
        norms=True,
        wrapped=False,
        last_norm="transformer.norm",
        head="linear_head" if simple else "mlp_head",
        second=3 if simple else 4,
        projected=simple or not (config.heads == 1 and config.resolved_head_dim == config.width),
    )
    tensors = write_rows(vit_pytorch_rows(config, names), weights)
    if not simple and not config.class_token:
        tensors["cls_token"] = torch.zeros(0, config.width)
    write_torch(tensors, path)


def without_qkv_bias(config: ViTConfig, weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same weights, where the biases of q, k and v are zero anyway."""
    biases = [f"blocks.{layer}.attention.qkv.bias" for layer in range(config.depth)]
    if any(weights[name].any() for name in biases if name in weights):
        raise InputError("vit-pytorch cannot hold qkv_bias=True")
    return {name: weight for name, weight in weights.items() if name not in biases}


VIT_PYTORCH = Format(
    name="vit-pytorch",
    about="lucidrains/vit-pytorch: a state dict of ViT or SimpleViT",
    keys=(r"transformer\.layers\.0\.0\.(fn\.)?to_qkv\.weight", r"to_patch_embedding\.1\.weight"),
    read=read_vit_pytorch,
    write=write_vit_pytorch,
    limits=LIMITS,
    suffixes=(".pt", ".pth"),
    unsaid=("heads", "image_size", "patch_size", "channels"),
)
