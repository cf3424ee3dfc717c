"""An image at the model's size: the evaluation's geometry, the random crop, and Pillow's resizing.

The loops of `compiled` compute the same integer sums as Pillow, only for the part of the result that is used,
in a sixth of the time. They need Numba (the extra "train" or "serve").
"""

from __future__ import annotations

import math
from functools import cache, lru_cache
from types import ModuleType
from typing import Any, Literal

import numpy as np
import PIL
import torch
from jaxtyping import Float, UInt8
from torch import Tensor
from torch.nn import functional as F

from vitreous.data.config import RandomResizedCropConfig
from vitreous.data.decoding import BadImage, EncodedImage
from vitreous.errors import InputError
from vitreous.models.preprocessing import Preprocessing, to_tensor

Box = tuple[int, int, int, int]  # top, left, height, width
Kernel = Literal["bilinear", "bicubic"]

LARGE_BATCH = 1 << 20  # bytes, for which it pays to load the compiled loops


@cache
def loops() -> ModuleType | None:
    """The compiled loops, or None where Numba is not installed. The first call takes half a second."""
    try:
        from vitreous.data import compiled
    except ImportError:
        return None
    return compiled


def resample(
    pixels: UInt8[Tensor, "3 H W"],
    size: tuple[int, int],
    kernel: Kernel,
    *,
    box: Box | None = None,
    window: Box | None = None,
    rows_first: bool = False,
) -> UInt8[Tensor, "3 h w"]:
    """An image resized to `size` (H, W), antialiased where it becomes smaller. Quickest for pixels that are
    channels last in memory. Numba has to be there.

    box: the part of the image that is resized; all of it if None. Nothing outside is looked at.
    window: the part of the result that is computed; all of it if None.
    rows_first: which of the two are resized first and rounded to bytes; quicker where rows become fewer.
    """
    compiled = loops()
    assert compiled is not None
    top, left, height, width = box or (0, 0, pixels.shape[1], pixels.shape[2])
    first_row, first_column, rows, columns = window or (0, 0, *size)
    down = taps(height, size[0], first_row, rows, kernel)
    across = taps(width, size[1], first_column, columns, kernel)
    lying = pixels.permute(1, 2, 0).contiguous().numpy()
    out = torch.empty(3, rows, columns, dtype=torch.uint8)
    resize = compiled.rows_first if rows_first else compiled.columns_first
    resize(lying, top, left, down, across, out.numpy())
    return out


@lru_cache(maxsize=1024)  # a few megabytes; of random crops most have sides that another had
def taps(length: int, target: int, first: int, count: int, kernel: Kernel) -> tuple[Any, ...]:
    """`compiled.taps`."""
    compiled = loops()
    assert compiled is not None
    return compiled.taps(length, target, first, count, kernel == "bicubic")


PILLOW = int(PIL.__version__.split(".")[0])
TRIES = 10  # of a crop that fits, before the center is taken
TENSORFLOW_TRIES = 100


def evaluation_pixels(
    encoded: EncodedImage, preprocessing: Preprocessing, *, compiled: bool = True
) -> UInt8[Tensor, "C H W"]:
    """What `preprocessing.image` gives; if wanted by the compiled loops, where they can. Raises BadImage."""
    kernel, size = preprocessing.interpolation, preprocessing.rescaled(encoded.size)
    if (
        preprocessing.resize != "fit"
        and preprocessing.channels == 3
        and (kernel == "bilinear" or kernel == "bicubic")
        and compiled
        and encoded.bands is None
        and loops()
    ):
        window = (*preprocessing.corner(size), *preprocessing.size)
        pixels = encoded.pixels(until=last_row(encoded.size[0], size[0], window[0] + window[2]))
        return resample(pixels, size, kernel, window=window, rows_first=rows_first(encoded.size, size))
    if encoded.bands is not None:
        try:
            return preprocessing.pixels(encoded.bands)
        except InputError as error:
            raise BadImage(encoded.name, str(error)) from None
    return to_tensor(preprocessing.image(encoded.upright()))


def rows_first(size: tuple[int, int], target: tuple[int, int]) -> bool:
    """Whether Pillow would resize the rows of an image of `size` (H, W) before its columns, which rounds
    other numbers: since version 13 it does where more than twice as many rows as columns are lost."""
    rows, columns = size[0] - target[0], size[1] - target[1]
    return PILLOW >= 13 and rows > max(2 * columns, 0)


def last_row(height: int, target: int, end: int) -> int:
    """Where the rows end that the first `end` of `target` rows are made of, bicubic as the widest kernel."""
    step = height / target
    return min(math.ceil(end * step + 2 * max(step, 1)), height)


def random_crop(
    size: tuple[int, int], config: RandomResizedCropConfig, generator: np.random.Generator
) -> Box:
    """Draw a box (top, left, height, width) inside an image of size (H, W)."""
    return SAMPLERS[config.sampler](size, config, generator)


def log_uniform_crop(
    size: tuple[int, int], config: RandomResizedCropConfig, generator: np.random.Generator
) -> Box:
    """Draw the area uniformly and the ratio log-uniformly; after ten boxes that do not fit, take the largest
    at the center whose ratio is allowed (torchvision's RandomResizedCrop, which timm has, too)."""
    height, width = size
    low, high = config.ratio
    for _ in range(TRIES):
        area = height * width * generator.uniform(*config.scale)
        ratio = math.exp(generator.uniform(math.log(low), math.log(high)))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            return int(generator.integers(height - h + 1)), int(generator.integers(width - w + 1)), h, w
    w = min(width, max(round(height * high), 1))
    h = min(height, max(round(width / low), 1))
    return (height - h) // 2, (width - w) // 2, h, w


def tensorflow_crop(
    size: tuple[int, int], config: RandomResizedCropConfig, generator: np.random.Generator
) -> Box:
    """Draw the ratio uniformly, then the height uniformly between those of the least and the most area that
    fit the image; after 100 boxes outside of the range of areas, take the whole image.

    These are the boxes of tf.image.sample_distorted_bounding_box without an object to cover
    (tensorflow/core/kernels/image/sample_distorted_bounding_box_op.cc, GenerateRandomCrop). A uniform height
    makes small areas more likely than a uniform area does. A box that is smaller than the image never touches
    its bottom or right edge, since the kernel draws offsets below H - h and W - w.
    """
    height, width = size
    least, most = (part * height * width for part in config.scale)
    for _ in range(TENSORFLOW_TRIES):
        ratio = generator.uniform(*config.ratio)
        low, high = round(math.sqrt(least / ratio)), round(math.sqrt(most / ratio))
        if round(high * ratio) > width:
            high = int((width + 0.5 - 1e-7) / ratio)
            high -= round(high * ratio) > width
        high = min(high, height)
        h = int(generator.integers(min(low, high), high + 1))
        if h * round(h * ratio) < least:
            h += 1
        if h * round(h * ratio) > most:
            h -= 1
        w = round(h * ratio)
        if least <= h * w <= most and 0 < w <= width and 0 < h <= height:
            top = int(generator.integers(height - h)) if h < height else 0
            left = int(generator.integers(width - w)) if w < width else 0
            return top, left, h, w
    return 0, 0, height, width


SAMPLERS = {"log-uniform": log_uniform_crop, "tensorflow": tensorflow_crop}


def crop_encoded(
    encoded: EncodedImage,
    box: Box,
    preprocessing: Preprocessing,
    *,
    antialias: bool = True,
    compiled: bool = True,
) -> UInt8[Tensor, "C H W"]:
    """Return the box of an image at the model's size. A large JPEG is decoded no finer than that needs; whole
    without `antialias`, since decoding at a part of the size averages."""
    (height, width), (top, _, h, w) = encoded.size, box
    if not antialias:
        return crop_pixels(encoded.pixels(until=top + h), box, encoded.size, preprocessing, antialias=False)
    tall, wide = preprocessing.size
    least = (math.ceil(height * min(tall / h, 1)), math.ceil(width * min(wide / w, 1)))
    pixels = encoded.rough(least, until=top + h)
    return crop_pixels(pixels, box, encoded.size, preprocessing, compiled=compiled)


def crop_pixels(
    pixels: UInt8[Tensor, "C H W"],
    box: Box,
    size: tuple[int, int],
    preprocessing: Preprocessing,
    *,
    antialias: bool = True,
    compiled: bool = True,
) -> UInt8[Tensor, "C h w"]:
    """Return the box, given in pixels of an image of `size`, cropped from perhaps smaller `pixels` and
    resized: bilinear, or bicubic for any other interpolation; always bilinear without `antialias`.
    compiled: by the compiled loops, where they are."""
    rows, columns = pixels.shape[1] / size[0], pixels.shape[2] / size[1]
    top, left, h, w = box
    first, last = round(top * rows), max(round((top + h) * rows), round(top * rows) + 1)
    start, end = round(left * columns), max(round((left + w) * columns), round(left * columns) + 1)
    part = pixels[None, :, first:last, start:end]
    if not antialias:
        return F.interpolate(part, size=preprocessing.size, mode="bilinear")[0]
    kernel: Literal["bilinear", "bicubic"] = (
        "bilinear" if preprocessing.interpolation == "bilinear" else "bicubic"
    )
    if len(pixels) == 3 and compiled and loops():
        box = first, start, last - first, end - start
        return resample(
            pixels, preprocessing.size, kernel, box=box, rows_first=box[2] > preprocessing.size[0]
        )
    return F.interpolate(part, size=preprocessing.size, mode=kernel, antialias=True)[0]


def shorter_side(preprocessing: Preprocessing, factor: float) -> int:
    """Pixels that an image's shorter side needs to be `factor` times the model's size."""
    return math.ceil(factor * max(preprocessing.size))


def normalize(
    pixels: UInt8[Tensor, "*B C H W"], factor: Float[Tensor, "C 1 1"], shift: Float[Tensor, "C 1 1"]
) -> Float[Tensor, "*B C H W"]:
    """Return pixels x factor + shift, as `Preprocessing.normalize`. Memory-bound: large batches on a CPU are
    read once and written once, in a quarter of the time, where Numba is installed.

    Args:
        factor, shift: `Preprocessing.factor_and_shift`, on the device of the pixels.
    """
    numbers = torch.empty(pixels.shape, device=pixels.device, dtype=torch.float32)
    large = pixels.numel() >= LARGE_BATCH and pixels.device.type == "cpu" and pixels.ndim == 4
    if not large or (compiled := loops()) is None:
        return torch.mul(pixels, factor, out=numbers).add_(shift)
    compiled.normalize(
        pixels.contiguous().numpy(), factor.flatten().numpy(), shift.flatten().numpy(), numbers.numpy()
    )
    return numbers
