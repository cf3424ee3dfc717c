"""Changes of colour (and RandAugment's of shape), drawn for each picture on its own: Pillow's operations."""

from __future__ import annotations

import numpy as np
from jaxtyping import UInt8
from PIL import Image
from torch import Tensor

from vitreous.data.augmentation.colour import jitter, three_augment
from vitreous.data.augmentation.rand_augment import rand_augment
from vitreous.data.config import AugmentationConfig
from vitreous.models.preprocessing import to_tensor


def change_colours(
    pixels: UInt8[Tensor, "C H W"], config: AugmentationConfig, chance: np.random.Generator
) -> UInt8[Tensor, "C H W"]:
    """3-Augment, RandAugment, colour jitter: those that are asked for, in this order."""
    array = pixels.permute(1, 2, 0).contiguous().numpy()
    picture = Image.fromarray(array[:, :, 0] if array.shape[2] == 1 else array)
    if config.three_augment:
        picture = three_augment(picture, chance)
    if config.rand_augment:
        picture = rand_augment(picture, config.rand_augment, chance)
    if config.colour_jitter:
        picture = jitter(picture, config.colour_jitter, chance)
    return to_tensor(picture)
