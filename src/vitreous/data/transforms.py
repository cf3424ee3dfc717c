"""A picture at the model's size: the evaluation's geometry and the random crop, on bytes, antialiased."""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import UInt8
from torch import Tensor
from torch.nn import functional as F

from vitreous.data.config import RandomResizedCropConfig
from vitreous.data.decoding import Encoded
from vitreous.data.resampling import reduce
from vitreous.models.preprocessing import Interpolation, Preprocessing, to_tensor

Box = tuple[int, int, int, int]  # top, left, height, width
TRIES = 10  # of a crop that fits, before the centre is taken


def resize(
    pixels: UInt8[Tensor, "C H W"], size: tuple[int, int], interpolation: Interpolation
) -> UInt8[Tensor, "C h w"]:
    """Bytes at a size (H, W), antialiased: torch's bilinear or bicubic, and bicubic for all the others."""
    if tuple(pixels.shape[1:]) == size:
        return pixels
    mode = "bilinear" if interpolation == "bilinear" else "bicubic"
    return F.interpolate(pixels[None], size=size, mode=mode, antialias=True)[0]


def evaluation_pixels(encoded: Encoded, preprocessing: Preprocessing) -> UInt8[Tensor, "C H W"]:
    """What `preprocessing.image` gives, within 1 of 255; faster for JPEGs that become smaller. Raises
    BadPicture."""
    kernel = preprocessing.interpolation
    (height, width), (tall, wide) = encoded.size, rescaled(encoded.size, preprocessing)
    if (
        preprocessing.resize == "crop"
        and preprocessing.channels == 3
        and (kernel == "bilinear" or kernel == "bicubic")
        and tall <= height
        and wide <= width
        and tall < 2 * wide  # of taller pictures Pillow reduces the rows first
        and (pixels := encoded.words()) is not None
    ):
        box = centred((tall, wide), preprocessing.size)
        return reduce(pixels, (tall, wide), box, kernel)
    return to_tensor(preprocessing.image(encoded.upright()))


def centred(size: tuple[int, int], inner: tuple[int, int]) -> Box:
    """The middle of a picture."""
    return round((size[0] - inner[0]) / 2), round((size[1] - inner[1]) / 2), *inner


def rescaled(size: tuple[int, int], preprocessing: Preprocessing) -> tuple[int, int]:
    """(H, W) of a picture after `preprocessing` has resized it, before it cuts the centre."""
    tall, wide = (round(side / preprocessing.crop_fraction) for side in preprocessing.size)
    if preprocessing.resize == "squash":
        return tall, wide
    height, width = size
    scale = max(tall / height, wide / width)
    return max(math.floor(height * scale + 1e-6), tall), max(math.floor(width * scale + 1e-6), wide)


def random_crop(
    size: tuple[int, int], config: RandomResizedCropConfig, generator: np.random.Generator
) -> Box:
    """A box of random area and ratio inside (H, W); after ten that do not fit, the largest at the centre
    whose ratio is allowed, as torchvision does it."""
    height, width = size
    low, high = config.ratio
    for _ in range(TRIES):
        area = height * width * generator.uniform(*config.scale)
        if config.sampler == "log-uniform":
            ratio = math.exp(generator.uniform(math.log(low), math.log(high)))
        else:
            ratio = generator.uniform(low, high)
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            return int(generator.integers(height - h + 1)), int(generator.integers(width - w + 1)), h, w
    w = min(width, max(round(height * high), 1))
    h = min(height, max(round(width / low), 1))
    return (height - h) // 2, (width - w) // 2, h, w


def crop_encoded(encoded: Encoded, box: Box, preprocessing: Preprocessing) -> UInt8[Tensor, "C H W"]:
    """The box of a picture at the model's size. A large JPEG is decoded no finer than that needs."""
    (height, width), (_, _, h, w) = encoded.size, box
    tall, wide = preprocessing.size
    least = (math.ceil(height * min(tall / h, 1)), math.ceil(width * min(wide / w, 1)))
    return crop_pixels(encoded.rough(least), box, encoded.size, preprocessing)


def crop_pixels(
    pixels: UInt8[Tensor, "C H W"], box: Box, size: tuple[int, int], preprocessing: Preprocessing
) -> UInt8[Tensor, "C h w"]:
    """The box, given in pixels of a picture of `size`, cut out of perhaps smaller `pixels` and resized."""
    rows, columns = pixels.shape[1] / size[0], pixels.shape[2] / size[1]
    top, left, h, w = box
    first, last = round(top * rows), max(round((top + h) * rows), round(top * rows) + 1)
    start, end = round(left * columns), max(round((left + w) * columns), round(left * columns) + 1)
    part = pixels[:, first:last, start:end]
    return resize(part, preprocessing.size, preprocessing.interpolation)


def shorter_side(preprocessing: Preprocessing, factor: float) -> int:
    """Pixels that a picture's shorter side needs to be `factor` times the model's size."""
    return math.ceil(factor * max(preprocessing.size))
