"""lucidrains/vit-pytorch: ViT and SimpleViT, also with registers or with queries and keys of unit length, of
new releases and of old ones (no LayerNorms around the patch projection, the last norm in front of the head, a
class token that is averaged in). LayerNorm eps 1e-5, q, k and v without bias; with one head as wide as the
tokens, no projection out of it.
"""

from __future__ import annotations

import re
from math import sqrt
from pathlib import Path

import torch

from vitreous.checkpoints.canonicalize import PLAIN_VIT, held_by_format
from vitreous.checkpoints.format import (
    POSITIONED,
    Format,
    Spec,
    asked_heads,
    asked_image_size,
    configured,
    flat_patch_size,
    given_number,
    image_size_of,
    reading_as,
    tokens_and_positions,
)
from vitreous.checkpoints.formats.branches import Branches, as_one_branch
from vitreous.checkpoints.source import Source
from vitreous.checkpoints.torch_files import write_torch
from vitreous.checkpoints.weights import WeightRow, converted, fixed_weight, pairs, same, write_weight_rows
from vitreous.errors import InputError
from vitreous.models.config import ViTConfig
from vitreous.models.model import Model
from vitreous.models.vit import ViT

LIMITS = PLAIN_VIT | {
    "norm_eps": (1e-5,),
    "position.kind": ("learned", "sincos-2d"),
    "position.temperature": (10_000.0,),
    "stem.norm_before": (True,),
    "stem.norm_after": (True,),
    "class_token": None,
    "registers": None,
    "qk_norm": ("none", "unit"),
    "pooling.kind": ("class", "mean"),
    "head_dim": None,
}


TOKENS = {"class_token": "cls_token", "registers": "register_tokens"}
LAYER = "transformer.layers.{}."
ATTENTION_OUT = "blocks.{}.attention.out"


# Of its parallel ViT (arXiv 2203.09795).
ATTENTIONS = Branches(
    f"{LAYER}0.fns.{{}}.",
    norm="norm",
    wide="to_qkv",
    back="to_out.0",
    one=(f"{LAYER}0.norm", f"{LAYER}0.to_qkv", f"{LAYER}0.to_out.0"),
    stacked=3,
)
MLPS = Branches(
    f"{LAYER}1.fns.{{}}.",
    norm="net.0",
    wide="net.1",
    back="net.4",
    one=(f"{LAYER}1.net.0", f"{LAYER}1.net.1", f"{LAYER}1.net.4"),
    stacked=1,
)


def current_name(name: str, *, simple: bool) -> str:
    """Return what new releases call a weight of older ones: without PreNorm wrappers around attention and
    MLP, and the last LayerNorm, which was in a Sequential with the head, by a name of its own."""
    name = re.sub(r"(\.layers\.\d+\.0)\.fn\.", r"\1.", name)
    name = re.sub(r"(\.layers\.\d+\.1)\.norm\.", r"\1.net.0.", name)
    name = re.sub(r"(\.layers\.\d+\.1)\.fn\.net\.0\.", r"\1.net.1.", name)
    last = 3 if simple else 4
    name = re.sub(r"(\.layers\.\d+\.1)\.(fn\.net\.[23]|net\.[34])\.", rf"\1.net.{last}.", name)
    name = re.sub(r"^(mlp|linear)_head\.0\.", "pooled_norm.", name)
    return re.sub(r"^(mlp|linear)_head\.1\.", r"\1_head.", name)


def vit_pytorch_rows(
    config: ViTConfig, *, simple: bool, projected: bool, positioned: bool = True
) -> list[WeightRow]:
    """Return the whole table.

    Args:
        positioned: the class token has a row among the positions.
        simple: SimpleViT: computed positions, no class token, no bias after the heads.
        projected: there is a projection out of the heads.
    """
    norms = config.stem.kind == "patch" and config.stem.norm_before
    names = {
        "stem.norm_before": "to_patch_embedding.1",
        "stem.projection": f"to_patch_embedding.{2 if norms else 1}",
        "stem.norm_after": "to_patch_embedding.3",
        "norm": "transformer.norm",
        "pool.norm": "pooled_norm",
        "head": "linear_head" if simple else "mlp_head",
    }
    layer = {
        "attention_norm": "0.norm",
        "attention.qkv": "0.to_qkv",
        "mlp_norm": "1.net.0",
        "mlp.expand": "1.net.1",
        "mlp.contract": f"1.net.{3 if simple else 4}",
    }
    no_bias = fixed_weight(f"{ATTENTION_OUT}.bias", torch.zeros(config.width), part="a bias after the heads")
    if simple and projected:
        out = [same(f"{ATTENTION_OUT}.weight", f"{LAYER}0.to_out.weight"), no_bias]
    elif projected:
        out = pairs({ATTENTION_OUT: f"{LAYER}0.to_out.0"})
    else:
        identity = torch.eye(config.width)
        out = [
            fixed_weight(f"{ATTENTION_OUT}.weight", identity, part="a projection out of one head"),
            no_bias,
        ]
    return [
        tokens_and_positions(
            config,
            TOKENS,
            "pos_embedding",
            axes=2,
            table_axes=2,
            positioned=POSITIONED if positioned else (),
        ),
        *pairs(names),
        *pairs(layer, "blocks.{}.", LAYER),
        *out,
        # theirs is times sqrt(D_h), and their logits are not divided by it
        gain("query", "q", float(config.resolved_head_dim)),
        gain("key", "k", sqrt(config.resolved_head_dim)),
    ]


def gain(ours: str, theirs: str, factor: float) -> WeightRow:
    """Return the gains of queries or keys of unit length."""
    names = f"blocks.{{}}.attention.{ours}_norm.gain", f"{LAYER}0.{theirs}_norm.gamma"
    return converted(*names, lambda gamma: gamma * factor, lambda gain: gain / factor)


def read_vit_pytorch(source: Source) -> Spec:
    simple = any(f"linear_head.{name}" in source.tensors for name in ("weight", "1.weight"))
    if "linear_head.weight" in source.tensors and len(source.shape("linear_head.weight")) == 1:
        raise InputError(
            f"{source.where}: vit-pytorch's SimpleViT with qk-norm ends in a LayerNorm, not in a classifier: "
            "give it one (model.linear_head = nn.Linear(dim, classes)) and train that"
        )
    # pool="mean" of new releases keeps an empty class token in its files
    empty = "cls_token" in source.tensors and 0 in source.shape("cls_token")
    source = source.renamed(
        lambda name: None if empty and name == "cls_token" else current_name(name, simple=simple)
    )
    source, branches = as_one_branch(source, (ATTENTIONS, MLPS))
    norms = len(source.shape("to_patch_embedding.1.weight")) == 1
    projected = any(f"{LAYER.format(0)}0.to_out{end}.weight" in source.tensors for end in ("", ".0"))
    projection = f"to_patch_embedding.{2 if norms else 1}.weight"
    width, patch_dim = (source.size(projection, axis, ndim=2) for axis in (0, 1))
    inner = source.size(f"{LAYER.format(0)}0.to_qkv.weight", 0, ndim=2) // 3
    heads = branches * asked_heads(source, inner // branches) if projected else 1
    channels = given_number(source, "channels", 3)
    patch = flat_patch_size(source, patch_dim, channels)
    class_token, positioned = "cls_token" in source.tensors, True
    pooled_norm = "pooled_norm.weight" in source.tensors
    fields: dict[str, object] = {
        "width": width,
        "channels": channels,
        "patch_size": patch,
        "heads": heads,
        "head_dim": None if inner == width else inner // heads,
        "depth": source.count(f"{LAYER}0.to_qkv.weight"),
        "mlp_dim": source.size(f"{LAYER.format(0)}1.net.1.weight", 0, ndim=2),
        "num_classes": source.size("linear_head.weight" if simple else "mlp_head.weight", 0, ndim=2),
        "stem": {"kind": "patch", "form": "linear", "norm_before": norms, "norm_after": norms},
        "norm_eps": 1e-5,
        "qkv_bias": f"{LAYER.format(0)}0.to_qkv.bias" in source.tensors,
        "class_token": class_token,
        "qk_norm": "unit" if f"{LAYER.format(0)}0.q_norm.gamma" in source.tensors else "none",
        "registers": source.size_if_there("register_tokens", 0, ndim=2) or 0,
        "pooling": "class" if class_token else "mean",
        "final_norm": "pooled" if pooled_norm else "tokens",
    }
    if simple:
        fields |= {"image_size": asked_image_size(source), "position": {"kind": "sincos-2d"}}
    else:
        # with patch dropout, whose token alone has an axis of a batch, the class token has no position
        axes = [len(source.shape(name)) for name in ("cls_token", "pos_embedding") if name in source.tensors]
        positioned = axes != [3, 2]
        patches = source.positions("pos_embedding") - int(class_token and positioned)
        fields["image_size"] = image_size_of(source, patch, patches)
    config = configured(ViTConfig, source, fields)
    if branches > 1:
        config = ViTConfig.checked(config.model_dump(), {"heads": heads})
    rows = vit_pytorch_rows(config, simple=simple, projected=projected, positioned=positioned)
    if class_token and pooled_norm and "pooling" not in source.specified:
        source.assumed.append("pooling by the class token (pass pooling='mean-all' for pool='mean')")
    return reading_as("vit-pytorch's examples", source, config, rows, interpolation="bilinear")


def write_vit_pytorch(model: Model, path: Path) -> None:
    """Write a state dict of a new release: SimpleViT where positions are computed, ViT otherwise."""
    simple = isinstance(model, ViT) and (model.config.position.kind, model.config.pooling.kind) == (
        "sincos-2d",
        "mean",
    )
    keep = ("qkv_bias", "position") if simple else ("qkv_bias",)
    config, weights = held_by_format(model, "vit-pytorch", LIMITS, keep=keep, headless=False)
    normed = config.qk_norm == "unit"
    if (config.registers or normed) and not simple:
        raise InputError("vit-pytorch cannot hold registers or qk_norm, except in its SimpleViT")
    if config.registers and normed:
        raise InputError("vit-pytorch cannot hold registers and qk_norm together")
    if config.class_token != (config.pooling.kind == "class"):
        raise InputError("vit-pytorch cannot hold a class token that is not pooled")
    if any(weight.any() for name, weight in weights.items() if name.endswith("attention.qkv.bias")):
        raise InputError("vit-pytorch cannot hold qkv_bias=True")
    weights = {name: weight for name, weight in weights.items() if not name.endswith("attention.qkv.bias")}
    one_head = config.heads == 1 and config.resolved_head_dim == config.width
    tensors = write_weight_rows(
        vit_pytorch_rows(config, simple=simple, projected=simple or not one_head), weights
    )
    if not simple and not config.class_token:
        tensors["cls_token"] = torch.zeros(0, config.width)
    write_torch(tensors, path)


VIT_PYTORCH = Format(
    name="vit-pytorch",
    about="lucidrains/vit-pytorch: a state dict of ViT or SimpleViT",
    families=("ViT",),
    keys=(r"transformer\.layers\.0\.0\.(fn\.|fns\.0\.)?to_qkv\.weight", r"to_patch_embedding\.1\.weight"),
    read=read_vit_pytorch,
    write=write_vit_pytorch,
    limits=LIMITS,
    suffixes=(".pt", ".pth"),
    unsaid=("heads", "image_size", "patch_size", "channels"),
    typical={
        "norm_eps": 1e-5,
        "qkv_bias": False,
        "patch_size": (8, 8),
        "stem": {"kind": "patch", "form": "linear", "norm_before": True, "norm_after": True},
    },
)
