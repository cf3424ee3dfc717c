"""Hugging Face transformers: ViT, DeiT, Dinov2 (with registers), the encoder of ViTMAE, and the image towers
of CLIP and SigLIP. What a state dict does not tell (heads, activation, LayerNorm eps) stands in config.json.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, NamedTuple

from vitreous.checkpoints.files import Source
from vitreous.checkpoints.format import (
    POSITIONED,
    Reading,
    activation_of,
    configured,
    image_size_of,
    shape_fields,
    tokens_and_positions,
)
from vitreous.checkpoints.formats.huggingface_preprocessing import labels_of, preprocessing_of, task_of
from vitreous.checkpoints.weights import Row, packed, pairs, query_and_key_value, same
from vitreous.errors import InputError
from vitreous.models.config import ViTConfig


class Family(NamedTuple):
    """What tells one family's layout from another's."""

    names: dict[str, str]  # of parts
    layer: str
    layer_names: dict[str, str]
    attention: tuple[str, str, str]  # q, k, v
    tokens: dict[str, str]
    positions: str
    eps: float  # where config.json does not tell, as the activation
    activation: str = "gelu"
    token_axes: int = 3
    table_axes: int = 3


VIT = Family(
    names={
        "stem.projection": "embeddings.patch_embeddings.projection",
        "norm": "layernorm",
        "representation.linear": "pooler.dense",
        "head": "classifier",
        "head.classes": "cls_classifier",
        "head.distillation": "distillation_classifier",
    },
    layer="encoder.layer.{}.",
    layer_names={
        "attention_norm": "layernorm_before",
        "attention.out": "attention.output.dense",
        "mlp_norm": "layernorm_after",
        "mlp.expand": "intermediate.dense",
        "mlp.contract": "output.dense",
    },
    attention=("attention.attention.query", "attention.attention.key", "attention.attention.value"),
    # the registers of DeiT without its second head: its distillation token, which is not read
    tokens={
        "class_token": "embeddings.cls_token",
        "distillation_token": "embeddings.distillation_token",
        "registers": "embeddings.distillation_token",
    },
    positions="embeddings.position_embeddings",
    eps=1e-12,
)
DINOV2 = VIT._replace(
    layer_names=VIT.layer_names
    | {"attention_norm": "norm1", "mlp_norm": "norm2", "mlp.expand": "mlp.fc1", "mlp.contract": "mlp.fc2"},
    tokens=VIT.tokens | {"registers": "embeddings.register_tokens"},
    eps=1e-6,
)
CLIP = Family(
    names={
        "stem.projection": "embeddings.patch_embedding",
        "embedding_norm": "pre_layrnorm",
        "norm": "post_layernorm",
        "head": "visual_projection",
    },
    layer="encoder.layers.{}.",
    layer_names={
        "attention_norm": "layer_norm1",
        "attention.out": "self_attn.out_proj",
        "mlp_norm": "layer_norm2",
        "mlp.expand": "mlp.fc1",
        "mlp.contract": "mlp.fc2",
    },
    attention=("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    tokens={"class_token": "embeddings.class_embedding"},
    positions="embeddings.position_embedding.weight",
    eps=1e-5,
    activation="quick_gelu",
    token_axes=1,
    table_axes=2,
)
SIGLIP = CLIP._replace(
    names=CLIP.names
    | {
        "head": "classifier",
        "pool.attention.out": "head.attention.out_proj",
        "pool.norm": "head.layernorm",
        "pool.mlp.expand": "head.mlp.fc1",
        "pool.mlp.contract": "head.mlp.fc2",
    },
    eps=1e-6,
    activation="gelu_pytorch_tanh",
)

TOWERS = (
    "vit",
    "deit",
    "dinov2",
    "dinov2_with_registers",
    "ijepa",
    "vision_model",
    "vision_tower",
    "encoder",
)
PREFIXES = ("", *(f"{name}." for name in TOWERS))
# The other half of a model with two towers or a decoder, and buffers.
OTHERS = ("text_model.", "text_projection.", "logit_scale", "logit_bias", "decoder.")
UNUSED = ("embeddings.mask_token", "embeddings.position_ids")


# Of transformers' other models of images: the part that is not known here, and their model_types.
UNKNOWN_PARTS = {
    "tables of relative positions": ("beit", "data2vec-vision"),
    "rotary positions": ("dinov3_vit", "mlcd_vision_model", "pixtral"),
    "sequences of any shape (NaFlex)": ("siglip2", "siglip2_vision_model"),
    "RMSNorm": ("aimv2", "aimv2_vision_model"),
    "detection tokens": ("yolos",),
    "windowed attention": ("vitdet", "sam", "sam_vision_model", "swin", "swinv2"),
    "convolutions instead of attention": ("convnext", "convnextv2", "dinov3_convnext", "resnet"),
    "tubes of several images": ("videomae", "vjepa2", "timesformer"),
}


def check_family(source: Source) -> None:
    """Refuse a model of transformers that has a part which is not known here, by its name."""
    vision = source.config.get("vision_config")
    for described in (source.config, vision if isinstance(vision, dict) else {}):
        for part, kinds in UNKNOWN_PARTS.items():
            if (kind := described.get("model_type")) in kinds:
                raise InputError(
                    f"{source.where}: {kind} of transformers has a part that is not known here: {part}"
                )


def read_huggingface(source: Source) -> Reading:
    patches = (f"{family.names['stem.projection']}.weight" for family in (VIT, CLIP))
    prefix = source.prefix("a transformers checkpoint of a ViT", PREFIXES, *patches)
    source = source.renamed(lambda name: None if name.startswith(OTHERS) else name.removeprefix(prefix))
    if "embeddings.patch_embeddings.projection.weight" in source.tensors:
        source = source.renamed(published_name)
    if "encoder.layer.0.mlp.gate_proj.weight" in source.tensors:
        raise InputError(
            f"{source.where}: the halves of a SwiGLU are apart, as transformers 5 has them in memory: write "
            "the model with its save_pretrained, or give it to vt.load as it is"
        )
    if isinstance(vision := source.config.get("vision_config"), dict):
        source = replace(source, config=source.config | vision)
    family = family_of(source)
    fields = huggingface_fields(source, family)
    config = configured(ViTConfig, source, fields)
    unused = [name for name in UNUSED if name in source.tensors]
    if family is SIGLIP and config.pooling == "mean":
        # SiglipForImageClassification does not use its pooling head
        unused += [name for name in source.tensors if name.startswith("head.")]
    return Reading(
        source,
        config,
        huggingface_rows(config, family),
        preprocessing_of(source, config),
        labels_of(source),
        tuple(unused),
        None if family is CLIP else task_of(source),
        interpolation="timm" if family is DINOV2 and config.registers else None,
    )


# The names that transformers 5 has in memory, of ViT, DeiT and DINOv2: those that every release writes.
MEMORY_NAMES = {
    r"^layers\.": "encoder.layer.",
    r"(\.attention)\.q_proj\.": r"\1.attention.query.",
    r"(\.attention)\.k_proj\.": r"\1.attention.key.",
    r"(\.attention)\.v_proj\.": r"\1.attention.value.",
    r"(\.attention)\.o_proj\.": r"\1.output.dense.",
}


def published_name(name: str) -> str:
    """The name that a weight has in files."""
    if name.startswith("layers."):  # those of DINOv2 are the same in both
        name = name.replace(".mlp.fc1.", ".intermediate.dense.").replace(".mlp.fc2.", ".output.dense.")
    for ours, theirs in MEMORY_NAMES.items():
        name = re.sub(ours, theirs, name)
    return name


def family_of(source: Source) -> Family:
    """The family, from the names of the weights."""
    if "embeddings.patch_embedding.weight" in source.tensors:
        return CLIP if "embeddings.class_embedding" in source.tensors else SIGLIP
    return DINOV2 if "encoder.layer.0.norm1.weight" in source.tensors else VIT


def huggingface_fields(source: Source, family: Family) -> dict[str, Any]:
    """The configuration from shapes and config.json."""
    tensors, described = source.tensors, source.config
    layer = family.layer.format(0)
    fields = shape_fields(source, family_rows(family, swiglu=f"{layer}mlp.weights_in.weight" in tensors))
    # config.json may leave out whatever is the default of its model_type
    defaults = "model_type" in described
    activation = described.get("hidden_act", family.activation if defaults else "gelu")
    if fields["mlp"] == "gelu":
        fields["mlp"] = activation_of(source, "hidden_act", activation)
    if fields["representation_size"] and described.get("pooler_act", "tanh") != "tanh":
        raise InputError(
            f"{source.where}: a pooler with {described['pooler_act']!r} is not known here, only tanh"
        )
    if heads := described.get("num_attention_heads", 12 if defaults else None):
        fields["heads"] = heads
    class_token, second = (name in tensors for name in map(family.tokens.get, POSITIONED))
    distilled = "distillation_classifier.weight" in tensors
    registers = source.size_if_there("embeddings.register_tokens", 1, ndim=3) or 0
    positions = source.positions(family.positions) - class_token - second
    fields |= {
        "image_size": image_size_of(
            source, fields["patch_size"], positions, described=[described.get("image_size")]
        ),
        "norm_eps": described.get("layer_norm_eps", family.eps),
        "stem": {"kind": "patch", "bias": f"{family.names['stem.projection']}.bias" in tensors},
        "qkv_bias": f"{layer}{family.attention[0]}.bias" in tensors,
        "class_token": class_token,
        "distillation_token": distilled,
        "registers": registers + (second and not distilled),
        "head_bias": fields["num_classes"] is None or family is not CLIP,
        "pooling": pooling_of(source, family, fields["width"], distilled=distilled),
    }
    if not defaults and "layer_norm_eps" not in described:
        source.assumed.append(f"LayerNorm eps {family.eps} and GELU, as no config.json says")
    return fields


def pooling_of(source: Source, family: Family, width: int, *, distilled: bool) -> str:
    if distilled:
        return "class+distillation"
    classifier = "classifier.weight" in source.tensors
    if family is SIGLIP:
        return "attention" if "head.probe" in source.tensors and not classifier else "mean"
    # Dinov2ForImageClassification sees the class token and the mean of the patches.
    wide = classifier and source.size("classifier.weight", 1, ndim=2) == 2 * width
    if family.tokens["class_token"] not in source.tensors:
        return "mean"  # I-JEPA
    return "class+mean" if wide else "class"


def family_rows(family: Family, *, swiglu: bool) -> list[Row]:
    """The table but for tokens and positions, under names without the prefix that a head gives."""
    ours, theirs = "blocks.{}.", family.layer
    gates = {"mlp.gate_expand": "mlp.weights_in", "mlp.contract": "mlp.weights_out"}
    layer_names = family.layer_names | (gates if swiglu else {})
    return [
        *pairs(family.names),
        *pairs(layer_names, ours, theirs),
        *packed(f"{ours}attention.qkv", [theirs + part for part in family.attention]),
        same(f"{ours}attention_branch.scale.gamma", f"{theirs}layer_scale1.lambda1"),
        same(f"{ours}mlp_branch.scale.gamma", f"{theirs}layer_scale2.lambda1"),
        same("pool.probe", "head.probe"),
        *query_and_key_value("pool.attention", "head.attention"),
    ]


def huggingface_rows(config: ViTConfig, family: Family) -> list[Row]:
    tokens = tokens_and_positions(
        config,
        family.tokens,
        family.positions,
        axes=family.token_axes,
        table_axes=family.table_axes,
        positioned=POSITIONED if family is DINOV2 else family.tokens,
    )
    return [tokens, *family_rows(family, swiglu=config.mlp == "swiglu")]
