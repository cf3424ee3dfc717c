"""How training images are changed: batch by batch here, one by one in `per_image`."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from vitreous.data.augmentation.erasing import erase
from vitreous.data.augmentation.geometry import affine
from vitreous.data.config import AugmentationConfig
from vitreous.data.randomness import BatchChance


def augment(
    images: Float[Tensor, "B C H W"], config: AugmentationConfig, chance: BatchChance
) -> Float[Tensor, "B C H W"]:
    """Affine change, noise, erasing: on normalized images, on their device. (Flips are done on bytes, which
    are fewer, and mixing needs the targets.)"""
    if config.affine:
        images = affine(images, config.affine, chance)
    if config.noise:
        images = images + config.noise * chance.normal(*images.shape[1:]).to(images.device)
    if config.random_erasing:
        images = erase(images, config.random_erasing, chance)
    return images
