"""Flips and affine changes of a whole batch, each image its own."""

from __future__ import annotations

import math
from functools import cache

import torch
from jaxtyping import Float, Shaped
from torch import Tensor
from torch.nn import functional as F

from vitreous.data.config import AffineConfig
from vitreous.data.randomness import BatchChance


def flip_(images: Shaped[Tensor, "B C H W"], probability: float, chance: BatchChance) -> None:
    """Mirror some images left and right, in place; bytes or numbers."""
    chosen = chance.uniform(0.0, 1.0) < probability
    if images.device.type != "cpu":
        places = chosen.to(images.device)
        images[places] = images[places].flip(-1)
        return
    for place in chosen.nonzero().flatten().tolist():  # one by one they stay in the cache: 20 times as fast
        images[place] = images[place].flip(-1)


def affine(
    images: Float[Tensor, "B C H W"], config: AffineConfig, chance: BatchChance
) -> Float[Tensor, "B C H W"]:
    """Each image rotated, scaled, sheared and shifted by its own draw, interpolated bilinearly."""
    height, width = images.shape[2:]
    turn = chance.uniform(-config.rotate, config.rotate) * (math.pi / 180)
    shear = (chance.uniform(-config.shear, config.shear) * (math.pi / 180)).tan()
    scale = 1 / chance.uniform(1 - config.scale, 1 + config.scale)
    # Shifts are parts of a side; the grid's side is 2 long.
    right = 2 * chance.uniform(-config.translate, config.translate)
    down = 2 * chance.uniform(-config.translate, config.translate)
    cos, sin = turn.cos() * scale, turn.sin() * scale
    # Rows of (rotation x shear), from the place in the result to the place in the image. The grid runs from
    # -1 to 1 on both sides, so that an image that is not square needs its ratio put in.
    ratio = height / width
    rows = torch.stack([cos, (cos * shear - sin) * ratio, right, sin / ratio, sin * shear + cos, down], dim=1)
    grid = F.affine_grid(rows.view(-1, 2, 3).to(images.device), list(images.shape), align_corners=False)
    if config.elastic:
        grid = grid + bending(config.elastic, height, width, chance).to(images.device)
    # Where nothing is known grid_sample puts zeros: the mean, as images are normalized.
    level = images.amin(dim=(2, 3), keepdim=True) if config.fill == "darkest" else 0.0
    padding = "border" if config.fill == "border" else "zeros"
    moved = F.grid_sample(images - level, grid, mode="bilinear", padding_mode=padding, align_corners=False)
    return moved + level


def bending(deviation: float, height: int, width: int, chance: BatchChance) -> Float[Tensor, "B H W 2"]:
    """Smooth displacements, as elastic distortions of digits (Simard et al., 2003), in half sides: drawn at
    4 x 4 points and interpolated between them."""
    points = 2 * deviation * chance.normal(2, 4, 4)
    smooth = bicubic(height) @ points @ bicubic(width).T
    return smooth.permute(0, 2, 3, 1)


@cache
def bicubic(size: int) -> Float[Tensor, "size 4"]:
    """Bicubic interpolation from 4 points to `size` as a matrix: for images of few pixels, several times as
    fast as `interpolate`."""
    return F.interpolate(torch.eye(4)[None, ..., None], (size, 1), mode="bicubic")[0, ..., 0].T
