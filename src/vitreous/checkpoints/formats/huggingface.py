"""Hugging Face transformers: ViT, DeiT, Dinov2 (with registers), the encoder of ViTMAE, and the image towers
of CLIP and SigLIP. What a state dict does not tell (heads, activation, LayerNorm eps) stands in config.json.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from vitreous.checkpoints.files import Source
from vitreous.checkpoints.format import (
    POSITIONED,
    Overrides,
    Reading,
    activation_of,
    as_pair,
    asked_heads,
    configured,
    shape_fields,
    square_grid,
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


HEADS = {
    "head": "classifier",
    "head.classes": "cls_classifier",
    "head.distillation": "distillation_classifier",
}
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

TOWERS = ("vit", "deit", "dinov2", "dinov2_with_registers", "vision_model", "vision_tower", "encoder")
PREFIXES = ("", *(f"{name}." for name in TOWERS))
# The other half of a model with two towers or a decoder, and buffers.
OTHERS = ("text_model.", "text_projection.", "logit_scale", "logit_bias", "decoder.")
UNUSED = ("embeddings.mask_token", "embeddings.position_ids")


def read_huggingface(source: Source, overrides: Overrides) -> Reading:
    patches = (f"{family.names['stem.projection']}.weight" for family in (VIT, CLIP))
    prefix = source.prefix("a transformers checkpoint of a ViT", PREFIXES, *patches)
    source = source.renamed(lambda name: None if name.startswith(OTHERS) else name.removeprefix(prefix))
    if isinstance(vision := source.config.get("vision_config"), dict):
        source = source._replace(config=source.config | vision)
    family = family_of(source)
    fields, assumed = huggingface_fields(source, family, overrides)
    config = configured(ViTConfig, fields, overrides)
    unused = [name for name in UNUSED if name in source.tensors]
    if family is SIGLIP and config.pooling == "mean":
        # SiglipForImageClassification does not use its pooling head
        unused += [name for name in source.tensors if name.startswith("head.")]
    preprocessing, assumed_too = preprocessing_of(source, config)
    return Reading(
        source,
        config,
        huggingface_rows(config, family),
        preprocessing,
        labels_of(source),
        (*assumed, *assumed_too),
        tuple(unused),
        None if family is CLIP else task_of(source),
    )


def family_of(source: Source) -> Family:
    """The family, from the names of the weights."""
    if "embeddings.patch_embedding.weight" in source.tensors:
        return CLIP if "embeddings.class_embedding" in source.tensors else SIGLIP
    return DINOV2 if "encoder.layer.0.norm1.weight" in source.tensors else VIT


def huggingface_fields(
    source: Source, family: Family, overrides: Overrides
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The configuration from shapes and config.json, and what had to be assumed."""
    tensors, described = source.tensors, source.config
    layer = family.layer.format(0)
    fields = shape_fields(source, family_rows(family, swiglu=f"{layer}mlp.weights_in.weight" in tensors))
    # config.json may leave out whatever is the default of its model_type
    defaults = "model_type" in described
    activation = described.get("hidden_act", family.activation if defaults else "gelu")
    if fields["mlp"] == "gelu":
        fields["mlp"] = activation_of(source, "hidden_act", activation)
    assumed = f"LayerNorm eps {family.eps} and GELU, as no config.json says"
    if fields["representation_size"] and described.get("pooler_act", "tanh") != "tanh":
        raise InputError(
            f"{source.where}: a pooler with {described['pooler_act']!r} is not known here, only tanh"
        )
    heads = described.get("num_attention_heads", 12 if defaults else None)
    distilled = "distillation_classifier.weight" in tensors
    class_token = family.tokens["class_token"] in tensors
    fields |= {
        "image_size": image_size(source, family, overrides, fields["patch_size"]),
        "heads": asked_heads(source, overrides, fields["width"]) if heads is None else heads,
        "norm_eps": described.get("layer_norm_eps", family.eps),
        "stem": {"kind": "patch", "bias": f"{family.names['stem.projection']}.bias" in tensors},
        "qkv_bias": f"{layer}{family.attention[0]}.bias" in tensors,
        "class_token": class_token,
        "distillation_token": distilled,
        "registers": source.size_if_there("embeddings.register_tokens", 1, ndim=3) or 0,
        "head_bias": fields["num_classes"] is None or family is not CLIP,
        "pooling": pooling_of(source, family, fields["width"], distilled=distilled),
    }
    if "embeddings.distillation_token" in tensors and not distilled:
        fields["registers"] = 1
    return fields, () if defaults or "layer_norm_eps" in described else (assumed,)


def pooling_of(source: Source, family: Family, width: int, *, distilled: bool) -> str:
    if distilled:
        return "class+distillation"
    classifier = "classifier.weight" in source.tensors
    if family is SIGLIP:
        return "attention" if "head.probe" in source.tensors and not classifier else "mean"
    # Dinov2ForImageClassification sees the class token and the mean of the patches.
    wide = classifier and source.size("classifier.weight", 1, ndim=2) == 2 * width
    return "class+mean" if wide else "class"


def image_size(
    source: Source, family: Family, overrides: Overrides, patch: tuple[int, int]
) -> tuple[int, int]:
    """As config.json says, or a square grid of the positions that there are."""
    if size := as_pair(source.config.get("image_size")):
        return size
    table = source.shape(family.positions)  # (rows, D), or (1, rows, D)
    positions = table[-2] if len(table) in (2, 3) else 0
    extra = sum(
        name in source.tensors
        for name in ("embeddings.cls_token", "embeddings.class_embedding", "embeddings.distillation_token")
    )
    return square_grid(source, positions - extra, overrides, patch)


def family_rows(family: Family, *, swiglu: bool) -> list[Row]:
    """The table but for tokens and positions, under names without the prefix that a head gives."""
    ours, theirs = "blocks.{}.", family.layer
    layer_names = family.layer_names | ({"mlp.contract": "mlp.weights_out"} if swiglu else {})
    return [
        *pairs(family.names),
        *pairs(layer_names, ours, theirs),
        *pairs({"mlp.gate_expand": "mlp.weights_in"}, ours, theirs),
        *packed(f"{ours}attention.qkv", [theirs + part for part in family.attention]),
        same(f"{ours}attention_branch.scale.gamma", f"{theirs}layer_scale1.lambda1"),
        same(f"{ours}mlp_branch.scale.gamma", f"{theirs}layer_scale2.lambda1"),
        same("pool.probe", "head.probe"),
        *query_and_key_value("pool.attention", "head.attention"),
    ]


def huggingface_rows(config: ViTConfig, family: Family) -> list[Row]:
    """The whole table."""
    tokens = tokens_and_positions(
        config,
        family.tokens,
        family.positions,
        axes=family.token_axes,
        table_axes=family.table_axes,
        positioned=POSITIONED if family is DINOV2 else family.tokens,
    )
    return [tokens, *family_rows(family, swiglu=config.mlp == "swiglu")]
