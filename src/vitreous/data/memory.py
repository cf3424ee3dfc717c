"""Images decoded once and kept, in one block of bytes that all threads share."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from pathlib import Path

import numpy as np
import torch
from jaxtyping import UInt8
from torch import Tensor

from vitreous.data.dataset import BadFiles, BadImage, Indices

PART = 0.25  # of the machine's memory, for images: the model needs the rest
CGROUP = Path("/sys/fs/cgroup/memory.max")  # a container's own limit


class Kept:
    """The pixels of `count` images; a bad one is recorded and has none."""

    def __init__(
        self,
        count: int,
        decode: Callable[[int], UInt8[Tensor, "C H W"]],
        *,
        bad: BadFiles,
        executor: Executor | None = None,
    ) -> None:
        run = map if executor is None else executor.map
        self.sizes = np.zeros((count, 2), dtype=np.int32)
        self.channels = 0
        block = Block()
        for index, pixels in enumerate(run(partial(tried, decode), range(count))):
            if isinstance(pixels, BadImage):
                bad.add(pixels)
                continue
            self.channels = pixels.shape[0]
            self.sizes[index] = pixels.shape[1:]
            # Channels last: what the resize is fastest on.
            block.append(pixels.permute(1, 2, 0).reshape(-1))
        bad.check(count)
        self.data = block.bytes()
        self.ends = np.cumsum(self.sizes.prod(axis=1, dtype=np.int64) * self.channels)
        self.good = self.sizes[:, 0] > 0
        self.rows = np.cumsum(self.good) - 1  # an image's number among the good ones
        self.uniform = len(np.unique(self.sizes[self.good], axis=0)) == 1

    def pixels(self, index: int) -> UInt8[Tensor, "C H W"]:
        """One image's bytes; not a copy."""
        height, width = (int(side) for side in self.sizes[index])
        end = int(self.ends[index])
        flat = self.data[end - height * width * self.channels : end]
        return flat.view(height, width, self.channels).permute(2, 0, 1)

    def stacked(self, indices: Indices) -> UInt8[Tensor, "B C H W"]:
        """Several good images at once, where all have one size."""
        height, width = (int(side) for side in self.sizes[indices[0]])
        rows = torch.from_numpy(self.rows[indices])
        return self.data.view(-1, height, width, self.channels)[rows].permute(0, 3, 1, 2)


class Block:
    """Bytes that grow; never more than half of what is taken stands empty."""

    def __init__(self) -> None:
        self.data = torch.empty(1 << 20, dtype=torch.uint8)
        self.used = 0

    def append(self, flat: UInt8[Tensor, " n"]) -> None:
        end = self.used + len(flat)
        while end > len(self.data):
            # Grows in place where the allocator can: large blocks are remapped, not copied.
            self.data.untyped_storage().resize_(max(len(self.data) * 3 // 2, end))
            self.data = torch.empty(0, dtype=torch.uint8).set_(self.data.untyped_storage())
        self.data[self.used : end] = flat
        self.used = end

    def bytes(self) -> UInt8[Tensor, " n"]:
        return self.data[: self.used]


def tried(decode: Callable[..., Tensor], *numbers: int) -> Tensor | BadImage:
    """An image, or what was wrong with it: an exception would end the others' decoding."""
    try:
        return decode(*numbers)
    except BadImage as bad:
        return bad


def budget() -> float:
    """Bytes that kept images may take. A part of all memory and not of what happens to be free, so that a
    resumed run decides as the first one did."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if CGROUP.exists() and (limit := CGROUP.read_text().strip()).isdigit():
        total = min(total, int(limit))
    return PART * total
