"""Images of requests: from a file's bytes to what the model takes, and heat over what it sees."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float, UInt8
from torch import Tensor

from vitreous.data.decoding import BadImage, EncodedImage, load_pixels
from vitreous.deployment.serving.endpoints import Served
from vitreous.inspection.images import enlarged, overlay, png, rgb

SHOWN = 256  # pixels of an overlay's longer side, at least
DIGITS = 6  # significant ones of a weight: more than an eye or a plot can tell


class ServedImages(Served):
    """A model of images.

    Args:
        most_pixels: of an image that is sent.
    """

    takes = "images"

    def __init__(self, model: Any, most_pixels: int) -> None:
        self.model = model
        self.most_pixels = most_pixels

    def checked(self, data: bytes, name: str) -> EncodedImage:
        """An image whose header has been read, of at most `most_pixels`. Raises BadImage."""
        encoded = EncodedImage(data, name, self.model.preprocessing.channels)
        height, width = encoded.size
        if height * width > self.most_pixels:
            raise BadImage(name, f"{width}x{height} pixels are over the {self.most_pixels} that are allowed")
        return encoded

    def decode(self, data: bytes, name: str) -> Any:
        """The image at its own size."""
        return load_pixels(self.checked(data, name).image, name)

    def facts(self) -> dict[str, Any]:
        return {"preprocessing": self.model.preprocessing.model_dump(mode="json")}

    def sample(self) -> bytes:
        return png(np.zeros((*self.model.preprocessing.size, 3), dtype=np.uint8))


def heat_png(pixels: UInt8[Tensor, "C H W"], values: Float[Tensor, "rows columns"]) -> bytes:
    """A PNG of the image with heat over it, scaled to the map's largest value."""
    return png(overlay(enlarged(rgb(pixels), SHOWN), values.float().cpu()))


def rounded(values: Tensor) -> Any:
    """A tensor as nested lists of numbers with few digits."""
    numbers = [float(f"{value:.{DIGITS}g}") for value in values.detach().float().flatten().tolist()]
    return np.array(numbers).reshape(tuple(values.shape)).tolist()
