"""An image at the model's size: the evaluation's geometry, the random crop, and Pillow's resizing.

Random crops are resized by torch. Images of evaluation are what Pillow makes of them, to the bit: by Pillow,
and after a few thousand photographs by the loops of `compiled`, which compute the same integer sums in a
seventh of the time, only for the part of the result that is used. They need Numba (the extra "train" or
"serve").
"""

from __future__ import annotations

import math
import threading
from functools import lru_cache
from types import ModuleType
from typing import Literal

import numpy as np
import PIL
import torch
from jaxtyping import UInt8
from torch import Tensor
from torch.nn import functional as F

from vitreous.data.config import RandomResizedCropConfig
from vitreous.models.preprocessing import NativePreprocessing, Preprocessing
from vitreous.models.stored import Stored

Box = tuple[int, int, int, int]  # top, left, height, width
Kernel = Literal["bilinear", "bicubic"]

BITS = 22  # of a weight after the point; with 8 of a byte and 2 to spare these are Pillow's 32


class Loops:
    """The compiled loops, from when they pay on.

    Compiling takes as long as the loops would have saved in so many pixels, by default in those of 2,000
    photographs of 500 x 400: started then, it never costs more than twice the better choice, however many
    images there are. A thread of its own does it while Pillow goes on.
    """

    def __init__(self, pixels: int = 400_000_000) -> None:
        self.pixels = pixels
        self.compiled: ModuleType | None = None
        self.resized = 0  # pixels, by Pillow
        self.lock = threading.Lock()

    def after(self, pixels: int) -> None:
        """Count what Pillow has resized."""
        with self.lock:
            before, self.resized = self.resized, self.resized + pixels
        if before < self.pixels <= self.resized:
            threading.Thread(target=self.load, name="compiles the loops over pixels").start()

    def load(self) -> ModuleType | None:
        """Import and compile, unless it is done. Returns None where Numba is not installed."""
        if self.compiled is None:
            try:
                from vitreous.data import compiled
            except ImportError:
                return None
            resample(compiled, torch.zeros(3, 2, 2, dtype=torch.uint8), (1, 1), "bicubic")
            self.compiled = compiled
        return self.compiled


LOOPS = Loops()


def resample(
    compiled: ModuleType,
    pixels: UInt8[Tensor, "3 H W"],
    size: tuple[int, int],
    kernel: Kernel,
    *,
    window: Box | None = None,
    rows_first: bool = False,
) -> UInt8[Tensor, "3 h w"]:
    """Return an image resized to `size` (H, W), antialiased where it becomes smaller. Quickest for pixels
    that are channels last in memory.

    compiled: `Loops.load`.
    window: the part of the result that is computed; all of it if None.
    rows_first: which of the two are resized first and rounded to bytes.
    """
    if rows_first:  # the columns of the image on its side
        window = window and (window[1], window[0], window[3], window[2])
        return resample(compiled, pixels.mT, size[::-1], kernel, window=window).mT.contiguous()
    first_row, first_column, rows, columns = window or (0, 0, *size)
    down = taps(pixels.shape[1], size[0], first_row, rows, kernel)
    across = taps(pixels.shape[2], size[1], first_column, columns, kernel)
    lying = pixels.permute(1, 2, 0).contiguous().numpy()
    out = torch.empty(3, rows, columns, dtype=torch.uint8)
    compiled.columns_first(lying, down, across, out.numpy())
    return out


@lru_cache(maxsize=1024)  # a few megabytes; most images have sides that another had
def taps(length: int, target: int, first: int, count: int, kernel: Kernel) -> tuple[object, ...]:
    """Return the weighted sums that `count` places from `first` on are, of `length` pixels resized to
    `target`.

    Three things: the first pixel of each; the weights, whole numbers of 2^-BITS, as many for each place, 4 or
    a larger even number, the last ones perhaps 0; where the pixels end that have a weight. A reduction widens
    the kernel, which is what antialiasing means.
    """
    step = length / target
    scale = max(step, 1.0)
    reach = (2.0 if kernel == "bicubic" else 1.0) * scale
    center = (first + np.arange(count) + 0.5) * step
    low = np.maximum((center - reach + 0.5).astype(np.int32), 0)
    high = np.minimum((center + reach + 0.5).astype(np.int32), length)
    most = int((high - low).max())
    tap = np.arange(most)
    x = (low[:, None] + tap - center[:, None] + 0.5) * (1.0 / scale)
    exact = np.where(tap < (high - low)[:, None], KERNELS[kernel](np.abs(x)), 0.0)
    total = exact.cumsum(axis=1)[:, -1:]  # in order, as a loop adds them
    weights = np.zeros((count, max(most + most % 2, 4)), np.int32)
    rounded = exact / total * (1 << BITS)
    weights[:, :most] = rounded + np.copysign(0.5, rounded)  # cut toward zero
    return low, weights, int(high[-1])


def cubic(x: np.ndarray) -> np.ndarray:
    """Return Keys's kernel with a = -0.5, of distances."""
    near, far = (1.5 * x - 2.5) * x * x + 1, ((x - 5) * x + 8) * x * -0.5 + 2
    return np.where(x < 1, near, np.where(x < 2, far, 0.0))


def triangle(x: np.ndarray) -> np.ndarray:
    return np.maximum(1 - x, 0.0)


KERNELS = {"bicubic": cubic, "bilinear": triangle}
PILLOW = int(PIL.__version__.split(".")[0])
TRIES = 10  # of a crop that fits, before the center is taken
TENSORFLOW_TRIES = 100


def evaluation_pixels(
    encoded: Stored, preprocessing: Preprocessing, loops: Loops = LOOPS
) -> UInt8[Tensor, "C H W"]:
    """Return what `preprocessing.pixels` gives. Raises BadImage."""
    kernel = preprocessing.interpolation
    if (
        preprocessing.resize == "fit"
        or preprocessing.channels != 3
        or isinstance(preprocessing, NativePreprocessing)
        or not (kernel == "bilinear" or kernel == "bicubic")
    ):
        return preprocessing.pixels(encoded)
    if loops.compiled is None:
        loops.after(math.prod(encoded.size))
        return preprocessing.pixels(encoded)
    size = preprocessing.rescaled(encoded.size)
    window = (*preprocessing.corner(size), *preprocessing.size)
    pixels = encoded.pixels(until=last_row(encoded.size[0], size[0], window[0] + window[2]))
    first = rows_first(encoded.size, size)
    return resample(loops.compiled, pixels, size, kernel, window=window, rows_first=first)


def rows_first(size: tuple[int, int], target: tuple[int, int]) -> bool:
    """Return whether Pillow would resize the rows of an image of `size` (H, W) before its columns, which
    rounds other numbers: since version 13 it does where more than twice as many rows as columns are lost."""
    rows, columns = size[0] - target[0], size[1] - target[1]
    return PILLOW >= 13 and rows > max(2 * columns, 0)


def last_row(height: int, target: int, end: int) -> int:
    """Return where the rows end that the first `end` of `target` rows are made of, bicubic as the widest
    kernel."""
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
PLAIN_CROP = RandomResizedCropConfig()


def crop_encoded(
    encoded: Stored, box: Box, preprocessing: Preprocessing, config: RandomResizedCropConfig = PLAIN_CROP
) -> UInt8[Tensor, "C H W"]:
    """Return the box of an image at the model's size. A large JPEG is decoded no finer than that needs; whole
    without `antialias`, since decoding at a part of the size averages."""
    (height, width), (top, _, h, w), (tall, wide) = encoded.size, box, preprocessing.size
    if config.antialias:
        least = (math.ceil(height * min(tall / h, 1)), math.ceil(width * min(wide / w, 1)))
        pixels = encoded.rough(least, until=top + h)
    else:
        pixels = encoded.pixels(until=top + h)
    return crop_pixels(pixels, box, encoded.size, preprocessing, config)


def crop_pixels(
    pixels: UInt8[Tensor, "C H W"],
    box: Box,
    size: tuple[int, int],
    preprocessing: Preprocessing,
    config: RandomResizedCropConfig = PLAIN_CROP,
) -> UInt8[Tensor, "C h w"]:
    """Return the box, given in pixels of an image of `size`, cropped from perhaps smaller `pixels` and
    resized: bilinear, or bicubic for any other interpolation; always bilinear without `antialias`."""
    rows, columns = pixels.shape[1] / size[0], pixels.shape[2] / size[1]
    top, left, h, w = box
    first, last = round(top * rows), max(round((top + h) * rows), round(top * rows) + 1)
    start, end = round(left * columns), max(round((left + w) * columns), round(left * columns) + 1)
    # A part that lies together in memory is resized to the same bits in two thirds of the time.
    part = pixels[None, :, first:last, start:end].contiguous(memory_format=torch.channels_last)
    bilinear = not config.antialias or preprocessing.interpolation == "bilinear"
    kernel: Kernel = "bilinear" if bilinear else "bicubic"
    if config.truncate:  # as TensorFlow's casts do; else rounded
        part = part.float()
    resized = F.interpolate(part, size=preprocessing.size, mode=kernel, antialias=config.antialias)[0]
    return resized.clamp(0, 255).byte() if config.truncate else resized
