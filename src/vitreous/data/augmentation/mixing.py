"""Mixup (arXiv 1710.09412), CutMix (arXiv 1905.04899): two images become one, and so do their targets."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from vitreous.data.config import AugmentationConfig
from vitreous.data.randomness import BatchChance


def mix(
    images: Float[Tensor, "B C H W"],
    targets: Float[Tensor, "B classes"],
    config: AugmentationConfig,
    chance: BatchChance,
) -> tuple[Float[Tensor, "B C H W"], Float[Tensor, "B classes"]]:
    """The batch with each image mixed with its neighbor: 0 with 1, 2 with 3 ... An odd last one stays.

    One weight is drawn for the batch, from Beta(alpha, alpha). Where both are asked for, each batch takes
    one, as likely as the other (timm's way). The order of an epoch is random, so neighbors are random pairs;
    and pairs stay together however the batch is divided among processes.
    """
    drawn = chance.numpy()
    if drawn.random() >= config.mix_probability:
        return images, targets
    partner = torch.arange(len(images)) ^ 1
    partner[-1] = min(int(partner[-1]), len(images) - 1)
    partner = partner.to(images.device)
    cut = config.cutmix > 0 and (config.mixup == 0 or drawn.random() < 0.5)
    alpha = config.cutmix if cut else config.mixup
    own = float(drawn.beta(alpha, alpha))
    if cut:
        height, width = images.shape[2:]
        side = (1 - own) ** 0.5
        row, column = drawn.integers(height), drawn.integers(width)
        top, bottom = span(int(row), side * height, height)
        left, right = span(int(column), side * width, width)
        mixed = images.clone()
        mixed[:, :, top:bottom, left:right] = images[partner, :, top:bottom, left:right]
        own = 1 - (bottom - top) * (right - left) / (height * width)
    else:
        mixed = torch.lerp(images[partner], images, own)
    return mixed, torch.lerp(targets[partner], targets, own)


def span(center: int, length: float, limit: int) -> tuple[int, int]:
    """A stretch of `length` around a place, cut off at the image's edges."""
    return max(round(center - length / 2), 0), min(round(center + length / 2), limit)


def soft(targets: Tensor, classes: int) -> Float[Tensor, "B classes"]:
    """Class numbers as one-hot rows; rows stay."""
    return F.one_hot(targets, classes).float() if targets.ndim == 1 else targets.float()
