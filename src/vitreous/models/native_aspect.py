"""Images in their own aspect ratio: resized to as many whole patches as fit, and padded to a batch.

A batch (B, C, H, W) holds each image in its upper left corner and NaN where there is no pixel of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from jaxtyping import Float
from PIL import Image
from torch import Tensor

from vitreous.errors import InputError
from vitreous.models.config_parts import Positive, Sides, setting
from vitreous.models.preprocessing import ImageLike, Preprocessing, as_stored, is_image, upright

STEP = 1e-5  # of the scale, to which NaFlex's codebases search it


class NativePreprocessing(Preprocessing):
    """Resize each image to whole patches, as many as `patches` allows, in its own aspect ratio but for the
    rounding up to whole patches; scale, normalize (NaFlex of SigLIP 2, arXiv 2502.14786, section 2.4.2)."""

    patch_size: Sides = setting((16, 16), "rows and columns of pixels")
    patches: Positive = setting(256, "the most of an image")

    def size_of(self, size: tuple[int, int]) -> tuple[int, int]:
        """Return the (H, W) to which an image of `size` is resized."""

        def whole(scale: float) -> tuple[int, int]:
            """The size at a scale, rounded up to whole patches."""
            height, width = (
                max(p, p * math.ceil(side * scale / p)) for side, p in zip(size, self.patch_size, strict=True)
            )
            return height, width

        low, high = STEP / 10, 100.0
        while high - low >= STEP:
            scale = (low + high) / 2
            height, width = whole(scale)
            fits = (height // self.patch_size[0]) * (width // self.patch_size[1]) <= self.patches
            low, high = (scale, high) if fits else (low, scale)
        height, width = whole(low)
        if (height // self.patch_size[0]) * (width // self.patch_size[1]) > self.patches:
            raise InputError(
                f"an image of {size[1]}x{size[0]} pixels is too long for {self.patches} patches: allow more "
                "with patches="
            )
        return height, width

    def image(self, image: Image.Image) -> Image.Image:
        """Return the image upright, in gray or RGB, at its own size."""
        image = upright(image, self.channels, self.value_range)
        height, width = self.size_of((image.height, image.width))
        return image.resize((width, height), getattr(Image.Resampling, self.interpolation.upper()))

    def __call__(
        self, images: ImageLike | Iterable[ImageLike]
    ) -> Float[Tensor, "C H W"] | Float[Tensor, "B C H W"]:
        """Turn one image into (C, H, W), or several into a padded batch (B, C, H, W)."""
        several: Any = images
        given: Any = list(several) if getattr(images, "ndim", 0) == 4 else several
        if is_image(given) or not isinstance(given, Iterable):
            return self.normalize(self.pixels(as_stored(given)))
        pixels = [self.pixels(as_stored(image)) for image in given]
        if not pixels:
            raise InputError("there are no images: preprocessing takes one image, or a list of at least one")
        return self.normalize(padded(pixels))


def padded(images: Sequence[Tensor]) -> Float[Tensor, "B C H W"]:
    """Return images of any sizes as one batch, each in the upper left corner, with NaN around it."""
    height = max(image.shape[1] for image in images)
    width = max(image.shape[2] for image in images)
    batch = torch.full((len(images), images[0].shape[0], height, width), math.nan, device=images[0].device)
    for row, image in zip(batch, images, strict=True):
        row[:, : image.shape[1], : image.shape[2]] = image
    return batch


def unpadded(batch: Float[Tensor, "B C H W"]) -> list[Float[Tensor, "C h w"]]:
    """Return the images of a batch that `padded` gave."""
    there = ~batch[:, 0].isnan()
    heights, widths = there[:, :, 0].sum(dim=1).tolist(), there[:, 0].sum(dim=1).tolist()
    return [image[:, :h, :w] for image, h, w in zip(batch, heights, widths, strict=True)]
