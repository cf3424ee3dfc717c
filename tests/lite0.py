"""EfficientNet-Lite0 with weights that a seed draws, by the names of ML Illustrated's files and of timm."""

from __future__ import annotations

import re
from functools import cache

import numpy as np
import torch
from torch import Tensor

from vitreous.models.config_parts import EfficientNetLiteStemConfig

STEM = EfficientNetLiteStemConfig(blocks=16, maps="several", projection=False)


def convolutions() -> list[tuple[str, str, tuple[int, int, int, int]]]:
    """Return the name of each convolution, that of the BatchNorm after it, and the shape of its kernel."""
    found = [("_conv_stem", "_bn0", (32, 3, 3, 3))]
    inputs = 32
    for number, (kernel, _, expansion, outputs) in enumerate(STEM.shapes):
        block, hidden = f"_blocks.{number}", inputs * expansion
        if expansion > 1:
            found.append((f"{block}._expand_conv", f"{block}._bn0", (hidden, inputs, 1, 1)))
        found.append((f"{block}._depthwise_conv", f"{block}._bn1", (hidden, 1, kernel, kernel)))
        found.append((f"{block}._project_conv", f"{block}._bn2", (outputs, hidden, 1, 1)))
        inputs = outputs
    return [*found, ("_conv_head", "_bn1", (1280, inputs, 1, 1))]


@cache
def drawn_weights(seed: int = 0) -> dict[str, Tensor]:
    """Return a state dict with numbers of a size such that maps neither vanish nor grow."""
    rng = np.random.RandomState(seed)  # whose stream is the same in every version
    weights: dict[str, np.ndarray] = {}
    for convolution, norm, shape in convolutions():
        fan_in = shape[1] * shape[2] * shape[3]
        weights[f"{convolution}.weight"] = rng.standard_normal(shape) * fan_in**-0.5
        weights[f"{norm}.weight"] = 1 + 0.1 * rng.standard_normal(shape[0])
        weights[f"{norm}.bias"] = 0.1 * rng.standard_normal(shape[0])
        weights[f"{norm}.running_mean"] = 0.1 * rng.standard_normal(shape[0])
        weights[f"{norm}.running_var"] = rng.uniform(0.5, 1.5, shape[0])
        weights[f"{norm}.num_batches_tracked"] = np.array(1.0)
    weights["_fc.weight"], weights["_fc.bias"] = np.zeros((1000, 1280)), np.zeros(1000)
    return {name: torch.from_numpy(np.asarray(value, np.float32)) for name, value in weights.items()}


def drawn_images(side: int, count: int = 2) -> Tensor:
    """Return prepared images (count, 3, side, side)."""
    numbers = np.random.RandomState(side).standard_normal((count, 3, side, side))
    return torch.from_numpy(numbers.astype(np.float32))


# The parts of a block with and without the first convolution, by timm's names.
NARROW = {"_depthwise_conv": "conv_dw", "_bn1": "bn1", "_project_conv": "conv_pw", "_bn2": "bn2"}
WIDE = {
    "_expand_conv": "conv_pw",
    "_bn0": "bn1",
    "_depthwise_conv": "conv_dw",
    "_bn1": "bn2",
    "_project_conv": "conv_pwl",
    "_bn2": "bn3",
}
OTHERS = {
    "_conv_stem": "conv_stem",
    "_bn0": "bn1",
    "_conv_head": "conv_head",
    "_bn1": "bn2",
    "_fc": "classifier",
}
REPEATS = (1, 2, 2, 3, 3, 4, 1)


def by_timm(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights by the names of timm's tf_efficientnet_lite0."""
    places = [(stage, unit) for stage, count in enumerate(REPEATS) for unit in range(count)]
    renamed: dict[str, Tensor] = {}
    for name, value in weights.items():
        if match := re.match(r"_blocks\.(\d+)\.(\w+)\.(.*)", name):
            stage, unit = places[int(match[1])]
            parts = NARROW if match[1] == "0" else WIDE
            renamed[f"blocks.{stage}.{unit}.{parts[match[2]]}.{match[3]}"] = value
        else:
            part, _, rest = name.partition(".")
            renamed[f"{OTHERS[part]}.{rest}"] = value
    return renamed
