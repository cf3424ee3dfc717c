"""What classical methods compare of an image: histograms of oriented gradients and of color, and the pixels
themselves. Every operation is one of PyTorch that can be exported.

The gradients are those of Dalal and Triggs (2005), of many images at once: equal to scikit-image's `hog`,
which takes them one by one, to the last digits of float32 (a test compares them).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

CELL, ORIENTATIONS = 8, 9  # pixels at the side of a cell; directions in half a turn
CLIPPED = 0.2  # of a block, before it is normalized again (L2-Hys)
LEVELS, GRAY_LEVELS = 4, 16  # of each channel in a histogram of color, and in one of gray or of bands

ByteImages = Float[Tensor, "B C H W"]  # of whole numbers from 0 to 255


def oriented_gradients(images: ByteImages) -> Float[Tensor, "B features"]:
    """Return histograms of oriented gradients: 9 directions in cells of 8 x 8 pixels, each block of 2 x 2
    cells normalized; of several channels the one that changes most, pixel by pixel."""
    down = F.pad(images[:, :, 2:] - images[:, :, :-2], (0, 0, 1, 1))
    across = F.pad(images[..., 2:] - images[..., :-2], (1, 1))
    size = down.square() + across.square()
    most, most_down, most_across = size[:, 0], down[:, 0], across[:, 0]
    for channel in range(1, images.shape[1]):
        larger = size[:, channel] > most
        most = torch.where(larger, size[:, channel], most)
        most_down = torch.where(larger, down[:, channel], most_down)
        most_across = torch.where(larger, across[:, channel], most_across)

    # A gradient and its opposite have one direction. Its number is how many limits of 20, 40 ... degrees it
    # has passed, each decided by the sign of a product: an arc tangent is another operation in every engine.
    opposite = (most_down < 0) | ((most_down == 0) & (most_across < 0))
    most_down = torch.where(opposite, -most_down, most_down)
    most_across = torch.where(opposite, -most_across, most_across)
    angles = [math.pi * limit / ORIENTATIONS for limit in range(1, ORIENTATIONS)]
    like: dict[str, Any] = {"dtype": images.dtype, "device": images.device}
    cosines = torch.tensor([math.cos(angle) for angle in angles], **like).view(-1, 1, 1)
    sines = torch.tensor([math.sin(angle) for angle in angles], **like).view(-1, 1, 1)
    passed = most_down[:, None] * cosines - most_across[:, None] * sines >= 0
    number = passed.to(images.dtype).sum(dim=1, keepdim=True)
    numbers = torch.arange(ORIENTATIONS, **like).view(-1, 1, 1)
    directions = torch.where(number == numbers, most.sqrt()[:, None], 0.0)
    cells = F.avg_pool2d(directions, CELL).permute(0, 2, 3, 1)
    corners = (cells[:, :-1, :-1], cells[:, :-1, 1:], cells[:, 1:, :-1], cells[:, 1:, 1:])  # of each block
    blocks = torch.cat(corners, dim=-1)
    return unit(unit(blocks).clamp(max=CLIPPED)).flatten(1)


def unit(values: Float[Tensor, "*N D"]) -> Float[Tensor, "*N D"]:
    """Return vectors of length 1."""
    return values / (values.square().sum(dim=-1, keepdim=True) + 1e-10).sqrt()


def color_histogram(images: ByteImages) -> Float[Tensor, "B bins"]:
    """Return the root of the share of each of 64 colors; of gray and of other bands 16 levels each."""
    flat = images.flatten(2)
    if flat.shape[1] != 3:
        return has_level(flat, GRAY_LEVELS).mean(dim=-1).flatten(1).sqrt()
    red, green, blue = has_level(flat, LEVELS).unbind(dim=1)
    both = (red[:, :, None] * green[:, None]).flatten(1, 2)
    return ((both @ blue.transpose(1, 2)) / flat.shape[2]).flatten(1).sqrt()


def has_level(values: Float[Tensor, "B C P"], levels: int) -> Float[Tensor, "B C L P"]:
    """Return 1 where a pixel of 0 ... 255 has a level, and 0 elsewhere."""
    found = (values * levels / 256).floor()
    numbers = torch.arange(levels, dtype=values.dtype, device=values.device).view(-1, 1)
    return (found[:, :, None] == numbers).to(values.dtype)


def shape_and_color(images: ByteImages) -> Float[Tensor, "B features"]:
    """Return gradients and colors, the gradients' blocks together as long as one color histogram."""
    blocks = (images.shape[2] // CELL - 1) * (images.shape[3] // CELL - 1)
    return torch.cat([oriented_gradients(images) / blocks**0.5, color_histogram(images)], dim=1)


def plain_pixels(images: ByteImages) -> Float[Tensor, "B features"]:
    """Return the numbers of small images, every second row and column of them, in 0 ... 1, pixel by pixel."""
    return images[:, :, ::2, ::2].permute(0, 2, 3, 1).flatten(1) / 255


def thumbnail(images: ByteImages) -> Float[Tensor, "B features"]:
    """Return the means of squares of 4 x 4 pixels, in 0 ... 1."""
    return F.avg_pool2d(images, 4).flatten(1) / 255


class Descriptor(NamedTuple):
    """What is compared of images, and at which size they are described."""

    describe: Callable[[ByteImages], Float[Tensor, "B features"]]
    side: int

    def width(self, channels: int) -> int:
        """Return how many numbers it has."""
        return self.describe(torch.zeros(1, channels, self.side, self.side)).shape[1]


DESCRIPTORS = {
    "gradients": Descriptor(shape_and_color, 64),
    "pixels": Descriptor(plain_pixels, 64),
    "thumbnail": Descriptor(thumbnail, 64),
}
