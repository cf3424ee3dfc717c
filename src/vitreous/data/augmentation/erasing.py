"""Random erasing (arXiv 1708.04896)."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from vitreous.data.randomness import BatchChance

AREA = (0.02, 1 / 3)  # part of the image; torchvision's and timm's range
RATIO = (0.3, 1 / 0.3)  # height / width


def erase(
    images: Float[Tensor, "B C H W"], probability: float, chance: BatchChance
) -> Float[Tensor, "B C H W"]:
    """One rectangle of some images replaced by normal noise, pixel by pixel."""
    height, width = images.shape[2:]
    chosen = chance.uniform(0.0, 1.0) < probability
    area = chance.uniform(*AREA) * (height * width)
    ratio = chance.uniform(math.log(RATIO[0]), math.log(RATIO[1])).exp()
    tall = (area * ratio).sqrt().round().clamp(1, height)
    wide = (area / ratio).sqrt().round().clamp(1, width)
    top = (chance.uniform(0.0, 1.0) * (height - tall + 1)).floor()
    left = (chance.uniform(0.0, 1.0) * (width - wide + 1)).floor()
    rows = between(height, top, tall)
    columns = between(width, left, wide)
    inside = chosen[:, None, None] & rows[:, :, None] & columns[:, None, :]
    noise = chance.normal(*images.shape[1:])
    return torch.where(inside[:, None].to(images.device), noise.to(images), images)


def between(length: int, first: Tensor, count: Tensor) -> Tensor:
    """(B, length): which of `length` places lie in first ... first + count."""
    place = torch.arange(length)
    return (place >= first[:, None]) & (place < (first + count)[:, None])
