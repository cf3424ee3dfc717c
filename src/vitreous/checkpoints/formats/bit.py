"""BiT's .npz as published (arXiv 1912.11370): the names of the TensorFlow code that made the files,
and those of big_vision's `bit_paper`, which are the same arrays under other names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import torch

from vitreous.checkpoints.canonicalize import check_limits
from vitreous.checkpoints.format import (
    AFTERWARDS,
    Format,
    Limits,
    Overrides,
    Reading,
    Source,
    assumed_preprocessing,
)
from vitreous.checkpoints.formats.google_table import convolution, linear
from vitreous.checkpoints.numpy_files import write_npz
from vitreous.checkpoints.weights import Row, converted, same, stored, write_rows
from vitreous.errors import InputError
from vitreous.models.bit import BiT, BiTConfig
from vitreous.models.names import Model, build

LIMITS: Limits = {
    "order": ("pre-activation",),
    "norm_eps": (1e-5,),
    "standardization": ("variance",),
    "standardization_eps": (1e-10,),
}


class Names(NamedTuple):
    """How one of the two codes names the parts. `unit` takes the number of the stage and of the unit."""

    root: str
    unit: str
    convolutions: tuple[str, str, str]
    norms: tuple[str, str, str]
    shortcut: str
    last_norm: str
    scale_and_bias: tuple[str, str]
    norm_shape: tuple[int, ...]
    head: str
    head_as_convolution: bool


TENSORFLOW = Names(
    root="resnet/root_block/standardized_conv2d",
    unit="resnet/block{}/unit{:02d}/",
    convolutions=("a/standardized_conv2d", "b/standardized_conv2d", "c/standardized_conv2d"),
    norms=("a/group_norm", "b/group_norm", "c/group_norm"),
    shortcut="a/proj/standardized_conv2d",
    last_norm="resnet/group_norm",
    scale_and_bias=("gamma", "beta"),
    norm_shape=(-1,),
    head="resnet/head/conv2d",
    head_as_convolution=True,
)
BIG_VISION = Names(
    root="root_block/conv_root",
    unit="block{}/unit{:02d}/",
    convolutions=("conv1", "conv2", "conv3"),
    norms=("gn1", "gn2", "gn3"),
    shortcut="conv_proj",
    last_norm="norm-pre-head",
    scale_and_bias=("scale", "bias"),
    norm_shape=(1, 1, 1, -1),
    head="head",
    head_as_convolution=False,
)


def names_of(source: Source) -> Names | None:
    """Whose names the file has. TensorFlow numbered some convolutions of some files: that is undone."""
    return next((n for n in (TENSORFLOW, BIG_VISION) if plainly(source, f"{n.root}/kernel")), None)


def plainly(source: Source, name: str) -> bool:
    return any(unnumbered(each) == name for each in source.tensors)


def unnumbered(name: str) -> str:
    return re.sub(r"/standardized_conv2d_\d+/", "/standardized_conv2d/", name)


def read_bit(source: Source, overrides: Overrides) -> Reading:
    names = names_of(source)
    if names is None:
        raise InputError(
            f"{source.where} is not a BiT: it has neither {TENSORFLOW.root} nor {BIG_VISION.root}"
        )
    source = source.with_tensors(unnumbered)
    root, head = f"{names.root}/kernel", f"{names.head}/kernel"
    fields = {
        "channels": source.size(root, 2, ndim=4),
        "width_factor": source.size(root, 3, ndim=4) / 64,
        "layers": units_of(source, names),
        "num_classes": None,
    }
    if head in source.tensors:
        last = (3, 4) if names.head_as_convolution else (1, 2)
        fields["num_classes"] = source.size(head, last[0], ndim=last[1])
    config: BiTConfig = build(BiTConfig, fields, {k: v for k, v in overrides.items() if k not in AFTERWARDS})
    preprocessing, assumed = assumed_preprocessing(config, "BiT", resize="squash", interpolation="bilinear")
    return Reading(source, config, bit_rows(config, names), preprocessing, assumed=assumed)


def units_of(source: Source, names: Names) -> tuple[int, ...]:
    """Units in each stage."""
    layers: list[int] = []
    first = names.unit + names.convolutions[0] + "/kernel"
    while first.format(len(layers) + 1, 1) in source.tensors:
        layers.append(source.count(lambda i: first.format(len(layers) + 1, i + 1)))
    return tuple(layers)


def bit_rows(config: BiTConfig, names: Names) -> list[Row]:
    """The whole table."""
    rows = [convolution("backbone.root", names.root), *group_norm("backbone.norm", names.last_norm, names)]
    for stage, units in enumerate(config.layers):
        for unit in range(units):
            ours, theirs = f"backbone.stages.{stage}.{unit}", names.unit.format(stage + 1, unit + 1)
            for part in range(3):
                rows.append(convolution(f"{ours}.conv{part + 1}", theirs + names.convolutions[part]))
                rows += group_norm(f"{ours}.norm{part + 1}", theirs + names.norms[part], names)
            if unit == 0:  # every stage begins with more channels, so with a projected shortcut
                rows.append(convolution(f"{ours}.shortcut", theirs + names.shortcut))
    if config.num_classes is None:
        return rows
    if names.head_as_convolution:
        head = converted(
            "head.weight", f"{names.head}/kernel", lambda t: t[0, 0].T, lambda t: t.T[None, None]
        )
        return [*rows, head, same("head.bias", f"{names.head}/bias")]
    return [*rows, *linear("head", names.head)]


def group_norm(ours: str, theirs: str, names: Names) -> list[Row]:
    pairs = zip(("weight", "bias"), names.scale_and_bias, strict=True)
    return [
        converted(f"{ours}.{mine}", f"{theirs}/{other}", torch.flatten, lambda t: t.reshape(names.norm_shape))
        for mine, other in pairs
    ]


def write_bit(model: Model, path: Path) -> None:
    """One .npz under TensorFlow's names, which every reader of BiT knows."""
    if not isinstance(model, BiT):
        raise InputError("bit holds a BiT: for a ViT take google")
    check_limits(model.config, LIMITS, "bit")
    write_npz(write_rows(bit_rows(model.config, TENSORFLOW), stored(model)), path)


BIT = Format(
    name="bit",
    about="Google's BiT: .npz of the TensorFlow code or of big_vision's bit_paper",
    keys=(r"(resnet/root_block/standardized_conv2d(_\d+)?|root_block/conv_root)/kernel",),
    read=read_bit,
    overridable=BiTConfig,
    write=write_bit,
    limits=LIMITS,
    interpolation="google",
    suffixes=(".npz",),
)
