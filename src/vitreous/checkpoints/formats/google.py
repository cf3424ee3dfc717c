"""Google's .npz: vit_jax (google-research/vision_transformer) and big_vision, with hybrids, BiT, attention
pooling and the scanned layout. Kernels are (in, out), convolutions (row, column, in, out), q, k and v have an
axis of heads. vit_jax gives the class token a position, and its published files number a block's parts
through; big_vision does neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from vitreous.checkpoints.canonicalize import PLAIN_VIT, FormatLimits, check_limits, held_by_format
from vitreous.checkpoints.format import (
    POSITIONED,
    Format,
    Spec,
    asked_image_size,
    configured,
    image_size_of,
    reading_as,
    tokens_and_positions,
)
from vitreous.checkpoints.formats.bit import (
    HYBRID,
    POST_ACTIVATION,
    bit_rows,
    convolution_row,
    linear_rows,
    read_resnet,
    resnet_rows,
    resnet_shape,
)
from vitreous.checkpoints.source import Source
from vitreous.checkpoints.tensors import write_npz
from vitreous.checkpoints.weights import WeightRow, converted, same, stored_weights, write_weight_rows
from vitreous.errors import InputError
from vitreous.models.bit import BiT
from vitreous.models.config import ViTConfig
from vitreous.models.model import Model

LIMITS = PLAIN_VIT | {
    "edge": ("refuse", "drop"),
    "mlp": ("gelu_tanh",),
    "stem.kind": ("patch", "resnet"),
    "stem.standardization": ("std",),
    "stem.standardization_eps": (1e-5,),
    "stem.norm_eps": (1e-6,),
    "stem.widths": (None,),
    "class_token": None,
    "pooling.kind": ("class", "mean", "attention"),
    "head_dim": None,
    "representation_size": None,
}
BIT_LIMITS: FormatLimits = {
    "order": ("post-activation",),
    "norm_eps": (1e-6,),
    "standardization": ("std",),
    "standardization_eps": (1e-5,),
}

BLOCK = "Transformer/encoderblock_{}"
POSITIONS = "Transformer/posembed_input/pos_embedding"  # of vit_jax, with a row for the class token
# Where a model is inside a training checkpoint, or among the towers of a two-tower one.
PREFIXES = ("", "params/", "params/img/", "img/", "opt/target/", "target/")


def read_google(source: Source) -> Spec:
    source = source.below(
        source.prefix("one of Google's checkpoints", PREFIXES, "embedding/kernel", HYBRID.root)
    )
    if "embedding/kernel" not in source.tensors:  # big_vision's BiT
        only = {name: next(iter(allowed)) for name, allowed in BIT_LIMITS.items() if allowed}
        if "image_size" not in source.specified:
            source.assumed.append("images of 224x224 (any size works)")
        return read_resnet(source, POST_ACTIVATION, image_size=(224, 224), **only)
    p, q, channels, width = (source.size("embedding/kernel", axis, ndim=4) for axis in range(4))
    scanned = "Transformer/encoderblock/LayerNorm_0/scale" in source.tensors
    block = "Transformer/encoderblock" if scanned else BLOCK.format(0)
    numbered = f"{block}/MlpBlock_3/Dense_0/kernel" in source.tensors
    query = f"{block}/MultiHeadDotProductAttention_{1 if numbered else 0}/query/kernel"
    hidden = f"{block}/MlpBlock_{3 if numbered else 0}/Dense_0/kernel"
    lead = int(scanned)  # the axis of layers in front
    heads, head_dim = (source.size(query, axis, ndim=3 + lead) for axis in (-2, -1))
    class_token = "cls" in source.tensors
    fields: dict[str, object] = {
        "width": width,
        "channels": channels,
        "patch_size": (p, q),
        "heads": heads,
        "head_dim": None if heads * head_dim == width else head_dim,
        "depth": source.size(f"{block}/LayerNorm_0/scale", 0, ndim=2)
        if scanned
        else source.count(f"{BLOCK}/LayerNorm_0/scale"),
        "mlp_dim": source.size(hidden, -1, ndim=2 + lead),
        "mlp": "gelu_tanh",
        "representation_size": source.size_if_there("pre_logits/kernel", 1, ndim=2),
        "num_classes": source.size_if_there("head/kernel", 1, ndim=2),
        "class_token": class_token,
        "pooling": "class" if class_token else "attention" if "MAPHead_0/probe" in source.tensors else "mean",
    }
    stride = 1
    if "conv_root/kernel" in source.tensors:
        channels, width_factor, layers = resnet_shape(source, HYBRID)
        stride = 4 * 2 ** max(len(layers) - 1, 0)
        fields |= {"channels": channels, "patch_size": (p * stride, q * stride)}
        fields["stem"] = {"kind": "resnet", "width_factor": width_factor, "layers": layers}
    table = POSITIONS if POSITIONS in source.tensors else "pos_embedding"
    if (positions := source.size_if_there(table, 1, ndim=3)) is None:
        fields |= {"image_size": asked_image_size(source), "position": {"kind": "sincos-2d"}}
    else:
        patches = positions - int(class_token and table == POSITIONS)
        fields["image_size"] = image_size_of(source, (p * stride, q * stride), patches, stride=stride)
    config = configured(ViTConfig, source, fields)
    positioned = POSITIONS in source.tensors
    rows = vit_rows(config, numbered=numbered, positioned=positioned, scanned=scanned)
    return reading_as("vit_jax", source, config, rows, resize="squash", interpolation="bilinear")


def norm_rows(ours: str, theirs: str) -> list[WeightRow]:
    return [same(f"{ours}.weight", f"{theirs}/scale"), same(f"{ours}.bias", f"{theirs}/bias")]


def projected_rows(ours: str, theirs: Sequence[str], heads: int) -> list[WeightRow]:
    """Return several projections into heads, (D, heads, head_dim) each, as one matrix of ours."""

    def read(*parts: Tensor) -> tuple[Tensor, ...]:
        return (torch.cat([part.flatten(-2).movedim(-1, 0) for part in parts]),)

    def write(matrix: Tensor) -> tuple[Tensor, ...]:
        return tuple(
            part.movedim(0, -1).reshape(*part.shape[1:], heads, -1) for part in matrix.chunk(len(theirs))
        )

    rows: list[WeightRow] = []
    for mine, kind in (("weight", "kernel"), ("bias", "bias")):
        rows.append(WeightRow((f"{ours}.{mine}",), tuple(f"{name}/{kind}" for name in theirs), read, write))
    return rows


def attention_out_rows(ours: str, theirs: str, heads: int) -> list[WeightRow]:
    """Return the projection out of the heads: (heads, head_dim, D)."""
    kernel = converted(
        f"{ours}.weight",
        f"{theirs}/kernel",
        lambda t: t.flatten(0, 1).T,
        lambda t: t.T.reshape(heads, -1, t.shape[0]),
    )
    return [kernel, same(f"{ours}.bias", f"{theirs}/bias")]


def mlp_rows(ours: str, theirs: str) -> list[WeightRow]:
    return [
        *linear_rows(f"{ours}.expand", f"{theirs}/Dense_0"),
        *linear_rows(f"{ours}.contract", f"{theirs}/Dense_1"),
    ]


def vit_rows(
    config: ViTConfig, *, numbered: bool, positioned: bool, scanned: bool = False
) -> list[WeightRow]:
    """Return the whole table of a ViT or a hybrid.

    Args:
        numbered: a block's parts are numbered through, as flax did before its module `linen`.
        positioned: the class token has a position.
        scanned: each array holds all layers.
    """
    position = POSITIONS if positioned else "pos_embedding"
    attention, norm, mlp = (1, 2, 3) if numbered else (0, 1, 0)
    layer = "Transformer/encoderblock" if scanned else BLOCK
    inner = f"{layer}/MultiHeadDotProductAttention_{attention}"
    pool = "MAPHead_0/MultiHeadDotProductAttention_0"
    return [
        *resnet_rows("stem.backbone", HYBRID),
        convolution_row("stem.projection", "embedding"),
        same("stem.projection.bias", "embedding/bias"),
        tokens_and_positions(
            config, {"class_token": "cls"}, position, positioned=POSITIONED if positioned else ()
        ),
        *norm_rows("blocks.{}.attention_norm", f"{layer}/LayerNorm_0"),
        *projected_rows(
            "blocks.{}.attention.qkv", [f"{inner}/{each}" for each in ("query", "key", "value")], config.heads
        ),
        *attention_out_rows("blocks.{}.attention.out", f"{inner}/out", config.heads),
        *norm_rows("blocks.{}.mlp_norm", f"{layer}/LayerNorm_{norm}"),
        *mlp_rows("blocks.{}.mlp", f"{layer}/MlpBlock_{mlp}"),
        *norm_rows("norm", "Transformer/encoder_norm"),
        same("pool.probe", "MAPHead_0/probe"),
        *projected_rows("pool.attention.query", [f"{pool}/query"], config.heads),
        *projected_rows("pool.attention.key_value", [f"{pool}/key", f"{pool}/value"], config.heads),
        *attention_out_rows("pool.attention.out", f"{pool}/out", config.heads),
        *norm_rows("pool.norm", "MAPHead_0/LayerNorm_0"),
        *mlp_rows("pool.mlp", "MAPHead_0/MlpBlock_0"),
        *linear_rows("representation.linear", "pre_logits"),
        *linear_rows("head", "head"),
    ]


def write_google(model: Model, path: Path) -> None:
    """Write one .npz, of vit_jax's layout where it has the part, of big_vision's for attention pooling and
    BiT."""
    if isinstance(model, BiT):
        check_limits(model.config, BIT_LIMITS, "google")
        tensors = write_weight_rows(bit_rows(POST_ACTIVATION), stored_weights(model))
    else:
        config, weights = held_by_format(model, "google", LIMITS)
        if config.class_token != (config.pooling.kind == "class"):
            raise InputError("google cannot hold a class token that is not pooled")
        published = config.pooling.kind != "attention"
        rows = vit_rows(config, numbered=published, positioned=published)
        tensors = write_weight_rows(rows, weights)
    write_npz(tensors, path)


GOOGLE = Format(
    name="google",
    about="google-research/vision_transformer and big_vision: .npz files, with hybrids and two-tower models",
    families=("ViT", "Hybrid ViT"),
    keys=(rf"({'|'.join(PREFIXES)})(embedding|conv_root)/kernel",),
    read=read_google,
    write=write_google,
    limits=lambda model: BIT_LIMITS if isinstance(model, BiT) else LIMITS,
    interpolation="google",
    suffixes=(".npz",),
    unsaid=("image_size",),
    typical={"mlp": "gelu_tanh"},
)
