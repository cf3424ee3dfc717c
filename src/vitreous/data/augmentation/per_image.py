"""Changes of color (and RandAugment's of shape), drawn for each image on its own: Pillow's operations."""

from __future__ import annotations

import numpy as np
from jaxtyping import UInt8
from PIL import Image
from torch import Tensor

from vitreous.data.augmentation.color import jitter, three_augment
from vitreous.data.augmentation.rand_augment import rand_augment
from vitreous.data.config import AugmentationConfig
from vitreous.models.preprocessing import to_tensor


def change_colors(
    pixels: UInt8[Tensor, "C H W"], config: AugmentationConfig, chance: np.random.Generator
) -> UInt8[Tensor, "C H W"]:
    """3-Augment, RandAugment, color jitter: those that are asked for, in this order."""
    array = pixels.permute(1, 2, 0).contiguous().numpy()
    image = Image.fromarray(array[:, :, 0] if array.shape[2] == 1 else array)
    if config.three_augment:
        image = three_augment(image, chance)
    if config.rand_augment:
        image = rand_augment(image, config.rand_augment, chance)
    if config.color_jitter:
        image = jitter(image, config.color_jitter, chance)
    return to_tensor(image)
