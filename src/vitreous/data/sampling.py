"""In which order an epoch visits the samples."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vitreous.data.dataset import Indices, Targets
from vitreous.rng import mixed_bits, numpy_generator

WINDOW = 16  # blocks whose images are mixed
LARGE = 1 << 22  # samples, from which on an order is computed where it is asked for and not listed
ROUNDS = 6  # of the Feistel network; four make a permutation that is hard to tell from a random one
POOL = 64  # batches whose rows are sorted by length together: sorting all would make every epoch alike


class Counted:
    """0, 1, 2, ..., computed where it is sliced."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, rows: slice) -> Indices:
        return np.arange(*rows.indices(self.count))


class Order(NamedTuple):
    """The samples of an epoch, and which copy of each: the copies of one image are augmented differently.
    Without copies there is one of each."""

    indices: Indices | Counted
    copies: Indices | None = None


class Permutation(Counted):
    """A random order of 0 ... count - 1 in no memory: a Feistel network on the numbers of as many bits as
    they need, applied again to what lies outside (Black and Rogaway, 2002)."""

    def __init__(self, count: int, rng: np.random.Generator) -> None:
        super().__init__(count)
        self.half = np.uint64(max(-(-(count - 1).bit_length() // 2), 1))
        self.mask = np.uint64((1 << int(self.half)) - 1)
        self.keys = rng.integers(1 << 63, size=ROUNDS, dtype=np.uint64)

    def __getitem__(self, rows: slice) -> Indices:
        found = self.encrypted(super().__getitem__(rows).astype(np.uint64))
        while (outside := found >= self.count).any():
            found[outside] = self.encrypted(found[outside])
        return found.astype(np.int64)

    def encrypted(self, numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
        left, right = numbers >> self.half, numbers & self.mask
        for key in self.keys:
            left, right = right, left ^ (mixed_bits(right + key) & self.mask)
        return left << self.half | right


def shuffled_order(count: int, *, seed: int, epoch: int) -> Order:
    """Return every sample once, in random order."""
    rng = numpy_generator(seed, "order", epoch)
    return Order(Permutation(count, rng) if count > LARGE else rng.permutation(count))


class BlockOrder(Counted):
    """The samples of this process, a few blocks at a time, for sources that are read in whole blocks.

    The blocks come in random order and are dealt out to the processes, so that each block is read by one of
    them; the samples of each window of a process's blocks are mixed. Each process has the same number of
    samples, so some are left out of an epoch or come twice. Where there are fewer blocks than processes, they
    share all of them.

    Args:
        blocks: of each sample, ascending.
    """

    def __init__(
        self, blocks: NDArray[np.int32], *, seed: int, epoch: int, rank: int = 0, world_size: int = 1
    ) -> None:
        super().__init__(len(blocks) // world_size)
        starts = np.r_[0, np.flatnonzero(blocks[1:] != blocks[:-1]) + 1]
        chosen = numpy_generator(seed, "order", epoch).permutation(len(starts))
        shared = len(chosen) < world_size
        self.key = seed, epoch, 0 if shared else rank
        self.first = rank * self.count if shared else 0
        mine = chosen if shared else chosen[rank::world_size]
        self.starts, self.sizes = starts[mine], np.diff(starts, append=len(blocks))[mine]
        ends = np.cumsum(self.sizes)
        self.windows = np.r_[0, ends[WINDOW - 1 :: WINDOW][: -(-len(mine) // WINDOW) - 1], ends[-1]]
        self.cached = lru_cache(2)(self.window)

    def __getitem__(self, rows: slice) -> Indices:
        places = (super().__getitem__(rows) + self.first) % self.windows[-1]
        numbers = np.searchsorted(self.windows, places, side="right") - 1
        found = np.empty_like(places)
        for number in np.unique(numbers).tolist():
            here = numbers == number
            found[here] = self.cached(number)[places[here] - self.windows[number]]
        return found

    def window(self, number: int) -> Indices:
        """Return the samples of a window of blocks, mixed."""
        seed, *key = self.key
        blocks = slice(number * WINDOW, (number + 1) * WINDOW)
        parts = zip(self.starts[blocks].tolist(), self.sizes[blocks].tolist(), strict=True)
        samples = np.concatenate([np.arange(first, first + size) for first, size in parts])
        return numpy_generator(seed, "window", *key, number).permutation(samples)


def shuffled_by_length(lengths: NDArray[np.int64], batch_size: int, *, seed: int, epoch: int) -> Order:
    """Return samples arranged so that each batch holds samples of similar length.

    They are shuffled, sorted by length within pools of many batches, and split into batches, which are
    shuffled, as are the rows of each, so that every process has long and short ones. The last ones that do
    not fill a batch are left out of this epoch.
    """
    rng = numpy_generator(seed, "order", epoch)
    rows = rng.permutation(len(lengths))[: len(lengths) // batch_size * batch_size]
    pools = np.array_split(rows, range(POOL * batch_size, len(rows), POOL * batch_size))
    by_length = np.concatenate([pool[np.argsort(lengths[pool], kind="stable")] for pool in pools])
    batches = rng.permutation(by_length.reshape(-1, batch_size))
    return Order(rng.permuted(batches, axis=1).ravel())


def balanced_order(targets: Targets, *, seed: int, epoch: int) -> Order:
    """Return as many samples as there are, every class equally often: those of small classes are repeated."""
    rng = numpy_generator(seed, "order", epoch)
    groups = targets.strata()
    present = rng.permutation(np.unique(groups))
    quotas = np.full(len(present), len(groups) // len(present))
    quotas[: len(groups) % len(present)] += 1
    indices, copies = [], []
    for group, quota in zip(present, quotas, strict=True):
        members = np.flatnonzero(groups == group)
        rounds = -(-int(quota) // len(members))
        indices.append(np.concatenate([rng.permutation(members) for _ in range(rounds)])[:quota])
        copies.append(np.repeat(np.arange(rounds), len(members))[:quota])
    mixed = rng.permutation(len(groups))
    return Order(np.concatenate(indices)[mixed], np.concatenate(copies)[mixed])


def repeated(order: Order, copies: int, batch: int) -> Order:
    """Return an order with `copies` of each sample within a batch, and a part of the samples in each epoch,
    which stays as long as before, as in DeiT (repeated augmentation, arXiv 1902.05509).

    Every batch begins with a new image, so that copies never slide into the next one. Where the batch is no
    multiple of `copies`, a few of its images have one copy less.
    """
    distinct = -(-batch // copies)
    place = np.arange(len(order.indices))
    number, row = place // batch, place % batch
    source = np.minimum(number * distinct + row % distinct, len(place) - 1)
    before = 0 if order.copies is None else order.copies[source] * copies
    return Order(order.indices[:][source], before + row // distinct)
