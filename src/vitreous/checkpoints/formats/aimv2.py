"""Apple's AIMv2 (arXiv 2411.14402) as transformers holds it: RMSNorm, SwiGLU, no biases but of the patches,
whose projection is normalized before positions are added; no class token. The models for any resolution
compute their positions from the grid; they are read at one size.
"""

from __future__ import annotations

from pathlib import Path

import torch

from vitreous.checkpoints.canonicalize import PLAIN_VIT, held_by_format
from vitreous.checkpoints.format import (
    GATED,
    Family,
    Format,
    Spec,
    activation_of,
    as_pair,
    configured,
    hidden_act_of,
    image_size_of,
    part_kind,
    shape_fields,
)
from vitreous.checkpoints.formats.huggingface_configs import transformers_facts
from vitreous.checkpoints.formats.huggingface_preprocessing import preprocessing_of, preprocessor_config
from vitreous.checkpoints.formats.huggingface_writing import write_folder
from vitreous.checkpoints.source import Source
from vitreous.checkpoints.weights import (
    WeightRow,
    fixed_weight,
    packed_rows,
    pairs,
    same,
    without_bias,
    write_weight_rows,
)
from vitreous.errors import InputError
from vitreous.layers.block import GATES
from vitreous.layers.embedding import sincos_of_mae
from vitreous.models.config import ViTConfig
from vitreous.models.model import Model

PREFIXES = ("", "vision_model.", "aimv2.")


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
TRANSFORMERS = Family(
    names={
        "stem.projection": "embeddings.patch_embed",
        "stem.norm_after": "embeddings.rms_norm",
        "norm": "rms_norm",
    },
    layer="encoder.layers.{}.",
    layer_names={
        "attention_norm": "rms_norm1",
        "attention.out": "attention.out_proj",
        "mlp_norm": "rms_norm2",
        "mlp.contract": "ffn.down_proj",
    },
    attention=("attention.q_proj.", "attention.k_proj.", "attention.v_proj."),
    gates=("ffn.gate_proj", "ffn.up_proj"),
    plain=False,
    tokens={},
    positions="embeddings.position_embedding.weight",
    table_axes=2,
    limits=LIMITS,
)
APPLE = TRANSFORMERS._replace(
    names={
        "stem.projection": "preprocessor.patchifier.proj",
        "stem.norm_after": "preprocessor.patchifier.norm",
        "norm": "trunk.post_trunk_norm",
    },
    layer="trunk.blocks.{}.",
    layer_names={
        "attention_norm": "norm_1",
        "attention.out": "attn.proj",
        "mlp_norm": "norm_2",
        "mlp.contract": "mlp.fc2",
    },
    attention=("attn.qkv.",),
    gates=("mlp.fc1", "mlp.fc3"),
    positions="preprocessor.pos_embed",
    table_axes=3,
)
# For AIMv2 as for its tower within transformers' Aimv2Model: what config.json may leave out.
DEFAULTS = {"num_attention_heads": 8, "rms_norm_eps": 1e-5, "hidden_act": "silu", "use_head": True}


def aimv2_rows(config: ViTConfig, family: Family, *, native: bool) -> list[WeightRow]:
    """Return the table; `native` for positions that are computed from the grid."""
    positions, *rows = family.table(config)
    if native:
        table = sincos_of_mae(config.grid, config.width)
        positions = fixed_weight("position.table", table, part="learned positions")
    return [positions, *rows]


def read_aimv2(source: Source) -> Spec:
    described = source.facts.model.over(DEFAULTS)
    of_apple = any(name.endswith("preprocessor.patchifier.proj.weight") for name in source.tensors)
    family = APPLE if of_apple else TRANSFORMERS
    prefix = source.prefix("an AIMv2", PREFIXES, f"{family.names['stem.projection']}.weight")
    source = source.renamed(
        lambda name: name.removeprefix(prefix) if name.startswith(prefix) and "text_" not in name else None
    )
    layer = family.layer.format(0)
    if f"{layer}{family.attention[0]}bias" in source.tensors:
        raise InputError(f"{source.where}: an AIMv2 with biases is not supported")
    pooled = "head.cls_token" in source.tensors
    if pooled and part_kind(source.specified.get("pooling")) == "mean":  # the tower without it
        source = source.without([name for name in source.tensors if name.startswith("head.")])
        pooled = False
    shapes = shape_fields(source, family.rows())
    native, size = family.positions not in source.tensors, described.get("image_size", 224)
    if native:
        images = as_pair(source.specified.get("image_size", size))
    else:
        positions = source.positions(family.positions)
        images = image_size_of(source, shapes["patch_size"], positions, described=[size])
    count: object
    if of_apple and "num_attention_heads" not in source.facts.arguments:  # whose heads are 128 wide
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
        "mlp_dim": source.size(f"{layer}{family.layer_names['mlp.contract']}.weight", 1, ndim=2),
        "norm_kind": "rms",
        "norm_eps": described["rms_norm_eps"],
        "qkv_bias": False,
        "class_token": False,
        "pooling": {"kind": "attention", "mlp_dim": 1} if pooled else "mean",
    }
    config = configured(ViTConfig, source, fields)
    look = preprocessing_of(source, config)
    table = aimv2_rows(config, family, native=native)
    table += pooling_rows(config.width, biased="head.k_proj.bias" in source.tensors) if pooled else []
    return Spec(source, config, table, look, task=None)


def pooling_rows(width: int, *, biased: bool) -> list[WeightRow]:
    """Return its attention pooling as ours: the query is not projected, which the unit matrix does not
    either, and no MLP follows, which one of zeros adds nothing to."""
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
    key_values = packed_rows(f"{attention}.key_value", key_value)
    return [
        same("pool.probe", "head.cls_token"),
        *(key_values if biased else [without_bias(f"{attention}.key_value", key_value)]),
        *pairs({"out": "output_proj"}, f"{attention}.", "head."),
        *(fixed_weight(name, value, part="an MLP after attention pooling") for name, value in unit.items()),
    ]


def write_aimv2(model: Model, path: Path) -> None:
    config, weights = held_by_format(model, "aimv2", LIMITS, keep=TRANSFORMERS.keep)
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
    tensors = write_weight_rows(TRANSFORMERS.table(config), weights)
    write_folder(path, tensors, described, config, preprocessor_config(model.preprocessing))


AIMV2 = Format(
    name="aimv2",
    about="Apple's AIMv2, as transformers' Aimv2VisionModel",
    families=("AIMv2",),
    entries=(("model_type", "aimv2_vision_model"), ("model_type", "aimv2")),
    keys=(r"preprocessor\.patchifier\.proj\.weight",),
    read=read_aimv2,
    gather=transformers_facts,
    write=write_aimv2,
    limits=LIMITS,
    interpolation="huggingface",
    typical={
        "norm_kind": "rms",
        "qkv_bias": False,
        "class_token": False,
        "pooling": "mean",
        "mlp": "swiglu",
        "num_classes": None,
        "stem": {"kind": "patch", "form": "linear", "norm_after": True},
    },
    without=(r"(attention|mlp)\..*bias$",),
)
