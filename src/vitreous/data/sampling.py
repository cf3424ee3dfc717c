"""In which order an epoch visits the samples, and which of a batch's rows are this process's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vitreous.data.dataset import Indices, strata
from vitreous.errors import InputError
from vitreous.rng import numpy_generator

WINDOW = 16  # blocks whose images are mixed
POOL = 64  # batches whose rows are sorted by length together: sorting all would make every epoch alike


class Order(NamedTuple):
    """The samples of an epoch, and which copy of each: the copies of one image are augmented differently."""

    indices: Indices
    copies: Indices


class Rows(NamedTuple):
    """One batch of all processes. mine: the part of it that belongs to this process."""

    epoch: int
    step: int
    indices: Indices
    copies: Indices
    mine: slice


class Sampler:
    """The batches of each epoch, which all processes share.

    A last batch that is not full is left out, but for `exact`.

    Args:
        order: of the samples in an epoch, by the epoch's number; the same in every process.
        count: samples in an epoch.
        batch_size: rows of a whole batch, a multiple of `world_size`.
        exact: for evaluation, in one process: every sample comes exactly once, and one that cannot be read is
            not replaced.

    Raises:
        InputError: there are fewer samples than one batch needs.
    """

    def __init__(
        self,
        order: Callable[[int], Order],
        count: int,
        *,
        batch_size: int,
        rank: int = 0,
        world_size: int = 1,
        exact: bool = False,
    ) -> None:
        if count < batch_size and not exact:
            raise InputError(
                f"a batch of {batch_size} is more than the {count} samples to train on: set "
                f"training.batch_size to at most {max(count // world_size, 1) * world_size}"
            )
        self.order, self.count, self.batch_size, self.exact = order, count, batch_size, exact
        share = batch_size // world_size
        self.mine = slice(rank * share, (rank + 1) * share)
        self.steps_per_epoch = -(-count // batch_size) if exact else count // batch_size

    def epoch(self, number: int, start: int = 0) -> Iterator[Rows]:
        """Yield the batches of an epoch from step `start` on."""
        order = self.order(number)
        for step in range(start, self.steps_per_epoch):
            rows = slice(step * self.batch_size, (step + 1) * self.batch_size)
            yield Rows(number, step, order.indices[rows], order.copies[rows], self.mine)


def once(indices: Indices) -> Order:
    """Return an order in which no sample is repeated."""
    return Order(indices, np.zeros(len(indices), dtype=np.int64))


def sequential(count: int) -> Order:
    """Return every sample once and in order."""
    return once(np.arange(count))


def shuffled(count: int, *, seed: int, epoch: int) -> Order:
    """Return every sample once, in random order."""
    return once(numpy_generator(seed, "order", epoch).permutation(count))


def shuffled_by_blocks(blocks: NDArray[np.int32], *, seed: int, epoch: int) -> Order:
    """Return every sample once, a few blocks at a time: blocks in random order, and the samples of each
    window of blocks mixed. For sources that read whole blocks."""
    rng = numpy_generator(seed, "order", epoch)
    names, block = np.unique(blocks, return_inverse=True)
    rank = rng.permutation(len(names))[block]
    return once(np.lexsort((rng.random(len(blocks)), rank // WINDOW)))


def shuffled_by_length(lengths: NDArray[np.int64], batch_size: int, *, seed: int, epoch: int) -> Order:
    """Return samples arranged so that each batch holds samples of similar length.

    The samples are shuffled, sorted by length within pools of many batches, and split into batches, which are
    shuffled, as are the rows of each, so that every process has long and short ones. The last samples that
    do not fill a batch are left out of this epoch.
    """
    rng = numpy_generator(seed, "order", epoch)
    rows = rng.permutation(len(lengths))[: len(lengths) // batch_size * batch_size]
    pools = np.array_split(rows, range(POOL * batch_size, len(rows), POOL * batch_size))
    by_length = np.concatenate([pool[np.argsort(lengths[pool], kind="stable")] for pool in pools])
    batches = rng.permutation(by_length.reshape(-1, batch_size))
    return once(rng.permuted(batches, axis=1).ravel())


def balanced(targets: NDArray[Any], *, seed: int, epoch: int) -> Order:
    """Return as many samples as there are, every class equally often: those of small classes are repeated."""
    rng = numpy_generator(seed, "order", epoch)
    groups = strata(targets)
    present = rng.permutation(np.unique(groups))
    quotas = np.full(len(present), len(targets) // len(present))
    quotas[: len(targets) % len(present)] += 1
    indices, copies = [], []
    for group, quota in zip(present, quotas, strict=True):
        members = np.flatnonzero(groups == group)
        rounds = -(-int(quota) // len(members))
        indices.append(np.concatenate([rng.permutation(members) for _ in range(rounds)])[:quota])
        copies.append(np.repeat(np.arange(rounds), len(members))[:quota])
    mixed = rng.permutation(len(targets))
    return Order(np.concatenate(indices)[mixed], np.concatenate(copies)[mixed])


def repeated(order: Order, copies: int, batch: int) -> Order:
    """Return an order with `copies` of each sample within a batch, and a part of the samples in each epoch,
    which stays as long as before, as in DeiT (repeated augmentation, arXiv 1902.05509)."""
    distinct = max(batch // copies, 1)
    place = np.arange(len(order.indices))
    block, within = place // (distinct * copies), place % (distinct * copies)
    source = np.minimum(block * distinct + within % distinct, len(place) - 1)
    return Order(order.indices[source], order.copies[source] * copies + within // distinct)
