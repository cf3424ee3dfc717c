"""torchvision's vit_*: exact GELU, LayerNorm eps 1e-6, an optional tanh layer before the head. What a state
dict does not tell of the published weights is in a table here."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from vitreous.checkpoints.canonicalize import PLAIN_VIT
from vitreous.checkpoints.format import Family, Format, Spec, reading_as
from vitreous.checkpoints.formats.state_dicts import state_dict_config
from vitreous.checkpoints.source import CONFIG, Documents, Facts, Source, Statements
from vitreous.checkpoints.torch_files import write_torch
from vitreous.checkpoints.training_facts import plain_facts
from vitreous.errors import InputError, nearest
from vitreous.models.preprocessing import IMAGENET_MEAN, IMAGENET_STD, Preprocessing

FAMILY = Family(
    names={
        "stem.projection": "conv_proj",
        "norm": "encoder.ln",
        "representation.linear": "heads.pre_logits",
        "head": "heads.head",
    },
    layer="encoder.layers.encoder_layer_{}.",
    layer_names={
        "attention_norm": "ln_1",
        "attention.out": "self_attention.out_proj",
        "mlp_norm": "ln_2",
        "mlp.expand": "mlp.linear_1",
        "mlp.contract": "mlp.linear_2",
    },
    attention=("self_attention.in_proj_",),
    tokens={"class_token": "class_token"},
    positions="encoder.pos_embedding",
    limits=PLAIN_VIT | {"channels": (3,), "representation_size": None},
    keep=(),
)


# The published names: later releases number the parts of the MLP, and a new head may replace `heads`.
NAMES = {
    r"\.mlp\.0\.": ".mlp.linear_1.",
    r"\.mlp\.3\.": ".mlp.linear_2.",
    r"^heads\.(0\.)?(weight|bias)$": r"heads.head.\2",
}
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
    """Return what a config.json would say of a published model of torchvision. Raises InputError: torchvision
    has no weights of this name."""
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
    source = source.under(NAMES)
    model = source.facts.model
    stated = {name: model[name] for name in ("heads", "image_size") if model.get("heads")}
    config = state_dict_config(source, FAMILY, **stated)
    rows = FAMILY.table(config)
    look: dict[str, Any] = {"mean": IMAGENET_MEAN, "std": IMAGENET_STD}
    if stated:
        look |= source.facts.images
        return Spec(source, config, rows, Preprocessing(size=config.image_size, **look))
    return reading_as(
        "torchvision", source, config, rows, interpolation="bilinear", crop_fraction=0.875, **look
    )


TORCHVISION = Format(
    name="torchvision",
    about="torchvision's vit_*: a state dict",
    families=("ViT",),
    keys=(r"conv_proj\.weight", r"encoder\.pos_embedding"),
    read=read_torchvision,
    gather=torchvision_facts,
    write=lambda model, path: write_torch(FAMILY.write(model, "torchvision", headless=False), path),
    limits=FAMILY.limits,
    interpolation="torchvision",
    suffixes=(".pth", ".pt"),
    unsaid=("heads", "image_size"),
)
