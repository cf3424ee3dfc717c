"""timm's hybrids: a ResNetV2 before the patches."""

from __future__ import annotations

from typing import Any

from vitreous.checkpoints.files import Source
from vitreous.checkpoints.weights import Row, pairs

# The ResNetV2 of a hybrid.
RESNET_NAMES = {name: name for name in ("conv1", "conv2", "conv3", "norm1", "norm2", "norm3")} | {
    "shortcut.0": "downsample.conv",
    "shortcut.1": "downsample.norm",
}
# The root of a hybrid's ResNet; a ResNet that is its root alone has no `stem` in the name.
ROOTS = ("patch_embed.backbone.stem", "patch_embed.backbone")


def root_of(layers: tuple[int, ...]) -> str:
    return ROOTS[0] if layers else ROOTS[1]


def hybrid_rows(layers: tuple[int, ...]) -> list[Row]:
    """The table of a ResNet with so many units in each stage."""
    root, units = root_of(layers), "patch_embed.backbone.stages.{}.blocks.{}."
    return [
        *pairs({"root": f"{root}.conv", "root_norm": f"{root}.norm"}, "stem.backbone."),
        *pairs(RESNET_NAMES, "stem.backbone.stages.{}.{}.", units),
    ]


def resnet_stem(source: Source) -> dict[str, Any]:
    """The ResNetV2 of a hybrid."""
    stages = "patch_embed.backbone.stages.{}.blocks.{}.conv3.weight"
    layers = source.units(stages, first=0)
    root = source.size(f"{root_of(layers)}.conv.weight", 0, ndim=4)
    return {
        "kind": "resnet",
        "layers": layers,
        "widths": tuple(source.size(stages.format(i, 0), 0, ndim=4) for i in range(len(layers))),
        "width_factor": root / 64,
        "standardization": "variance",
        "standardization_eps": 1e-8,
        "norm_eps": 1e-5,
    }
