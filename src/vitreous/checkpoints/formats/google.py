"""Google's .npz: vit_jax (google-research/vision_transformer) and big_vision, with hybrids, BiT, attention
pooling and the scanned layout. Kernels are (in, out), convolutions (row, column, in, out), q, k and v have an
axis of heads. vit_jax numbers a block's parts through and gives the class token a position; big_vision does
neither.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from vitreous.checkpoints.canonicalize import check_limits, held
from vitreous.checkpoints.files import Source
from vitreous.checkpoints.format import (
    PLAIN_VIT,
    POSITIONED,
    Format,
    Limits,
    Overrides,
    Reading,
    asked_image_size,
    configured,
    reading_as,
    square_grid,
    tokens_and_positions,
)
from vitreous.checkpoints.formats.bit import (
    HYBRID,
    POST_ACTIVATION,
    bit_rows,
    convolution_row,
    linear_rows,
    read_resnet,
    resnet_fields,
    resnet_rows,
)
from vitreous.checkpoints.numpy_files import write_npz
from vitreous.checkpoints.weights import Row, converted, same, stored, write_rows
from vitreous.errors import InputError
from vitreous.models.bit import BiT
from vitreous.models.config import ViTConfig
from vitreous.models.names import Model

LIMITS = PLAIN_VIT | {
    "mlp": ("gelu_tanh",),
    "stem.kind": ("patch", "resnet"),
    "stem.standardization": ("std",),
    "stem.standardization_eps": (1e-5,),
    "stem.norm_eps": (1e-6,),
    "stem.widths": (None,),
    "class_token": None,
    "pooling": ("class", "mean", "attention"),
    "head_dim": None,
    "representation_size": None,
}
BIT_LIMITS: Limits = {
    "order": ("post-activation",),
    "norm_eps": (1e-6,),
    "standardization": ("std",),
    "standardization_eps": (1e-5,),
}

BLOCK = "Transformer/encoderblock_{}"
POSITIONS = "Transformer/posembed_input/pos_embedding"  # of vit_jax, with a row for the class token
# Where a model is inside a training checkpoint, or among the towers of a two-tower one.
PREFIXES = ("", "params/", "params/img/", "img/", "opt/target/", "target/")


def read_google(source: Source, overrides: Overrides) -> Reading:
    source = source.below(
        source.prefix("one of Google's checkpoints", PREFIXES, "embedding/kernel", HYBRID.root)
    )
    if "embedding/kernel" not in source.tensors:
        return read_big_vision_bit(source, overrides)
    config, scanned, numbered = google_config(source, overrides)
    rows = vit_rows(config, numbered=numbered, scanned=scanned)
    return reading_as("vit_jax", source, config, rows, resize="squash", interpolation="bilinear")


def read_big_vision_bit(source: Source, overrides: Overrides) -> Reading:
    fields = {name: next(iter(allowed)) for name, allowed in BIT_LIMITS.items() if allowed}
    reading = read_resnet(source, overrides, POST_ACTIVATION, image_size=(224, 224), **fields)
    size = () if "image_size" in overrides else ("images of 224x224 (any size works)",)
    return reading._replace(assumed=(*reading.assumed, *size))


def google_config(source: Source, overrides: Overrides) -> tuple[ViTConfig, bool, bool]:
    """The configuration, whether all layers are in one array, and whether parts are numbered through."""
    p, q, channels, width = (source.size("embedding/kernel", axis, ndim=4) for axis in range(4))
    scanned = "Transformer/encoderblock/LayerNorm_0/scale" in source.tensors
    block = "Transformer/encoderblock" if scanned else BLOCK.format(0)
    numbered = f"{block}/MlpBlock_3/Dense_0/kernel" in source.tensors
    query = f"{block}/MultiHeadDotProductAttention_{1 if numbered else 0}/query/kernel"
    hidden = f"{block}/MlpBlock_{3 if numbered else 0}/Dense_0/kernel"
    lead = int(scanned)  # the axis of layers in front
    heads, head_dim = (source.size(query, axis, ndim=3 + lead) for axis in (-2, -1))
    class_token = "cls" in source.tensors
    fields: dict[str, Any] = {
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
    if "conv_root/kernel" in source.tensors:
        resnet = resnet_fields(source, HYBRID)
        stride = 4 * 2 ** max(len(resnet["layers"]) - 1, 0)
        fields |= {"channels": resnet.pop("channels"), "patch_size": (p * stride, q * stride)}
        fields["stem"] = {"kind": "resnet", **resnet}
    table = POSITIONS if POSITIONS in source.tensors else "pos_embedding"
    if (rows := source.size_if_there(table, 1, ndim=3)) is None:
        fields |= {"image_size": asked_image_size(source, overrides), "position": {"kind": "sincos-2d"}}
    else:
        patches = rows - int(class_token and table == POSITIONS)
        fields["image_size"] = square_grid(source, patches, overrides, fields["patch_size"])
    return configured(ViTConfig, fields, overrides), scanned, numbered


def norm_rows(ours: str, theirs: str) -> list[Row]:
    return [same(f"{ours}.weight", f"{theirs}/scale"), same(f"{ours}.bias", f"{theirs}/bias")]


def projected_rows(ours: str, theirs: tuple[str, ...], heads: int) -> list[Row]:
    """Several projections into heads, (D, heads, head_dim) each, as one matrix of ours."""
    kernels, biases = (tuple(f"{name}/{kind}" for name in theirs) for kind in ("kernel", "bias"))
    return [
        Row(
            (f"{ours}.weight",),
            kernels,
            lambda *each: (torch.cat([kernel.flatten(1).T for kernel in each]),),
            lambda w: tuple(part.T.unflatten(1, (heads, -1)) for part in w.chunk(len(theirs))),
        ),
        Row(
            (f"{ours}.bias",),
            biases,
            lambda *each: (torch.cat([bias.flatten() for bias in each]),),
            lambda b: tuple(part.unflatten(0, (heads, -1)) for part in b.chunk(len(theirs))),
        ),
    ]


def attention_out_rows(ours: str, theirs: str, heads: int) -> list[Row]:
    """The projection out of the heads: (heads, head_dim, D)."""
    kernel = converted(
        f"{ours}.weight",
        f"{theirs}/kernel",
        lambda t: t.flatten(0, 1).T,
        lambda t: t.T.reshape(heads, -1, t.shape[0]),
    )
    return [kernel, same(f"{ours}.bias", f"{theirs}/bias")]


def mlp_rows(ours: str, theirs: str) -> list[Row]:
    return [
        *linear_rows(f"{ours}.expand", f"{theirs}/Dense_0"),
        *linear_rows(f"{ours}.contract", f"{theirs}/Dense_1"),
    ]


def encoder_rows(theirs: str, heads: int, *, numbered: bool) -> list[Row]:
    """The layers. vit_jax: LayerNorm_0, Attention_1, LayerNorm_2, Mlp_3; big_vision counts each kind."""
    attention, second, last = (1, 2, 3) if numbered else (0, 1, 0)
    theirs_attention = f"{theirs}/MultiHeadDotProductAttention_{attention}"
    qkv = (f"{theirs_attention}/query", f"{theirs_attention}/key", f"{theirs_attention}/value")
    return [
        *norm_rows("blocks.{}.attention_norm", f"{theirs}/LayerNorm_0"),
        *projected_rows("blocks.{}.attention.qkv", qkv, heads),
        *attention_out_rows("blocks.{}.attention.out", f"{theirs_attention}/out", heads),
        *norm_rows("blocks.{}.mlp_norm", f"{theirs}/LayerNorm_{second}"),
        *mlp_rows("blocks.{}.mlp", f"{theirs}/MlpBlock_{last}"),
    ]


def vit_rows(config: ViTConfig, *, numbered: bool, scanned: bool = False) -> list[Row]:
    """The whole table of a ViT or a hybrid.

    Args:
        numbered: a block's parts are numbered through, and the class token has a position.
        scanned: each array holds all layers.
    """
    position = POSITIONS if numbered else "pos_embedding"
    return [
        *resnet_rows("stem.backbone", HYBRID),
        convolution_row("stem.projection", "embedding"),
        same("stem.projection.bias", "embedding/bias"),
        tokens_and_positions(
            config, {"class_token": "cls"}, position, positioned=POSITIONED if numbered else ()
        ),
        *encoder_rows("Transformer/encoderblock" if scanned else BLOCK, config.heads, numbered=numbered),
        *norm_rows("norm", "Transformer/encoder_norm"),
        *map_rows(config),
        *linear_rows("representation.linear", "pre_logits"),
        *linear_rows("head", "head"),
    ]


def map_rows(config: ViTConfig) -> list[Row]:
    """Multi-head attention pooling."""
    attention = "MAPHead_0/MultiHeadDotProductAttention_0"
    return [
        same("pool.probe", "MAPHead_0/probe"),
        *projected_rows("pool.attention.query", (f"{attention}/query",), config.heads),
        *projected_rows("pool.attention.key_value", (f"{attention}/key", f"{attention}/value"), config.heads),
        *attention_out_rows("pool.attention.out", f"{attention}/out", config.heads),
        *norm_rows("pool.norm", "MAPHead_0/LayerNorm_0"),
        *mlp_rows("pool.mlp", "MAPHead_0/MlpBlock_0"),
    ]


def google_limits(model: Model) -> Limits:
    return BIT_LIMITS if isinstance(model, BiT) else LIMITS


def write_google(model: Model, path: Path) -> None:
    """One .npz, of vit_jax's layout where it has the part, of big_vision's for attention pooling and BiT."""
    if isinstance(model, BiT):
        check_limits(model.config, BIT_LIMITS, "google")
        tensors = write_rows(bit_rows(POST_ACTIVATION), stored(model))
    else:
        config, weights = held(model, "google", LIMITS)
        if config.class_token != (config.pooling == "class"):
            raise InputError("google cannot hold a class token that is not what is pooled")
        tensors = write_rows(vit_rows(config, numbered=config.pooling != "attention"), weights)
    write_npz(tensors, path)


GOOGLE = Format(
    name="google",
    about="google-research/vision_transformer and big_vision: .npz, hybrids and two-tower files too",
    keys=(rf"({'|'.join(PREFIXES)})(embedding|conv_root)/kernel",),
    read=read_google,
    write=write_google,
    limits=google_limits,
    interpolation="google",
    suffixes=(".npz",),
    unsaid=("image_size",),
)
