"""In which order an epoch visits the images."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vitreous.data.dataset import Indices
from vitreous.data.randomness import order_chance
from vitreous.data.splitting import strata

WINDOW = 16  # blocks whose images are mixed


class Order(NamedTuple):
    """Which images, and which copy of each: the copies of one image are augmented differently."""

    indices: Indices
    copies: Indices


def shuffled(count: int, *, seed: int, epoch: int) -> Order:
    """Every image once."""
    return Order(order_chance(seed, epoch).permutation(count), np.zeros(count, dtype=np.int64))


def shuffled_by_blocks(blocks: NDArray[np.int32], *, seed: int, epoch: int) -> Order:
    """Every image once, a few blocks at a time: blocks in random order, and the images of each window of
    blocks mixed. For sources that read whole blocks."""
    chance = order_chance(seed, epoch)
    names, block = np.unique(blocks, return_inverse=True)
    rank = chance.permutation(len(names))[block]
    order = np.lexsort((chance.random(len(blocks)), rank // WINDOW))
    return Order(order, np.zeros(len(blocks), dtype=np.int64))


def balanced(targets: NDArray[Any], *, seed: int, epoch: int) -> Order:
    """As many images as there are, every class equally often: those of small classes come again."""
    chance = order_chance(seed, epoch)
    groups = strata(targets)
    present = chance.permutation(np.unique(groups))
    quotas = np.full(len(present), len(targets) // len(present))
    quotas[: len(targets) % len(present)] += 1
    indices, copies = [], []
    for group, quota in zip(present, quotas, strict=True):
        members = np.flatnonzero(groups == group)
        rounds = -(-int(quota) // len(members))
        indices.append(np.concatenate([chance.permutation(members) for _ in range(rounds)])[:quota])
        copies.append(np.repeat(np.arange(rounds), len(members))[:quota])
    mixed = chance.permutation(len(targets))
    return Order(np.concatenate(indices)[mixed], np.concatenate(copies)[mixed])


def repeated(order: Order, repeats: int, batch: int) -> Order:
    """Repeated augmentation (arXiv 1902.05509): `repeats` copies of each image within a batch, and a part
    of the images in each epoch, which stays as long as before (as DeiT has it)."""
    distinct = max(batch // repeats, 1)
    place = np.arange(len(order.indices))
    block, within = place // (distinct * repeats), place % (distinct * repeats)
    source = np.minimum(block * distinct + within % distinct, len(place) - 1)
    return Order(order.indices[source], order.copies[source] * repeats + within // distinct)
