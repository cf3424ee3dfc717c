"""Pairs as tensors: encoded once, put together with others of like length, padded little."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from vitreous.data.randomness import order_chance
from vitreous.data.text.parallel import Pair
from vitreous.data.text.tokenizer import END, PAD, START, Tokenizer
from vitreous.errors import InputError

POOL = 64  # batches whose pairs are sorted by length together: sorting all would make every epoch alike


class TextBatch(NamedTuple):
    """source: (B, S), ended and padded. target: (B, T), begun, ended and padded. tokens: (B,), as
    `tokens_to_write` has it."""

    source: Int64[Tensor, "B S"]
    target: Int64[Tensor, "B T"]
    tokens: Float[Tensor, " B"]


class Encoded(NamedTuple):
    """Token ids of pairs, and how many pairs were left out because a side has more tokens than the model
    takes."""

    sources: list[list[int]]
    targets: list[list[int]]
    too_long: int


def encode_pairs(pairs: Sequence[Pair], tokenizer: Tokenizer, longest: int) -> Encoded:
    """Sources with an end mark, targets with both marks, none of more than `longest` tokens.

    Raises:
        InputError: every pair is too long.
    """
    sources, targets = [], []
    for pair in pairs:
        source = [*tokenizer.encode(pair.source), END]
        target = [START, *tokenizer.encode(pair.target), END]
        if max(len(source), len(target)) <= longest:
            sources.append(source)
            targets.append(target)
    if not sources:
        raise InputError(
            f"each of the {len(pairs)} pairs has more than {longest} tokens: raise model.max_length, or "
            "tokenizer.vocabulary for longer tokens"
        )
    return Encoded(sources, targets, len(pairs) - len(sources))


def padded(rows: Sequence[Sequence[int]]) -> Int64[Tensor, "B T"]:
    """Rows of ids, filled up to the longest."""
    longest = max(len(row) for row in rows)
    return torch.tensor([[*row, *[PAD] * (longest - len(row))] for row in rows])


def tokens_to_write(targets: Sequence[Sequence[int]], rows: int) -> Float[Tensor, " B"]:
    """How many tokens a target of a whole batch asks for on average, once for each of `rows` rows.

    A batch is cut into parts and shared by processes, whose targets are longer here and shorter there. With
    this number each token counts the same, wherever it lies.
    """
    asked = sum(len(target) - 1 for target in targets)  # a target begins with a mark that nobody writes
    return torch.full((rows,), asked / len(targets))


class BucketLoader:
    """Batches of pairs of like length. Batch `step` of an epoch depends on (seed, epoch, step) alone.

    In each epoch the pairs are shuffled, sorted by length within pools of many batches, cut into batches,
    and the batches are shuffled. The last pairs that fill no batch are left for another epoch.

    batch_size: pairs of a whole batch, which `world_size` processes share; each of them has long and short
    ones.
    """

    wait_seconds = 0.0  # everything lies in memory already

    def __init__(
        self, encoded: Encoded, *, batch_size: int, seed: int, rank: int = 0, world_size: int = 1
    ) -> None:
        if len(encoded.sources) < batch_size:
            raise InputError(
                f"{len(encoded.sources)} pairs to train on are less than one batch of {batch_size}: set a "
                "smaller training.batch_size"
            )
        self.encoded, self.batch_size, self.seed = encoded, batch_size, seed
        self.rank, self.world_size = rank, world_size
        self.lengths = np.array(
            [max(len(s), len(t)) for s, t in zip(encoded.sources, encoded.targets, strict=True)]
        )

    @property
    def steps_per_epoch(self) -> int:
        return len(self.lengths) // self.batch_size

    def epoch(self, number: int, start: int = 0) -> Iterator[TextBatch]:
        """This process's rows of the batches of an epoch from step `start` on."""
        for rows in self.order(number)[start:]:
            mine = rows[self.rank :: self.world_size]
            yield TextBatch(
                padded([self.encoded.sources[row] for row in mine]),
                padded([self.encoded.targets[row] for row in mine]),
                tokens_to_write([self.encoded.targets[row] for row in rows], len(mine)),
            )

    def order(self, epoch: int) -> list[np.ndarray]:
        """Which pairs each batch holds."""
        chance = order_chance(self.seed, epoch)
        rows = chance.permutation(len(self.lengths))[: self.steps_per_epoch * self.batch_size]
        batches: list[np.ndarray] = []
        for pool in np.array_split(rows, range(POOL * self.batch_size, len(rows), POOL * self.batch_size)):
            by_length = pool[np.argsort(self.lengths[pool], kind="stable")]
            batches += np.split(by_length, len(by_length) // self.batch_size)
        return [batches[place] for place in chance.permutation(len(batches))]
