"""RandAugment (arXiv 1909.13719): a few operations for each image, all at one magnitude.

The frameworks disagree on RandAugment's operations, on what a magnitude means and on what fills the gaps, so
each list is named:

| list | operations | strongest magnitude | with magnitude, solarize and posterize | gaps |
|---|---|---|---|---|
| paper | its 14 (section 3) | 10 | grow | gray |
| torchvision | the same 14 | 30 | grow | black |
| timm | 15: invert and solarize-add, no identity (its "inc1" forms, DeiT's) | 10 | grow | mean color |
| big_vision | 16: invert, solarize-add and cutout, no identity | 10, and beyond up to 30 | shrink | gray |

Brightness, contrast, color and sharpness go both ways from 1 in the first three lists (1 ± 0.9 of the
magnitude) and from 0.1 to 1.9 in big_vision's, where the middle magnitude is the one that changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageColor, ImageEnhance, ImageOps

from vitreous.data.config import RandAugmentConfig


class Strength(NamedTuple):
    """How strong an operation is (0 ... 1), in which direction (-1 or 1), where, and how gaps are filled."""

    level: float
    sign: int
    place: tuple[float, float]  # of cutout, as parts of width and height
    fill: tuple[int, int, int]
    resample: Image.Resampling

    def fill_for(self, image: Image.Image) -> tuple[int, int, int] | int:
        """Return the color of gaps, in the image's mode."""
        return self.fill if image.mode == "RGB" else round(sum(self.fill) / 3)


Operation = Callable[[Image.Image, Strength], Image.Image]


class Operations(NamedTuple):
    """A framework's list."""

    table: Mapping[str, Operation]
    fill: tuple[int, int, int]
    resample: Image.Resampling
    levels: int  # the strongest magnitude, which is level 1
    most: float = 1.0  # the largest level: big_vision goes on beyond it


def rand_augment(image: Image.Image, config: RandAugmentConfig, rng: np.random.Generator) -> Image.Image:
    """Apply `config.layers` operations, sampled with replacement, one after the other."""
    chosen = LISTS[config.operations]
    names = list(chosen.table)
    for _ in range(config.layers):
        name = names[int(rng.integers(len(names)))]
        magnitude = config.magnitude + config.magnitude_std * rng.standard_normal()
        sign = 1 if rng.random() < 0.5 else -1
        place = (rng.random(), rng.random())
        if rng.random() < config.probability:
            level = min(max(magnitude / chosen.levels, 0.0), chosen.most)
            strength = Strength(level, sign, place, chosen.fill, chosen.resample)
            image = chosen.table[name](image, strength)
    return image


def shear_or_translate(shear: tuple[float, float], translate: tuple[float, float]) -> Operation:
    """Shear, and translate by parts of width and height; (x, y) at the strongest."""

    def operation(image: Image.Image, strength: Strength) -> Image.Image:
        amount = strength.level * strength.sign
        x = translate[0] * image.width * amount
        y = translate[1] * image.height * amount
        # The matrix leads from the result's places to the image's.
        matrix = (1.0, shear[0] * amount, x, shear[1] * amount, 1.0, y)
        fill = strength.fill_for(image)
        return image.transform(image.size, Image.Transform.AFFINE, matrix, strength.resample, fillcolor=fill)

    return operation


def rotate(image: Image.Image, strength: Strength) -> Image.Image:
    angle = 30 * strength.level * strength.sign
    return image.rotate(angle, strength.resample, fillcolor=strength.fill_for(image))


def enhance(kind: Callable[[Image.Image], ImageEnhance._Enhance]) -> Operation:
    """Return an operation that makes more or less of it: by 1 ± 0.9 at most."""
    return lambda image, strength: kind(image).enhance(1 + 0.9 * strength.level * strength.sign)


def enhance_one_way(kind: Callable[[Image.Image], ImageEnhance._Enhance]) -> Operation:
    """Return an operation that makes more or less of it: from 0.1 at level 0 to 1.9 at level 1."""
    return lambda image, strength: kind(image).enhance(0.1 + 1.8 * strength.level)


def contrast_of_counts(image: Image.Image, strength: Strength) -> Image.Image:
    """Blend with the gray value H W / 256, at most 255, in the place of the image's mean: the code of
    big_vision sums the counts of its histogram without their values (pp/autoaugment.py, contrast). Images of
    224 x 224 move towards 196, which is brighter than most."""
    width, height = image.size
    gray = Image.new("L", image.size, min(width * height // 256, 255)).convert(image.mode)
    return Image.blend(gray, image, 0.1 + 1.8 * strength.level)


def at_any_strength(operation: Callable[[Image.Image], Image.Image]) -> Operation:
    return lambda image, strength: operation(image)


def posterize(bits: Callable[[float], int]) -> Operation:
    """Keep the highest bits of each value, as many as a level leaves; 0 leaves black."""

    def operation(image: Image.Image, strength: Strength) -> Image.Image:
        left = bits(strength.level)
        return ImageOps.posterize(image, left) if left else Image.new(image.mode, image.size)

    return operation


def solarize(threshold: Callable[[float], int]) -> Operation:
    """Invert values from a threshold on, which depends on the level."""
    return lambda image, strength: ImageOps.solarize(image, threshold(strength.level))


def solarize_add(image: Image.Image, strength: Strength) -> Image.Image:
    """Make dark pixels brighter, by 110 of 255 at most."""
    added = int(110 * strength.level)
    return image.point(lambda value: min(value + added, 255) if value < 128 else value)


def cutout(image: Image.Image, strength: Strength) -> Image.Image:
    """Fill a square around a random place, of 80 / 224 of the image's shorter side at the strongest."""
    half = 40 / 224 * min(image.size) * strength.level
    x, y = strength.place[0] * image.width, strength.place[1] * image.height
    image = image.copy()
    image.paste(
        ImageColor.getcolor("#{:02x}{:02x}{:02x}".format(*strength.fill), image.mode),
        (max(round(x - half), 0), max(round(y - half), 0), round(x + half), round(y + half)),
    )
    return image


ENHANCERS = (ImageEnhance.Color, ImageEnhance.Contrast, ImageEnhance.Brightness, ImageEnhance.Sharpness)
TORCHVISION: dict[str, Operation] = {
    "identity": lambda image, strength: image,
    "autocontrast": at_any_strength(ImageOps.autocontrast),
    "equalize": at_any_strength(ImageOps.equalize),
    "rotate": rotate,
    "solarize": solarize(lambda level: 256 - round(256 * level)),
    "color": enhance(ImageEnhance.Color),
    "posterize": posterize(lambda level: 8 - round(4 * level)),
    "contrast": enhance(ImageEnhance.Contrast),
    "brightness": enhance(ImageEnhance.Brightness),
    "sharpness": enhance(ImageEnhance.Sharpness),
    "shear-x": shear_or_translate((0.3, 0.0), (0.0, 0.0)),
    "shear-y": shear_or_translate((0.0, 0.3), (0.0, 0.0)),
    "translate-x": shear_or_translate((0.0, 0.0), (150 / 331, 0.0)),
    "translate-y": shear_or_translate((0.0, 0.0), (0.0, 150 / 331)),
}
TIMM: dict[str, Operation] = {
    **{name: operation for name, operation in TORCHVISION.items() if name != "identity"},
    "invert": at_any_strength(ImageOps.invert),
    "posterize": posterize(lambda level: 4 - int(4 * level)),  # PosterizeIncreasing
    "solarize": solarize(lambda level: 256 - int(256 * level)),  # SolarizeIncreasing
    "solarize-add": solarize_add,
    "translate-x": shear_or_translate((0.0, 0.0), (0.45, 0.0)),
    "translate-y": shear_or_translate((0.0, 0.0), (0.0, 0.45)),
}
BIG_VISION: dict[str, Operation] = {
    **{name: operation for name, operation in TORCHVISION.items() if name != "identity"},
    "invert": at_any_strength(ImageOps.invert),
    # The threshold is compared as 8 bits, in which 256 (level 10 of 10) is 0: all is inverted.
    "solarize": solarize(lambda level: int(256 * level) % 256),
    "posterize": posterize(lambda level: min(int(4 * level), 8)),
    "solarize-add": solarize_add,
    "cutout": cutout,
    **{kind.__name__.lower(): enhance_one_way(kind) for kind in ENHANCERS},
    "contrast": contrast_of_counts,
    "translate-x": shear_or_translate((0.0, 0.0), (100 / 224, 0.0)),
    "translate-y": shear_or_translate((0.0, 0.0), (0.0, 100 / 224)),
}

GRAY, BLACK, MEAN = (128, 128, 128), (0, 0, 0), (124, 116, 104)
NEAREST, BICUBIC = Image.Resampling.NEAREST, Image.Resampling.BICUBIC

LISTS = {
    "paper": Operations(TORCHVISION, GRAY, NEAREST, levels=10),
    "torchvision": Operations(TORCHVISION, BLACK, NEAREST, levels=30),
    "timm": Operations(TIMM, MEAN, BICUBIC, levels=10),
    "big_vision": Operations(BIG_VISION, GRAY, NEAREST, levels=10, most=3.0),
}
