"""Google's ResNets in .npz: BiT as published (arXiv 1912.11370), with the names of the TensorFlow code that
made the files or those of big_vision's `bit_paper`, which are the same arrays; big_vision's own BiT; and the
ResNet of a hybrid. Kernels are (row, column, in, out)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from vitreous.checkpoints.canonicalize import FormatLimits, check_limits
from vitreous.checkpoints.format import Format, Spec, configured, reading_as
from vitreous.checkpoints.source import Source
from vitreous.checkpoints.tensors import write_npz
from vitreous.checkpoints.weights import WeightRow, converted, same, stored_weights, write_weight_rows
from vitreous.errors import InputError
from vitreous.models.bit import BiT, BiTConfig
from vitreous.models.model import Model

LIMITS: FormatLimits = {
    "order": ("pre-activation",),
    "norm_eps": (1e-5,),
    "standardization": ("variance",),
    "standardization_eps": (1e-10,),
}


class ResNetNames(NamedTuple):
    """How one code names the parts; `{}` are the numbers of stage and unit, from 1 in theirs."""

    convolutions: dict[str, str]
    norms: dict[str, str]
    scale_and_bias: tuple[str, str] = ("scale", "bias")
    norm_shape: tuple[int, ...] = (1, 1, 1, -1)
    head: str = "head"
    head_as_convolution: bool = False

    @property
    def root(self) -> str:
        return f"{self.convolutions['root']}/kernel"


def in_units(theirs: str, names: Mapping[str, str]) -> dict[str, str]:
    """Return names of the parts of a unit, below the prefix that theirs have."""
    return {f"stages.{{}}.{{}}.{ours}": theirs + name for ours, name in names.items()}


CONVOLUTIONS = {"conv1": "conv1", "conv2": "conv2", "conv3": "conv3"}
NORMS = {"norm1": "gn1", "norm2": "gn2", "norm3": "gn3"}
TF_UNIT, TF_CONVOLUTION = "resnet/block{}/unit{:02d}/", "standardized_conv2d"
TF_PARTS = {"conv1": "a", "conv2": "b", "conv3": "c", "shortcut": "a/proj"}
TENSORFLOW = ResNetNames(
    convolutions={
        "root": f"resnet/root_block/{TF_CONVOLUTION}",
        **in_units(TF_UNIT, {ours: f"{part}/{TF_CONVOLUTION}" for ours, part in TF_PARTS.items()}),
    },
    norms={
        "norm": "resnet/group_norm",
        **in_units(TF_UNIT, {"norm1": "a/group_norm", "norm2": "b/group_norm", "norm3": "c/group_norm"}),
    },
    scale_and_bias=("gamma", "beta"),
    norm_shape=(-1,),
    head="resnet/head/conv2d",
    head_as_convolution=True,
)
BIG_VISION = ResNetNames(
    convolutions={
        "root": "root_block/conv_root",
        **in_units("block{}/unit{:02d}/", CONVOLUTIONS | {"shortcut": "conv_proj"}),
    },
    norms={"norm": "norm-pre-head", **in_units("block{}/unit{:02d}/", NORMS)},
)
# The ResNet of a hybrid; and with a head, big_vision's post-activation BiT.
HYBRID = ResNetNames(
    convolutions={
        "root": "conv_root",
        **in_units("block{}/unit{}/", CONVOLUTIONS | {"shortcut.0": "conv_proj"}),
    },
    norms={"root_norm": "gn_root", **in_units("block{}/unit{}/", NORMS | {"shortcut.1": "gn_proj"})},
)
POST_ACTIVATION = HYBRID._replace(norm_shape=(-1,))


def linear_rows(ours: str, theirs: str) -> list[WeightRow]:
    """Return a matrix (in, out) and its bias."""
    kernel = converted(f"{ours}.weight", f"{theirs}/kernel", lambda t: t.T, lambda t: t.T)
    return [kernel, same(f"{ours}.bias", f"{theirs}/bias")]


def convolution_row(ours: str, theirs: str) -> WeightRow:
    return converted(
        f"{ours}.weight", f"{theirs}/kernel", lambda t: t.permute(3, 2, 0, 1), lambda t: t.permute(2, 3, 1, 0)
    )


def resnet_rows(ours: str, names: ResNetNames) -> list[WeightRow]:

    def shaped(values: Tensor) -> Tensor:
        return values.reshape(names.norm_shape)

    rows = [convolution_row(f"{ours}.{mine}", theirs) for mine, theirs in names.convolutions.items()]
    for mine, theirs in names.norms.items():
        for kind, other in zip(("weight", "bias"), names.scale_and_bias, strict=True):
            rows.append(converted(f"{ours}.{mine}.{kind}", f"{theirs}/{other}", torch.flatten, shaped))
    return [row._replace(first=1) for row in rows]


def bit_rows(names: ResNetNames) -> list[WeightRow]:
    rows = resnet_rows("backbone", names)
    if not names.head_as_convolution:
        return rows + linear_rows("head", names.head)
    return [
        *rows,
        converted("head.weight", f"{names.head}/kernel", lambda t: t[0, 0].T, lambda t: t.T[None, None]),
        same("head.bias", f"{names.head}/bias"),
    ]


def resnet_shape(source: Source, names: ResNetNames) -> tuple[int, float, tuple[int, ...]]:
    """Return the channels of the ResNet's images, its width factor, and the units in each stage."""
    channels, width = (source.size(names.root, axis, ndim=4) for axis in (2, 3))
    layers = source.units(names.convolutions["stages.{}.{}.conv1"] + "/kernel", first=1)
    return channels, width / 64, layers


def read_bit(source: Source) -> Spec:
    # TensorFlow numbered some convolutions of some files
    source = source.under({rf"/{TF_CONVOLUTION}_\d+/": f"/{TF_CONVOLUTION}/"})
    source.prefix("a BiT", ("",), TENSORFLOW.root, BIG_VISION.root)
    names = TENSORFLOW if TENSORFLOW.root in source.tensors else BIG_VISION
    return read_resnet(source, names)


def read_resnet(source: Source, names: ResNetNames, **fields: object) -> Spec:
    """Return a ResNet and a linear head, under the names of one of the codes."""
    ndim = 4 if names.head_as_convolution else 2
    channels, width_factor, layers = resnet_shape(source, names)
    fields |= {"channels": channels, "width_factor": width_factor, "layers": layers}
    fields["num_classes"] = source.size_if_there(f"{names.head}/kernel", -1, ndim=ndim)
    config = configured(BiTConfig, source, fields)
    return reading_as("BiT", source, config, bit_rows(names), resize="squash", interpolation="bilinear")


def write_bit(model: Model, path: Path) -> None:
    """Write one .npz under TensorFlow's names, which every reader of BiT knows."""
    if not isinstance(model, BiT):
        raise InputError("bit cannot hold a ViT, only a BiT: use google")
    check_limits(model.config, LIMITS, "bit")
    write_npz(write_weight_rows(bit_rows(TENSORFLOW), stored_weights(model)), path)


BIT = Format(
    name="bit",
    about="Google's BiT: .npz files of the TensorFlow code or of big_vision's bit_paper",
    families=("BiT",),
    keys=(r"(resnet/root_block/standardized_conv2d(_\d+)?|root_block/conv_root)/kernel",),
    read=read_bit,
    overridable=BiTConfig,
    write=write_bit,
    limits=LIMITS,
    interpolation="google",
    suffixes=(".npz",),
    typical={"layers": (1,), "width_factor": 0.5},
)
