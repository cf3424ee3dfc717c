"""torchvision's vit_*: exact GELU, LayerNorm eps 1e-6, an optional tanh layer before the head. What a state
dict does not tell of the published weights is in a table here."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from vitreous.checkpoints.canonicalize import held
from vitreous.checkpoints.facts import CONFIG, Documents, Facts, Statements
from vitreous.checkpoints.format import PLAIN_VIT, Format, Spec, reading_as, tokens_and_positions
from vitreous.checkpoints.formats.state_dicts import state_dict_config
from vitreous.checkpoints.source import Source
from vitreous.checkpoints.torch_files import write_torch
from vitreous.checkpoints.training_facts import plain_facts
from vitreous.checkpoints.weights import Row, pairs, same, write_rows
from vitreous.errors import InputError, nearest
from vitreous.models.config import ViTConfig
from vitreous.models.model import Model
from vitreous.models.preprocessing import IMAGENET_MEAN, IMAGENET_STD, Preprocessing

TORCHVISION_LIMITS = PLAIN_VIT | {"channels": (3,), "representation_size": None}
TORCHVISION_LAYER = "encoder.layers.encoder_layer_{}."
TORCHVISION_NAMES = {
    "stem.projection": "conv_proj",
    "norm": "encoder.ln",
    "representation.linear": "heads.pre_logits",
    "head": "heads.head",
}
TORCHVISION_LAYER_NAMES = {
    "attention_norm": "ln_1",
    "attention.out": "self_attention.out_proj",
    "mlp_norm": "ln_2",
    "mlp.expand": "mlp.linear_1",
    "mlp.contract": "mlp.linear_2",
}
TORCHVISION_ROWS = [
    *pairs(TORCHVISION_NAMES),
    *pairs(TORCHVISION_LAYER_NAMES, "blocks.{}.", TORCHVISION_LAYER),
    same("blocks.{}.attention.qkv.weight", f"{TORCHVISION_LAYER}self_attention.in_proj_weight"),
    same("blocks.{}.attention.qkv.bias", f"{TORCHVISION_LAYER}self_attention.in_proj_bias"),
]


def torchvision_rows(config: ViTConfig) -> list[Row]:
    return [
        tokens_and_positions(config, {"class_token": "class_token"}, "encoder.pos_embedding"),
        *TORCHVISION_ROWS,
    ]


def torchvision_name(name: str) -> str:
    """The published name: later releases number the parts of the MLP, and a new head may replace `heads`."""
    name = name.replace(".mlp.0.", ".mlp.linear_1.").replace(".mlp.3.", ".mlp.linear_2.")
    return re.sub(r"^heads\.(0\.)?(weight|bias)$", r"heads.head.\2", name)


# The published weights, as `like="torchvision:vit_l_16.IMAGENET1K_SWAG_E2E_V1"` names them: size of the
# images, shorter side before the crop, filter.
SWAG_LICENSE = "cc-by-nc-4.0"
PUBLISHED = {
    "vit_b_16.IMAGENET1K_V1": (224, 256, "bilinear"),
    "vit_b_16.IMAGENET1K_SWAG_E2E_V1": (384, 384, "bicubic"),
    "vit_b_16.IMAGENET1K_SWAG_LINEAR_V1": (224, 224, "bicubic"),
    "vit_b_32.IMAGENET1K_V1": (224, 256, "bilinear"),
    "vit_l_16.IMAGENET1K_V1": (224, 242, "bilinear"),
    "vit_l_16.IMAGENET1K_SWAG_E2E_V1": (512, 512, "bicubic"),
    "vit_l_16.IMAGENET1K_SWAG_LINEAR_V1": (224, 224, "bicubic"),
    "vit_l_32.IMAGENET1K_V1": (224, 256, "bilinear"),
    "vit_h_14.IMAGENET1K_SWAG_E2E_V1": (518, 518, "bicubic"),
    "vit_h_14.IMAGENET1K_SWAG_LINEAR_V1": (224, 224, "bicubic"),
}


def description_of(name: str) -> dict[str, object]:
    """What a config.json would say of a published model of torchvision. Raises InputError: torchvision has no
    weights of this name."""
    if name not in PUBLISHED:
        raise InputError(f"like='torchvision:{name}': {nearest(name, list(PUBLISHED))}")
    size, resized, interpolation = PUBLISHED[name]
    heads = {"b": 12, "l": 16, "h": 16}[name[4]]
    look = {"crop_fraction": size / resized, "interpolation": interpolation}
    license = {"license": SWAG_LICENSE} if "SWAG" in name else {}
    return {"architecture": name, "heads": heads, "image_size": size, "preprocessing": look, **license}


def torchvision_facts(documents: Documents, source: Source) -> Facts:
    """Return what `like` says, and otherwise a training program."""
    described = Statements(documents.get(CONFIG), source.where)
    plain = plain_facts(documents, source)
    if "heads" not in described:
        return plain
    return replace(plain, model=described, images=described.part("preprocessing"))


def read_torchvision(source: Source) -> Spec:
    source = source.renamed(torchvision_name)
    model = source.facts.model
    stated = {name: model[name] for name in ("heads", "image_size") if model.get("heads")}
    config = state_dict_config(source, TORCHVISION_ROWS, "encoder.pos_embedding", **stated)
    rows = torchvision_rows(config)
    look: dict[str, Any] = {"mean": IMAGENET_MEAN, "std": IMAGENET_STD}
    if stated:
        look |= source.facts.images
        return Spec(source, config, rows, Preprocessing(size=config.image_size, **look))
    return reading_as(
        "torchvision", source, config, rows, interpolation="bilinear", crop_fraction=0.875, **look
    )


def write_torchvision(model: Model, path: Path) -> None:
    config, weights = held(model, "torchvision", TORCHVISION_LIMITS, headless=False)
    write_torch(write_rows(torchvision_rows(config), weights), path)


TORCHVISION = Format(
    name="torchvision",
    about="torchvision's vit_*: a state dict",
    keys=(r"conv_proj\.weight", r"encoder\.pos_embedding"),
    read=read_torchvision,
    gather=torchvision_facts,
    write=write_torchvision,
    limits=TORCHVISION_LIMITS,
    interpolation="torchvision",
    suffixes=(".pth", ".pt"),
    unsaid=("heads", "image_size"),
)
