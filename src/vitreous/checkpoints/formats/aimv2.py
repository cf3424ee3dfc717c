"""Apple's AIMv2 (arXiv 2411.14402) as transformers holds it: RMSNorm, SwiGLU, no biases but of the patches,
whose projection is normalized before positions are added; no class token. The models for any resolution
compute their positions from the grid; they are read at one size.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import torch

from vitreous.checkpoints.canonicalize import held
from vitreous.checkpoints.format import (
    GATED,
    PLAIN_VIT,
    Format,
    Spec,
    activation_of,
    as_pair,
    configured,
    hidden_act_of,
    image_size_of,
    kind_of,
    shape_fields,
    tokens_and_positions,
)
from vitreous.checkpoints.formats.huggingface_configs import transformers_facts
from vitreous.checkpoints.formats.huggingface_preprocessing import preprocessing_of, preprocessor_config
from vitreous.checkpoints.formats.huggingface_writing import write_folder
from vitreous.checkpoints.source import Source
from vitreous.checkpoints.weights import (
    Row,
    fixed,
    linear_stem,
    packed,
    pairs,
    same,
    stacked,
    without_bias,
    write_rows,
)
from vitreous.errors import InputError
from vitreous.layers.block import GATES
from vitreous.layers.embedding import sincos_of_mae
from vitreous.models.config import ViTConfig
from vitreous.models.model import Model

PREFIXES = ("", "vision_model.", "aimv2.")


class Names(NamedTuple):
    """What a codebase calls the parts."""

    patches: str
    patch_norm: str
    positions: str
    norm: str
    layer: str
    norms: tuple[str, str]
    projections: tuple[str, ...]  # q, k, v; or all in one
    out: str
    gates: tuple[str, str]
    contract: str
    table_axes: int


TRANSFORMERS = Names(
    patches="embeddings.patch_embed",
    patch_norm="embeddings.rms_norm",
    positions="embeddings.position_embedding.weight",
    norm="rms_norm",
    layer="encoder.layers.{}.",
    norms=("rms_norm1", "rms_norm2"),
    projections=("attention.q_proj", "attention.k_proj", "attention.v_proj"),
    out="attention.out_proj",
    gates=("ffn.gate_proj", "ffn.up_proj"),
    contract="ffn.down_proj",
    table_axes=2,
)
APPLE = Names(
    patches="preprocessor.patchifier.proj",
    patch_norm="preprocessor.patchifier.norm",
    positions="preprocessor.pos_embed",
    norm="trunk.post_trunk_norm",
    layer="trunk.blocks.{}.",
    norms=("norm_1", "norm_2"),
    projections=("attn.qkv",),
    out="attn.proj",
    gates=("mlp.fc1", "mlp.fc3"),
    contract="mlp.fc2",
    table_axes=3,
)
LIMITS = PLAIN_VIT | {
    "stem.norm_after": (True,),
    "norm_kind": ("rms",),
    "norm_eps": None,
    "mlp": tuple(GATES),
    "class_token": (False,),
    "pooling.kind": ("mean",),
    "qkv_bias": (False,),
    "num_classes": (None,),
}
# For AIMv2 as for its tower within transformers' Aimv2Model: what config.json may leave out.
DEFAULTS = {"num_attention_heads": 8, "rms_norm_eps": 1e-5, "hidden_act": "silu", "use_head": True}


def layer_rows(names: Names = TRANSFORMERS) -> list[Row]:
    ours, theirs = "blocks.{}.", names.layer
    attention_norm, mlp_norm = names.norms
    return [
        *pairs({"attention_norm": attention_norm, "mlp_norm": mlp_norm}, ours, theirs),
        stacked(f"{ours}attention.qkv.weight", [f"{theirs}{each}.weight" for each in names.projections]),
        without_bias(f"{ours}attention.out", [theirs + names.out]),
        without_bias(f"{ours}mlp.gate_expand", [theirs + each for each in names.gates]),
        without_bias(f"{ours}mlp.contract", [theirs + names.contract]),
    ]


def aimv2_rows(config: ViTConfig, *, native: bool = False, names: Names = TRANSFORMERS) -> list[Row]:
    """The table; `native` for positions that are computed from the grid."""
    positions = tokens_and_positions(config, {}, names.positions, table_axes=names.table_axes)
    if native:
        table = sincos_of_mae(config.grid, config.width)
        positions = fixed("position.table", table, part="learned positions")
    return [
        positions,
        linear_stem(f"{names.patches}.weight", config.patch_size),
        same("stem.projection.bias", f"{names.patches}.bias"),
        same("stem.norm_after.weight", f"{names.patch_norm}.weight"),
        same("norm.weight", f"{names.norm}.weight"),
        *layer_rows(names),
    ]


def read_aimv2(source: Source) -> Spec:
    described = source.facts.model.over(DEFAULTS)
    names = (
        APPLE if any(name.endswith(f"{APPLE.patches}.weight") for name in source.tensors) else TRANSFORMERS
    )
    prefix = source.prefix("an AIMv2", PREFIXES, f"{names.patches}.weight")
    source = source.renamed(
        lambda name: name.removeprefix(prefix) if name.startswith(prefix) and "text_" not in name else None
    )
    layer = names.layer.format(0)
    if f"{layer}{names.projections[0]}.bias" in source.tensors:
        raise InputError(f"{source.where}: an AIMv2 with biases is not known here")
    pooled = "head.cls_token" in source.tensors
    if pooled and kind_of(source.specified.get("pooling")) == "mean":  # the tower without it
        source = source.without([name for name in source.tensors if name.startswith("head.")])
        pooled = False
    rows = [same("stem.projection.weight", f"{names.patches}.weight"), *layer_rows(names)]
    shapes = shape_fields(source, rows)
    native, size = names.positions not in source.tensors, described.get("image_size", 224)
    if native:
        images = as_pair(source.specified.get("image_size", size))
    else:
        positions = source.positions(names.positions)
        images = image_size_of(source, shapes["patch_size"], positions, described=[size])
    count: object
    if names is APPLE and "num_attention_heads" not in source.facts.arguments:  # whose heads are 128 wide
        count = shapes["width"] // 128
        source.assumed.append(f"{count} heads, of 128 channels as Apple's")
    else:
        count = described["num_attention_heads"]
    fields = {
        **shapes,
        "image_size": images,
        "heads": count,
        "stem": {"kind": "patch", "form": "linear", "norm_after": True},
        "mlp": GATED[activation_of(source, "hidden_act", described["hidden_act"])],
        "mlp_dim": source.size(f"{layer}{names.contract}.weight", 1, ndim=2),
        "norm_kind": "rms",
        "norm_eps": described["rms_norm_eps"],
        "qkv_bias": False,
        "class_token": False,
        "pooling": {"kind": "attention", "mlp_dim": 1} if pooled else "mean",
    }
    config = configured(ViTConfig, source, fields)
    look = preprocessing_of(source, config)
    table = aimv2_rows(config, native=native, names=names)
    table += pooling_rows(config.width, biased="head.k_proj.bias" in source.tensors) if pooled else []
    return Spec(source, config, table, look, task=None)


def pooling_rows(width: int, *, biased: bool) -> list[Row]:
    """Its attention pooling as ours: the query is not projected, which the unit matrix does not either, and
    no MLP follows, which one of zeros adds nothing to."""
    attention, key_value = "pool.attention", ["head.k_proj", "head.v_proj"]
    unit = {
        f"{attention}.query.weight": torch.eye(width),
        f"{attention}.query.bias": torch.zeros(width),
        "pool.norm.weight": torch.ones(width),
        "pool.mlp.gate_expand.weight": torch.zeros(2, width),
        "pool.mlp.gate_expand.bias": torch.zeros(2),
        "pool.mlp.contract.weight": torch.zeros(width, 1),
        "pool.mlp.contract.bias": torch.zeros(width),
    }
    key_values = packed(f"{attention}.key_value", key_value)
    return [
        same("pool.probe", "head.cls_token"),
        *(key_values if biased else [without_bias(f"{attention}.key_value", key_value)]),
        *pairs({"out": "output_proj"}, f"{attention}.", "head."),
        *(fixed(name, value, part="an MLP after attention pooling") for name, value in unit.items()),
    ]


def write_aimv2(model: Model, path: Path) -> None:
    config, weights = held(model, "aimv2", LIMITS, keep=("qkv_bias",))
    height, width = config.image_size
    if height != width or config.patch_size[0] != config.patch_size[1]:
        raise InputError("aimv2 cannot hold images or patches that are not square")
    described = {
        "model_type": "aimv2_vision_model",
        "architectures": ["Aimv2VisionModel"],
        "intermediate_size": config.mlp_dim,
        "rms_norm_eps": config.norm_eps,
        "hidden_act": hidden_act_of(config.mlp),
        "use_head": False,
        "is_native": False,
    }
    tensors = write_rows(aimv2_rows(config), weights)
    write_folder(path, tensors, described, config, preprocessor_config(model.preprocessing))


AIMV2 = Format(
    name="aimv2",
    about="transformers' Aimv2VisionModel: apple's AIMv2",
    entries=(("model_type", "aimv2_vision_model"), ("model_type", "aimv2")),
    keys=(r"preprocessor\.patchifier\.proj\.weight",),
    read=read_aimv2,
    gather=transformers_facts,
    write=write_aimv2,
    limits=LIMITS,
    interpolation="huggingface",
)
