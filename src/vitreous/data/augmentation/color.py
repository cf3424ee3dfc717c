"""Color jitter and DeiT-III's 3-Augment, on Pillow images in gray or RGB."""

from __future__ import annotations

import numpy as np
from PIL import Image, ImageEnhance, ImageFilter, ImageOps

from vitreous.data.config import ColorJitterConfig

BLUR = (0.1, 2.0)  # radius of 3-Augment's Gaussian blur in pixels, least and most (arXiv 2204.07118)


def three_augment(image: Image.Image, chance: np.random.Generator) -> Image.Image:
    """Gray, solarized or blurred, each as likely (DeiT-III, arXiv 2204.07118, section 4)."""
    match int(chance.integers(3)):
        case 0:
            return ImageOps.grayscale(image).convert(image.mode)
        case 1:
            return ImageOps.solarize(image)
        case _:
            return image.filter(ImageFilter.GaussianBlur(chance.uniform(*BLUR)))


def jitter(image: Image.Image, config: ColorJitterConfig, chance: np.random.Generator) -> Image.Image:
    """Brightness, contrast, saturation and hue, each changed by its own draw, in random order."""
    strengths = (config.brightness, config.contrast, config.saturation)
    draws = [chance.uniform(max(1 - strength, 0), 1 + strength) for strength in strengths]
    turn = chance.uniform(-config.hue, config.hue)
    enhancers = (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color)
    for which in chance.permutation(4):
        if which < 3:
            if strengths[which] > 0:
                image = enhancers[which](image).enhance(draws[which])
        elif config.hue:
            image = turn_hue(image, turn)
    return image


def turn_hue(image: Image.Image, turn: float) -> Image.Image:
    """Hue moved by a part of the full circle; a gray image has none."""
    if image.mode == "L":
        return image
    hue, saturation, value = image.convert("HSV").split()
    moved = np.asarray(hue, dtype=np.uint8) + np.uint8(round(turn * 255) % 256)
    return Image.merge("HSV", (Image.fromarray(moved), saturation, value)).convert("RGB")
