"""Chance that depends on nothing but a key, (seed, epoch, index): a resumed run draws what it would have."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

STREAM = 0x7669_7472_656F_7573  # "vitreous": parts these numbers from others drawn with the same seed


def image_chance(seed: int, epoch: int, index: int, copy: int) -> np.random.Generator:
    """For one image. Philox is counter-based: its counter is the key, nothing has to be hashed or kept."""
    return np.random.Generator(np.random.Philox(key=(seed, STREAM), counter=(0, copy, index, epoch)))


def order_chance(seed: int, epoch: int) -> np.random.Generator:
    """For the order of an epoch."""
    return np.random.default_rng((seed, epoch))


class BatchChance:
    """Random numbers for each image of a batch, keyed by (seed, epoch, step).

    They are drawn for the batch of all processes, and this process takes its rows: so two processes see just
    what one with the whole batch would have seen.
    """

    def __init__(self, *key: int, size: int, rank: int = 0, world_size: int = 1) -> None:
        word = np.random.SeedSequence(key).generate_state(1, np.uint64)[0]
        self.generator = torch.Generator().manual_seed(int(word) >> 1)
        self.total = size * world_size
        self.mine = slice(rank * size, (rank + 1) * size)

    def uniform(self, low: float, high: float) -> Tensor:
        """(B,): one number for each image."""
        return torch.empty(self.total).uniform_(low, high, generator=self.generator)[self.mine]

    def normal(self, *shape: int) -> Tensor:
        """(B, *shape): standard normal numbers for each image."""
        return torch.randn(self.total, *shape, generator=self.generator)[self.mine]

    def numpy(self) -> np.random.Generator:
        """For what is drawn once for the whole batch."""
        return np.random.default_rng(int(torch.randint(2**62, (1,), generator=self.generator)))
