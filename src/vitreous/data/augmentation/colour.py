"""Colour jitter and DeiT-III's 3-Augment, on Pillow pictures in grey or RGB."""

from __future__ import annotations

import numpy as np
from PIL import Image, ImageEnhance, ImageFilter, ImageOps

from vitreous.data.config import ColourJitterConfig

BLUR = (0.1, 2.0)  # radius of 3-Augment's Gaussian blur in pixels, least and most (arXiv 2204.07118)


def three_augment(picture: Image.Image, chance: np.random.Generator) -> Image.Image:
    """Grey, solarised or blurred, each as likely (DeiT-III, arXiv 2204.07118, section 4)."""
    match int(chance.integers(3)):
        case 0:
            return ImageOps.grayscale(picture).convert(picture.mode)
        case 1:
            return ImageOps.solarize(picture)
        case _:
            return picture.filter(ImageFilter.GaussianBlur(chance.uniform(*BLUR)))


def jitter(picture: Image.Image, config: ColourJitterConfig, chance: np.random.Generator) -> Image.Image:
    """Brightness, contrast, saturation and hue, each changed by its own draw, in random order."""
    strengths = (config.brightness, config.contrast, config.saturation)
    draws = [chance.uniform(max(1 - strength, 0), 1 + strength) for strength in strengths]
    turn = chance.uniform(-config.hue, config.hue)
    enhancers = (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color)
    for which in chance.permutation(4):
        if which < 3:
            if strengths[which] > 0:
                picture = enhancers[which](picture).enhance(draws[which])
        elif config.hue:
            picture = turn_hue(picture, turn)
    return picture


def turn_hue(picture: Image.Image, turn: float) -> Image.Image:
    """Hue moved by a part of the full circle; a grey picture has none."""
    if picture.mode == "L":
        return picture
    hue, saturation, value = picture.convert("HSV").split()
    moved = np.asarray(hue, dtype=np.uint8) + np.uint8(round(turn * 255) % 256)
    return Image.merge("HSV", (Image.fromarray(moved), saturation, value)).convert("RGB")
