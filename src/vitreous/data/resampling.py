"""Pillow's bicubic and bilinear resizing, to the last bit, in a sixth of its time.

Pillow works number by number. The loops of `compiled` make the same sums of whole numbers many at a time, and
only for what will be looked at. They need Numba (the extra "data").
"""

from __future__ import annotations

from functools import cache, lru_cache
from types import ModuleType
from typing import Any, Literal

import torch
from jaxtyping import UInt8
from torch import Tensor

Box = tuple[int, int, int, int]  # top, left, height, width
Kernel = Literal["bilinear", "bicubic"]


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
    """An image resized to `size` (H, W), antialiased where it becomes smaller. Quickest for pixels that lie
    channels last. Numba has to be there.

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
