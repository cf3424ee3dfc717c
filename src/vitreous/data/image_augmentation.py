"""Changes of colors, sampled for each image on its own, by Pillow's operations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageEnhance, ImageFilter, ImageOps
from torch import Tensor

from vitreous.data.config import AugmentationConfig, ColorJitterConfig, RandAugmentConfig
from vitreous.errors import LazyModule
from vitreous.models.preprocessing import to_tensor

if TYPE_CHECKING:
    from vitreous.data import rand_augment
else:  # its lists of operations are seldom needed
    rand_augment = LazyModule("vitreous.data.rand_augment")

BLUR = (0.1, 2.0)  # radius of 3-Augment's Gaussian blur in pixels, least and most (arXiv 2204.07118)


def change_colors(
    pixels: UInt8[Tensor, "C H W"], config: AugmentationConfig, rng: np.random.Generator
) -> UInt8[Tensor, "C H W"]:
    """Apply 3-Augment or RandAugment, then color jitter: those that are asked for."""
    array = pixels.permute(1, 2, 0).contiguous().numpy()
    image = Image.fromarray(array[:, :, 0] if array.shape[2] == 1 else array)
    if isinstance(config.policy, RandAugmentConfig):
        image = rand_augment.rand_augment(image, config.policy, rng)
    elif config.policy:
        image = three_augment(image, rng)
    if config.color_jitter:
        image = jitter(image, config.color_jitter, rng)
    return to_tensor(image)


def three_augment(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Make an image gray, solarized or blurred, each as likely (DeiT-III, arXiv 2204.07118, section 4)."""
    match int(rng.integers(3)):
        case 0:
            return ImageOps.grayscale(image).convert(image.mode)
        case 1:
            return ImageOps.solarize(image)
        case _:
            return image.filter(ImageFilter.GaussianBlur(rng.uniform(*BLUR)))


def jitter(image: Image.Image, config: ColorJitterConfig, rng: np.random.Generator) -> Image.Image:
    """Change brightness, contrast, saturation and hue, each by a number of its own, in random order."""
    strengths = (config.brightness, config.contrast, config.saturation)
    factors = [rng.uniform(max(1 - strength, 0), 1 + strength) for strength in strengths]
    shift = rng.uniform(-config.hue, config.hue)
    enhancers = (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color)
    for which in rng.permutation(4):
        if which < 3:
            if strengths[which] > 0:
                image = enhancers[which](image).enhance(factors[which])
        elif config.hue:
            image = shift_hue(image, shift)
    return image


def shift_hue(image: Image.Image, shift: float) -> Image.Image:
    """Move the hue by a part of the full circle; a gray image has none."""
    if image.mode == "L":
        return image
    hue, saturation, value = image.convert("HSV").split()
    moved = np.asarray(hue, dtype=np.uint8) + np.uint8(round(shift * 255) % 256)
    return Image.merge("HSV", (Image.fromarray(moved), saturation, value)).convert("RGB")
