"""RandAugment (arXiv 1909.13719): a few operations sampled for each image, all at one magnitude.

The frameworks disagree on the operations, on what a magnitude means and on what fills the gaps, so each
list is named:

| list | operations | strongest magnitude | with magnitude, solarize and posterize | gaps |
|---|---|---|---|---|
| paper | its 14 (section 3) | 10 | grow | gray |
| torchvision | the same 14 | 30 | grow | black |
| timm | 15: invert and solarize-add, no identity (its "inc1" forms, DeiT's) | 10 | grow | mean color |
| big_vision | 16: invert, solarize-add and cutout, no identity | 10 | shrink | gray |

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


Operation = Callable[[Image.Image, Strength], Image.Image]


class Operations(NamedTuple):
    """A framework's list."""

    table: Mapping[str, Operation]
    fill: tuple[int, int, int]
    resample: Image.Resampling
    levels: int


def rand_augment(image: Image.Image, config: RandAugmentConfig, rng: np.random.Generator) -> Image.Image:
    """`config.layers` operations, sampled with replacement, one after the other."""
    chosen = LISTS[config.operations]
    names = list(chosen.table)
    for _ in range(config.layers):
        name = names[int(rng.integers(len(names)))]
        magnitude = config.magnitude + config.magnitude_std * rng.standard_normal()
        sign = 1 if rng.random() < 0.5 else -1
        place = (rng.random(), rng.random())
        if rng.random() < config.probability:
            level = min(max(magnitude / chosen.levels, 0.0), 1.0)
            strength = Strength(level, sign, place, chosen.fill, chosen.resample)
            image = chosen.table[name](image, strength)
    return image


def transform(
    image: Image.Image, strength: Strength, matrix: tuple[float, float, float, float, float, float]
) -> Image.Image:
    """An affine change: the matrix leads from the result's places to the image's."""
    fill = strength.fill if image.mode == "RGB" else round(sum(strength.fill) / 3)
    return image.transform(image.size, Image.Transform.AFFINE, matrix, strength.resample, fillcolor=fill)


def shear_x(image: Image.Image, strength: Strength) -> Image.Image:
    return transform(image, strength, (1.0, 0.3 * strength.level * strength.sign, 0.0, 0.0, 1.0, 0.0))


def shear_y(image: Image.Image, strength: Strength) -> Image.Image:
    return transform(image, strength, (1.0, 0.0, 0.0, 0.3 * strength.level * strength.sign, 1.0, 0.0))


def translate_x(part: float) -> Operation:
    """By a part of the width at most."""

    def operation(image: Image.Image, strength: Strength) -> Image.Image:
        shift = part * image.width * strength.level * strength.sign
        return transform(image, strength, (1.0, 0.0, shift, 0.0, 1.0, 0.0))

    return operation


def translate_y(part: float) -> Operation:
    """By a part of the height at most."""

    def operation(image: Image.Image, strength: Strength) -> Image.Image:
        shift = part * image.height * strength.level * strength.sign
        return transform(image, strength, (1.0, 0.0, 0.0, 0.0, 1.0, shift))

    return operation


def rotate(image: Image.Image, strength: Strength) -> Image.Image:
    fill = strength.fill if image.mode == "RGB" else round(sum(strength.fill) / 3)
    return image.rotate(30 * strength.level * strength.sign, strength.resample, fillcolor=fill)


def enhance(kind: Callable[[Image.Image], ImageEnhance._Enhance]) -> Operation:
    """More or less of it: by 1 ± 0.9 at most."""
    return lambda image, strength: kind(image).enhance(1 + 0.9 * strength.level * strength.sign)


def enhance_one_way(kind: Callable[[Image.Image], ImageEnhance._Enhance]) -> Operation:
    """From 0.1 at level 0 to 1.9 at level 1."""
    return lambda image, strength: kind(image).enhance(0.1 + 1.8 * strength.level)


def posterize(image: Image.Image, strength: Strength) -> Image.Image:
    return ImageOps.posterize(image, 8 - round(4 * strength.level))


def posterize_timm(image: Image.Image, strength: Strength) -> Image.Image:
    """Keep 4 bits at level 0, none at level 1, as timm's PosterizeIncreasing."""
    return keep_bits(image, 4 - int(4 * strength.level))


def posterize_less(image: Image.Image, strength: Strength) -> Image.Image:
    return keep_bits(image, int(4 * strength.level))


def keep_bits(image: Image.Image, bits: int) -> Image.Image:
    """Keep the `bits` highest bits of each value; 0 leaves black."""
    return ImageOps.posterize(image, bits) if bits else Image.new(image.mode, image.size)


def solarize(image: Image.Image, strength: Strength) -> Image.Image:
    return ImageOps.solarize(image, 256 - round(256 * strength.level))


def solarize_timm(image: Image.Image, strength: Strength) -> Image.Image:
    """Invert from 256 at level 0, from 0 at level 1, as timm's SolarizeIncreasing."""
    return ImageOps.solarize(image, 256 - int(256 * strength.level))


def solarize_less(image: Image.Image, strength: Strength) -> Image.Image:
    return ImageOps.solarize(image, int(256 * strength.level))


def solarize_add(image: Image.Image, strength: Strength) -> Image.Image:
    """Dark pixels made brighter, by 110 of 255 at most."""
    added = int(110 * strength.level)
    table = [min(value + added, 255) if value < 128 else value for value in range(256)]
    return image.point(table * len(image.getbands()))


def cutout(image: Image.Image, strength: Strength) -> Image.Image:
    """A filled square around a random place, of 80 / 224 of the image's shorter side at the strongest."""
    half = 40 / 224 * min(image.size) * strength.level
    x, y = (part * side for part, side in zip(strength.place, image.size, strict=True))
    image = image.copy()
    image.paste(
        ImageColor.getcolor("#{:02x}{:02x}{:02x}".format(*strength.fill), image.mode),
        (max(round(x - half), 0), max(round(y - half), 0), round(x + half), round(y + half)),
    )
    return image


def identity(image: Image.Image, strength: Strength) -> Image.Image:
    return image


def autocontrast(image: Image.Image, strength: Strength) -> Image.Image:
    return ImageOps.autocontrast(image)


def equalize(image: Image.Image, strength: Strength) -> Image.Image:
    return ImageOps.equalize(image)


def invert(image: Image.Image, strength: Strength) -> Image.Image:
    return ImageOps.invert(image)


TORCHVISION: dict[str, Operation] = {
    "identity": identity,
    "autocontrast": autocontrast,
    "equalize": equalize,
    "rotate": rotate,
    "solarize": solarize,
    "color": enhance(ImageEnhance.Color),
    "posterize": posterize,
    "contrast": enhance(ImageEnhance.Contrast),
    "brightness": enhance(ImageEnhance.Brightness),
    "sharpness": enhance(ImageEnhance.Sharpness),
    "shear-x": shear_x,
    "shear-y": shear_y,
    "translate-x": translate_x(150 / 331),
    "translate-y": translate_y(150 / 331),
}
TIMM: dict[str, Operation] = {
    **{name: operation for name, operation in TORCHVISION.items() if name != "identity"},
    "invert": invert,
    "posterize": posterize_timm,
    "solarize": solarize_timm,
    "solarize-add": solarize_add,
    "translate-x": translate_x(0.45),
    "translate-y": translate_y(0.45),
}
BIG_VISION: dict[str, Operation] = {
    **{name: operation for name, operation in TORCHVISION.items() if name != "identity"},
    "invert": invert,
    "solarize": solarize_less,
    "posterize": posterize_less,
    "solarize-add": solarize_add,
    "cutout": cutout,
    "color": enhance_one_way(ImageEnhance.Color),
    "contrast": enhance_one_way(ImageEnhance.Contrast),
    "brightness": enhance_one_way(ImageEnhance.Brightness),
    "sharpness": enhance_one_way(ImageEnhance.Sharpness),
    "translate-x": translate_x(100 / 224),
    "translate-y": translate_y(100 / 224),
}

GRAY, BLACK, MEAN = (128, 128, 128), (0, 0, 0), (124, 116, 104)
NEAREST, BICUBIC = Image.Resampling.NEAREST, Image.Resampling.BICUBIC

LISTS = {
    "paper": Operations(TORCHVISION, GRAY, NEAREST, levels=10),
    "torchvision": Operations(TORCHVISION, BLACK, NEAREST, levels=30),
    "timm": Operations(TIMM, MEAN, BICUBIC, levels=10),
    "big_vision": Operations(BIG_VISION, GRAY, NEAREST, levels=10),
}
