"""Pairs as tensors: encoded once, put together with others of like length, padded little."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from vitreous.addons.text.text_pairs import Pair
from vitreous.addons.text.tokenizer import END, PAD, START, Tokenizer
from vitreous.data.dataset import Indices
from vitreous.data.loading import BatchLoader, BatchRows, Sampler
from vitreous.data.sampling import shuffled_by_length
from vitreous.errors import InputError


class TextBatch(NamedTuple):
    """source: (B, S), ended and padded. target: (B, T), begun too. tokens: (B,), by `tokens_per_target`."""

    source: Int64[Tensor, "B S"]
    target: Int64[Tensor, "B T"]
    tokens: Float[Tensor, " B"]


class EncodedPairs(NamedTuple):
    """Token ids of pairs, and how many pairs were left out because a side is longer than the model takes."""

    sources: list[list[int]]
    targets: list[list[int]]
    too_long: int


def encode_pairs(pairs: Sequence[Pair], tokenizer: Tokenizer, longest: int) -> EncodedPairs:
    """Return sources with an end mark, targets with both marks, none of more than `longest` tokens. Raises
    InputError: every pair is too long."""
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
    return EncodedPairs(sources, targets, len(pairs) - len(sources))


def padded_ids(rows: Sequence[Sequence[int]], pad: int = PAD) -> Int64[Tensor, "B T"]:
    """Return rows of ids, filled up to the longest."""
    longest = max(len(row) for row in rows)
    return torch.tensor([[*row, *[pad] * (longest - len(row))] for row in rows])


def tokens_per_target(targets: Sequence[Sequence[int]], rows: int) -> Float[Tensor, " B"]:
    """Return the mean number of tokens to predict in a target of a whole batch, once for each of `rows` rows.
    With it each token counts the same in every micro-batch and process, whose targets are longer here and
    shorter there."""
    asked = sum(len(target) - 1 for target in targets)  # the start token is not predicted
    return torch.full((rows,), asked / len(targets))


def pair_loader(
    encoded: EncodedPairs, *, batch_size: int, seed: int, rank: int = 0, world_size: int = 1
) -> BatchLoader[TextBatch]:
    """Return batches of pairs of similar length. batch_size: pairs of a whole batch, which `world_size`
    processes share."""
    lengths = np.array(
        [max(len(s), len(t)) for s, t in zip(encoded.sources, encoded.targets, strict=True)], dtype=np.int64
    )
    sampler = Sampler(
        lambda epoch: shuffled_by_length(lengths, batch_size, seed=seed, epoch=epoch),
        len(lengths),
        batch_size=batch_size,
        rank=rank,
        world_size=world_size,
    )

    def collate(samples: Sequence[int], indices: Indices, rows: BatchRows) -> TextBatch:
        return TextBatch(
            padded_ids([encoded.sources[row] for row in samples]),
            padded_ids([encoded.targets[row] for row in samples]),
            tokens_per_target([encoded.targets[row] for row in rows.indices], len(samples)),
        )

    return BatchLoader(sampler, lambda index, rng: index, collate)
