"""Google's .npz: vit_jax (google-research/vision_transformer) and big_vision, with hybrids, BiT, attention
pooling and the scanned layout. Kernels are (in, out), convolutions (row, column, in, out), q, k and v have an
axis of heads. vit_jax numbers a block's parts through and gives the class token a position; big_vision does
neither.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vitreous.checkpoints.canonicalize import check_limits, held
from vitreous.checkpoints.format import (
    AFTERWARDS,
    PLAIN_VIT,
    Format,
    Limits,
    Overrides,
    Reading,
    Source,
    asked_image_size,
    assumed_preprocessing,
    square_grid,
    vit_config,
)
from vitreous.checkpoints.formats.google_table import BLOCK, bit_rows, vit_rows
from vitreous.checkpoints.numpy_files import write_npz
from vitreous.checkpoints.weights import stored, write_rows
from vitreous.errors import InputError
from vitreous.models.bit import BiT, BiTConfig
from vitreous.models.config import ViTConfig
from vitreous.models.names import Model, build

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

# Where a model lies inside a training checkpoint, or among the towers of a two-tower one.
PREFIXES = ("", "params/", "params/img/", "img/", "opt/target/", "target/")


def prefix_of(source: Source) -> str | None:
    firsts = ("embedding/kernel", "conv_root/kernel")
    return next((p for p in PREFIXES if any(p + first in source.tensors for first in firsts)), None)


def read_google(source: Source, overrides: Overrides) -> Reading:
    prefix = prefix_of(source)
    if prefix is None:
        raise InputError(f"{source.where} is not one of Google's checkpoints: it has no embedding/kernel")
    source = source.below(prefix)
    if "embedding/kernel" not in source.tensors:
        return read_big_vision_bit(source, overrides)
    config, scanned, numbered = google_config(source, overrides)
    rows = vit_rows(config, numbered=numbered, scanned=scanned)
    preprocessing, assumed = assumed_preprocessing(
        config, "vit_jax", resize="squash", interpolation="bilinear"
    )
    return Reading(source, config, rows, preprocessing, assumed=assumed)


def read_big_vision_bit(source: Source, overrides: Overrides) -> Reading:
    """big_vision's BiT: a ResNet and a linear head."""
    fields = resnet_fields(source) | {"image_size": (224, 224)}
    fields["num_classes"] = source.size("head/kernel", 1, ndim=2) if "head/kernel" in source.tensors else None
    fields |= {"order": "post-activation", "norm_eps": 1e-6}
    fields |= {"standardization": "std", "standardization_eps": 1e-5}
    config: BiTConfig = build(BiTConfig, fields, {k: v for k, v in overrides.items() if k not in AFTERWARDS})
    preprocessing, assumed = assumed_preprocessing(config, "BiT", resize="squash", interpolation="bilinear")
    size = () if "image_size" in overrides else ("images of 224x224 (any size works)",)
    return Reading(source, config, bit_rows(config), preprocessing, assumed=(*assumed, *size))


def google_config(source: Source, overrides: Overrides) -> tuple[ViTConfig, bool, bool]:
    """The configuration, whether all layers are in one array, and whether parts are numbered through."""
    p, q, channels, width = (source.size("embedding/kernel", axis, ndim=4) for axis in range(4))
    scanned = "Transformer/encoderblock/LayerNorm_0/scale" in source.tensors
    block = "Transformer/encoderblock" if scanned else BLOCK.format(0)
    numbered = f"{block}/MlpBlock_3/Dense_0/kernel" in source.tensors
    attention, mlp = (
        ("MultiHeadDotProductAttention_1", "MlpBlock_3")
        if numbered
        else ("MultiHeadDotProductAttention_0", "MlpBlock_0")
    )
    lead = int(scanned)  # the axis of layers in front
    heads, head_dim = (
        source.size(f"{block}/{attention}/query/kernel", axis + lead, ndim=3 + lead) for axis in (1, 2)
    )
    fields: dict[str, Any] = {
        "width": width,
        "channels": channels,
        "patch_size": (p, q),
        "heads": heads,
        "head_dim": None if heads * head_dim == width else head_dim,
        "depth": source.size(f"{block}/LayerNorm_0/scale", 0, ndim=2)
        if scanned
        else source.count(lambda i: f"{BLOCK.format(i)}/LayerNorm_0/scale"),
        "mlp_dim": source.size(f"{block}/{mlp}/Dense_0/kernel", 1 + lead, ndim=2 + lead),
        "mlp": "gelu_tanh",
        "num_classes": source.size("head/kernel", 1, ndim=2) if "head/kernel" in source.tensors else None,
        "class_token": "cls" in source.tensors,
    }
    if "pre_logits/kernel" in source.tensors:
        fields["representation_size"] = source.size("pre_logits/kernel", 1, ndim=2)
    fields["pooling"] = (
        "class" if fields["class_token"] else "attention" if "MAPHead_0/probe" in source.tensors else "mean"
    )
    if "conv_root/kernel" in source.tensors:
        resnet = resnet_fields(source)
        stride = 4 * 2 ** max(len(resnet["layers"]) - 1, 0)
        fields |= {"channels": resnet.pop("channels"), "patch_size": (p * stride, q * stride)}
        fields["stem"] = {"kind": "resnet", **resnet}
    fields |= positions(source, overrides, fields["patch_size"], with_class=fields["class_token"])
    return vit_config(fields, overrides), scanned, numbered


def positions(
    source: Source, overrides: Overrides, patch: tuple[int, int], *, with_class: bool
) -> dict[str, Any]:
    """Kind of positions and image size."""
    for name, has_class_row in (
        ("Transformer/posembed_input/pos_embedding", with_class),
        ("pos_embedding", False),
    ):
        if name in source.tensors:
            patches = source.size(name, 1, ndim=3) - int(has_class_row)
            return {"image_size": square_grid(source, patches, overrides, patch)}
    return {"image_size": asked_image_size(source, overrides), "position": {"kind": "sincos-2d"}}


def resnet_fields(source: Source) -> dict[str, Any]:
    """Channels, units in each stage and width of the ResNet."""
    layers: list[int] = []
    while f"block{len(layers) + 1}/unit1/conv1/kernel" in source.tensors:
        layers.append(source.count(lambda i: f"block{len(layers) + 1}/unit{i + 1}/conv1/kernel"))
    root = source.size("conv_root/kernel", 3, ndim=4)
    return {
        "channels": source.size("conv_root/kernel", 2, ndim=4),
        "layers": tuple(layers),
        "width_factor": root / 64,
    }


def google_limits(model: Model) -> Limits:
    return BIT_LIMITS if isinstance(model, BiT) else LIMITS


def write_google(model: Model, path: Path) -> None:
    """One .npz, of vit_jax's layout where it has the part, of big_vision's for attention pooling and BiT."""
    if isinstance(model, BiT):
        check_limits(model.config, BIT_LIMITS, "google")
        tensors = write_rows(bit_rows(model.config), stored(model))
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
