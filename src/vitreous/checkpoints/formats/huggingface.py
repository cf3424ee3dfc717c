"""Hugging Face transformers: ViT, DeiT, Dinov2 (with registers), the encoder of ViTMAE, and the image towers
of CLIP and SigLIP. What a state dict does not tell (heads, activation, LayerNorm eps) stands in config.json.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from vitreous.checkpoints.format import Overrides, Reading, Source, asked_heads, square_grid, vit_config
from vitreous.checkpoints.formats.huggingface_preprocessing import labels_of, preprocessing_of, task_of
from vitreous.checkpoints.weights import Row, Token, concatenated, pair, same, tokens_and_positions
from vitreous.errors import InputError
from vitreous.models.config import ViTConfig

ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "quick_gelu": "quick_gelu",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}


class Family(NamedTuple):
    """What tells one family's layout from another's."""

    patches: str  # the patch projection
    positions: str
    blocks: str
    attention: tuple[str, str, str, str]  # q, k, v, out
    norms: tuple[str, str]
    mlp: tuple[str, str]
    last_norm: str
    eps: float  # where config.json does not tell


ATTENTION = ("attention.attention.query", "attention.attention.key", "attention.attention.value")
VIT = Family(
    patches="embeddings.patch_embeddings.projection",
    positions="embeddings.position_embeddings",
    blocks="encoder.layer.{}",
    attention=(*ATTENTION, "attention.output.dense"),
    norms=("layernorm_before", "layernorm_after"),
    mlp=("intermediate.dense", "output.dense"),
    last_norm="layernorm",
    eps=1e-12,
)
DINOV2 = VIT._replace(norms=("norm1", "norm2"), mlp=("mlp.fc1", "mlp.fc2"), eps=1e-6)
CLIP = Family(
    patches="embeddings.patch_embedding",
    positions="embeddings.position_embedding.weight",
    blocks="encoder.layers.{}",
    attention=("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.out_proj"),
    norms=("layer_norm1", "layer_norm2"),
    mlp=("mlp.fc1", "mlp.fc2"),
    last_norm="post_layernorm",
    eps=1e-5,
)
SIGLIP = CLIP._replace(eps=1e-6)

PREFIXES = (
    "",
    "vit.",
    "deit.",
    "dinov2.",
    "dinov2_with_registers.",
    "vision_model.",
    "vision_tower.",
    "encoder.",
)
# The other half of a model with two towers or a decoder, and buffers.
OTHERS = ("text_model.", "text_projection.", "logit_scale", "logit_bias", "decoder.")
UNUSED = ("embeddings.mask_token", "embeddings.position_ids")


def prefix_of(source: Source) -> str | None:
    names = (f"{VIT.patches}.weight", f"{CLIP.patches}.weight")
    return next((p for p in PREFIXES if any(p + name in source.tensors for name in names)), None)


def read_huggingface(source: Source, overrides: Overrides) -> Reading:
    prefix = prefix_of(source)
    if prefix is None:
        raise InputError(
            f"{source.where} is not a transformers checkpoint of a ViT: it has no patch projection"
        )
    source = source.with_tensors(lambda name: None if name.startswith(OTHERS) else name.removeprefix(prefix))
    if isinstance(vision := source.config.get("vision_config"), dict):
        source = source._replace(config=source.config | vision)
    family = family_of(source)
    fields, assumed = huggingface_fields(source, family, overrides)
    config = vit_config(fields, overrides)
    unused = [name for name in UNUSED if name in source.tensors]
    if (
        family is SIGLIP and config.pooling == "mean"
    ):  # SiglipForImageClassification does not use its pooling head
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
    if f"{CLIP.patches}.weight" in source.tensors:
        return CLIP if "embeddings.class_embedding" in source.tensors else SIGLIP
    return DINOV2 if f"{DINOV2.blocks.format(0)}.norm1.weight" in source.tensors else VIT


def huggingface_fields(
    source: Source, family: Family, overrides: Overrides
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The configuration from shapes and config.json, and what had to be assumed."""
    tensors, said = source.tensors, source.config
    width, channels, p, q = (source.size(f"{family.patches}.weight", axis, ndim=4) for axis in range(4))
    block = family.blocks.format(0)
    swiglu = f"{block}.mlp.weights_in.weight" in tensors
    hidden = f"{block}.mlp.weights_out.weight" if swiglu else f"{block}.{family.mlp[1]}.weight"
    activation = said.get("hidden_act", "gelu")
    if not isinstance(activation, str) or activation not in ACTIVATIONS:
        raise InputError(f"{source.where}: unknown hidden_act {activation!r} in config.json")
    assumed = (
        () if "layer_norm_eps" in said else (f"LayerNorm eps {family.eps} and GELU, as no config.json says",)
    )
    head = next(
        (n for n in ("classifier", "cls_classifier", "visual_projection") if f"{n}.weight" in tensors), None
    )
    distilled = "distillation_classifier.weight" in tensors
    class_token = "embeddings.cls_token" in tensors or "embeddings.class_embedding" in tensors
    registers = (
        source.size("embeddings.register_tokens", 1, ndim=3) if "embeddings.register_tokens" in tensors else 0
    )
    # DeiT without its second head: the distillation token is one more token, which is not read.
    registers += int("embeddings.distillation_token" in tensors and not distilled)
    fields: dict[str, Any] = {
        "width": width,
        "channels": channels,
        "patch_size": (p, q),
        "image_size": image_size(source, family, overrides, (p, q)),
        "depth": source.count(lambda i: f"{family.blocks.format(i)}.{family.norms[0]}.weight"),
        "heads": said["num_attention_heads"]
        if "num_attention_heads" in said
        else asked_heads(source, overrides, width),
        "mlp_dim": source.size(hidden, 1, ndim=2),
        "mlp": "swiglu" if swiglu else ACTIVATIONS[activation],
        "norm_eps": said.get("layer_norm_eps", family.eps),
        "stem": {"kind": "patch", "bias": f"{family.patches}.bias" in tensors},
        "qkv_bias": f"{block}.{family.attention[0]}.bias" in tensors,
        "layer_scale": 1.0 if f"{block}.layer_scale1.lambda1" in tensors else None,
        "class_token": class_token,
        "distillation_token": distilled,
        "registers": registers,
        "embedding_norm": "pre_layrnorm.weight" in tensors,
        "num_classes": source.size(f"{head}.weight", 0, ndim=2) if head else None,
        "head_bias": head is None or f"{head}.bias" in tensors,
        "pooling": pooling_of(source, family, width, distilled=distilled),
    }
    if "pooler.dense.weight" in tensors:
        fields["representation_size"] = source.size("pooler.dense.weight", 0, ndim=2)
        if said.get("pooler_act", "tanh") != "tanh":
            raise InputError(
                f"{source.where}: a pooler with {said['pooler_act']!r} is not known here, only tanh"
            )
    return fields, assumed


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
    size = source.config.get("image_size")
    if isinstance(size, int):
        size = (size, size)
    if isinstance(size, list | tuple) and len(size) == 2 and all(isinstance(n, int) for n in size):
        return size[0], size[1]
    table = source.shape(family.positions)  # (rows, D), or (1, rows, D)
    positions = table[-2] if len(table) in (2, 3) else 0
    extra = sum(
        name in source.tensors
        for name in ("embeddings.cls_token", "embeddings.class_embedding", "embeddings.distillation_token")
    )
    return square_grid(source, positions - extra, overrides, patch)


def huggingface_rows(config: ViTConfig, family: Family) -> list[Row]:
    """The whole table, under names without the prefix that a head gives."""
    bias = config.stem.kind == "patch" and config.stem.bias
    table = [*pair("stem.projection", family.patches, bias=bias), embedding_row(config, family)]
    if config.embedding_norm:
        table += pair("embedding_norm", "pre_layrnorm")
    for layer in range(config.depth):
        table += block_rows(f"blocks.{layer}", family.blocks.format(layer), config, family)
    table += pair("norm", family.last_norm)
    if config.pooling == "attention":
        table += map_rows()
    if config.representation_size:
        table += pair("representation.linear", "pooler.dense")
    if config.num_classes is None:
        return table
    if config.distillation_token:
        return [
            *table,
            *pair("head.classes", "cls_classifier"),
            *pair("head.distillation", "distillation_classifier"),
        ]
    head = "visual_projection" if family is CLIP else "classifier"
    return [*table, *pair("head", head, bias=config.head_bias)]


def embedding_row(config: ViTConfig, family: Family) -> Row:
    """Class token, DeiT's second token, registers, positions."""
    width = config.width
    tokens: list[Token] = []
    if config.class_token and family is CLIP:
        tokens.append(Token("embeddings.class_embedding", (width,)))
    elif config.class_token:
        tokens.append(Token("embeddings.cls_token", (1, 1, width)))
    if config.distillation_token or (family is VIT and config.registers):
        tokens.append(Token("embeddings.distillation_token", (1, 1, width)))
    elif config.registers:
        tokens.append(Token("embeddings.register_tokens", (1, config.registers, width), positioned=False))
    shape = (-1, width) if family in (CLIP, SIGLIP) else (1, -1, width)
    return tokens_and_positions(
        tokens, width=width, with_class=config.num_class_tokens, position=family.positions, shape=shape
    )


def block_rows(mine: str, theirs: str, config: ViTConfig, family: Family) -> list[Row]:
    """One encoder layer."""
    names = ("weight", "bias") if config.qkv_bias else ("weight",)
    qkv, out = family.attention[:3], family.attention[3]
    swiglu = config.mlp == "swiglu"
    first, second = ("mlp.weights_in", "mlp.weights_out") if swiglu else family.mlp
    table = [
        *pair(f"{mine}.attention_norm", f"{theirs}.{family.norms[0]}"),
        *(concatenated(f"{mine}.attention.qkv.{n}", [f"{theirs}.{part}.{n}" for part in qkv]) for n in names),
        *pair(f"{mine}.attention.out", f"{theirs}.{out}"),
        *pair(f"{mine}.mlp_norm", f"{theirs}.{family.norms[1]}"),
        *pair(f"{mine}.mlp.{'gate_expand' if swiglu else 'expand'}", f"{theirs}.{first}"),
        *pair(f"{mine}.mlp.contract", f"{theirs}.{second}"),
    ]
    if config.layer_scale is not None:
        table.append(same(f"{mine}.attention_branch.scale.gamma", f"{theirs}.layer_scale1.lambda1"))
        table.append(same(f"{mine}.mlp_branch.scale.gamma", f"{theirs}.layer_scale2.lambda1"))
    return table


def map_rows() -> list[Row]:
    """SigLIP's attention pooling: q, k and v in one matrix, where ours holds q and (k, v)."""

    def split(packed: Tensor) -> tuple[Tensor, ...]:
        third = len(packed) // 3
        return packed[:third], packed[third:]

    def packed(query: Tensor, key_value: Tensor) -> tuple[Tensor, ...]:
        return (torch.cat([query, key_value]),)

    ours = ("pool.attention.query", "pool.attention.key_value")
    return [
        same("pool.probe", "head.probe"),
        *(
            Row(tuple(f"{part}.{n}" for part in ours), (f"head.attention.in_proj_{n}",), split, packed)
            for n in ("weight", "bias")
        ),
        *pair("pool.attention.out", "head.attention.out_proj"),
        *pair("pool.norm", "head.layernorm"),
        *pair("pool.mlp.expand", "head.mlp.fc1"),
        *pair("pool.mlp.contract", "head.mlp.fc2"),
    ]
