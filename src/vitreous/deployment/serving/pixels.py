"""An image's bytes as the model takes them, and heat over what it sees."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float, UInt8
from PIL import Image
from torch import Tensor

from vitreous.data.dataset import BadImage
from vitreous.data.decoding import EncodedImage, decode, load_pixels
from vitreous.data.transforms import evaluation_pixels
from vitreous.inspection.images import enlarged, overlay, png, rgb
from vitreous.models.preprocessing import Preprocessing

SHOWN = 256  # pixels of an overlay's longer side, at least
DIGITS = 6  # significant ones of a weight: more than an eye or a plot can tell


class OneImage:
    """One file's bytes, as a source of images."""

    classes: tuple[str, ...] = ("",)
    targets = np.zeros(1, dtype=np.int64)

    def __init__(self, data: bytes, name: str) -> None:
        self.data = data
        self.called = name

    def __len__(self) -> int:
        return 1

    def name(self, index: int) -> str:
        return self.called

    def encoded(self, index: int) -> bytes:
        return self.data

    def image(self, index: int) -> Image.Image:
        return decode(self.data, self.called)


def checked(data: bytes, name: str, *, channels: int, most: int) -> EncodedImage:
    """An image whose header has been read, of at most `most` pixels. Raises BadImage."""
    encoded = EncodedImage(OneImage(data, name), 0, channels)
    height, width = encoded.size
    if height * width > most:
        raise BadImage(name, f"{width}x{height} pixels are over the {most} that are allowed")
    return encoded


def model_pixels(
    data: bytes, name: str, preprocessing: Preprocessing, *, most: int
) -> UInt8[Tensor, "C H W"]:
    """What `Predictor.predict` makes of a file's bytes. Raises BadImage."""
    return evaluation_pixels(checked(data, name, channels=preprocessing.channels, most=most), preprocessing)


def whole_image(data: bytes, name: str, preprocessing: Preprocessing, *, most: int) -> Image.Image:
    """The image at its own size, for models that do more with it than classify. Raises BadImage."""
    encoded = checked(data, name, channels=preprocessing.channels, most=most)
    return load_pixels(encoded.image, name)


def blank(preprocessing: Preprocessing) -> bytes:
    """An empty image's file, to warm up with."""
    height, width = preprocessing.size
    return png(np.zeros((height, width, 3), dtype=np.uint8))


def heat_png(pixels: UInt8[Tensor, "C H W"], values: Float[Tensor, "rows columns"]) -> bytes:
    """A PNG of the image with heat over it, scaled to the map's largest value."""
    return png(overlay(enlarged(rgb(pixels), SHOWN), values.float().cpu()))


def rounded(values: Tensor) -> Any:
    """A tensor as nested lists of numbers with few digits."""
    numbers = [float(f"{value:.{DIGITS}g}") for value in values.detach().float().flatten().tolist()]
    return np.array(numbers).reshape(tuple(values.shape)).tolist()
