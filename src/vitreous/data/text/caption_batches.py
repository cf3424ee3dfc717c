"""Images and texts as tensors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from time import perf_counter
from typing import NamedTuple

import torch
from jaxtyping import Float, Int64, UInt8
from torch import Tensor

from vitreous.data.dataset import BadFiles, BadImage
from vitreous.data.randomness import order_chance
from vitreous.data.text.batches import padded, tokens_to_write
from vitreous.data.text.captions import Captions
from vitreous.data.text.tokenizer import END, START, Tokenizer
from vitreous.errors import InputError
from vitreous.models.preprocessing import Preprocessing, to_tensor

KEPT = 2**30  # bytes of images at the model's size that are kept in memory


class CaptionBatch(NamedTuple):
    """images: normalized, (B, C, H, W). target: (B, T), begun, ended and padded. tokens: (B,), as
    `tokens_to_write` has it."""

    images: Float[Tensor, "B C H W"]
    target: Int64[Tensor, "B T"]
    tokens: Float[Tensor, " B"]


class CaptionLoader:
    """Shuffled batches of images and texts. Batch `step` of an epoch depends on (seed, epoch, step) alone.
    It has `batch_size` rows, which `world_size` processes share.

    Images that cannot be read are replaced by others of their batch and recorded in `bad`; more than 1 %
    of them are an error. Texts of more tokens than the model writes are left out and counted in `too_long`;
    `examples` are what is left.
    """

    def __init__(
        self,
        captions: Captions,
        tokenizer: Tokenizer,
        *,
        preprocessing: Preprocessing,
        longest: int,
        batch_size: int,
        seed: int,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        targets = [[START, *tokenizer.encode(text), END] for text in captions.texts]
        self.rows = [row for row, target in enumerate(targets) if len(target) <= longest]
        self.examples, self.too_long = len(self.rows), len(targets) - len(self.rows)
        if len(self.rows) < batch_size:
            raise InputError(
                f"{len(self.rows)} images to train on are less than one batch of {batch_size}: set a "
                "smaller training.batch_size"
            )
        self.captions, self.targets, self.preprocessing = captions, targets, preprocessing
        self.batch_size, self.seed = batch_size, seed
        self.rank, self.world_size = rank, world_size
        self.bad = BadFiles()
        self.wait_seconds = 0.0
        height, width = preprocessing.size
        keep = len(self.rows) * height * width * preprocessing.channels <= KEPT
        self.kept: dict[int, UInt8[Tensor, "C H W"]] | None = {} if keep else None

    @property
    def steps_per_epoch(self) -> int:
        return len(self.rows) // self.batch_size

    def epoch(self, number: int, start: int = 0) -> Iterator[CaptionBatch]:
        """The batches of an epoch from step `start` on."""
        order = order_chance(self.seed, number).permutation(self.rows)
        for step in range(start, self.steps_per_epoch):
            begun = perf_counter()
            batch = self.batch([int(r) for r in order[step * self.batch_size : (step + 1) * self.batch_size]])
            self.wait_seconds += perf_counter() - begun
            yield batch

    def batch(self, rows: Sequence[int]) -> CaptionBatch:
        """This process's part of these images and texts."""
        mine = rows[self.rank :: self.world_size]
        read = [(row, pixels) for row in mine if (pixels := self.pixels(row)) is not None]
        if not read:
            raise InputError("no image of a whole batch can be read: look at bad_files.txt")
        read += [read[place % len(read)] for place in range(len(mine) - len(read))]
        images = self.preprocessing.normalize(torch.stack([pixels for _, pixels in read]))
        target = padded([self.targets[row] for row, _ in read])
        return CaptionBatch(images, target, tokens_to_write([self.targets[row] for row in rows], len(read)))

    def pixels(self, row: int) -> UInt8[Tensor, "C H W"] | None:
        """One image at the model's size; None if it cannot be read."""
        if self.kept is not None and row in self.kept:
            return self.kept[row]
        try:
            pixels = to_tensor(self.preprocessing.image(self.captions.images.image(row)))
        except BadImage as bad:
            self.bad.add(bad)
            self.bad.check(len(self.rows))
            return None
        if self.kept is not None:
            self.kept[row] = pixels
        return pixels
