"""Lines of digits to learn from, composed anew for every step: no line is seen twice, and no digit twice in
the same form."""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from vitreous.data.augmentation.geometry import affine
from vitreous.data.config import AffineConfig
from vitreous.data.dataset import BadFiles
from vitreous.data.randomness import BatchChance
from vitreous.data.text.batches import padded, tokens_to_write
from vitreous.data.text.caption_batches import CaptionBatch
from vitreous.data.text.captions import Captions
from vitreous.data.text.digit_lines import FEWEST, HEIGHT, MOST, WIDTH, Layout, lay_out, paint, texts
from vitreous.data.text.tokenizer import END, START, Tokenizer
from vitreous.errors import InputError
from vitreous.models.preprocessing import Preprocessing

EPOCH = 9600  # lines
# Until so many lines were read: the fewest and the most digits of a line. Without short lines at first, most
# digits stay unread for 2,000 steps: nothing tells the decoder where to look before it knows one digit.
LESSONS = ((9600, 1, 2), (19_200, 1, 4))
CHANGES = AffineConfig(rotate=12, translate=0.05, scale=0.12, shear=8, elastic=0.02, fill="darkest")
NOISE = 0.05  # standard deviation, of normalized values


class FreshLines:
    """Batches of lines, short ones first. Batch `step` of an epoch depends on (seed, epoch, step) alone. Each
    of `world_size` processes composes all of it, and learns from its part.

    Args:
        digits: single digits and their names; they are the `examples`.
        longest: tokens that the model writes.

    Raises:
        InputError: images of another size are wanted, or the model cannot write a whole line.
    """

    def __init__(
        self,
        digits: Captions,
        tokenizer: Tokenizer,
        *,
        preprocessing: Preprocessing,
        longest: int,
        batch_size: int,
        seed: int,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        if (preprocessing.size, preprocessing.channels) != ((HEIGHT, WIDTH), 1):
            raise InputError(
                f"lines of digits are gray images of {HEIGHT} x {WIDTH} pixels: leave preprocessing.size, "
                "preprocessing.channels and the encoder's image_size and channels as they are"
            )
        if longest < MOST + 3:
            raise InputError(
                f"a line of {MOST} digits has up to {MOST + 3} tokens: set model.decoder.max_length to that "
                "or more"
            )
        images = [np.asarray(digits.images.image(row)) for row in range(len(digits.texts))]
        self.pixels = torch.from_numpy(np.stack(images))
        self.names, self.tokenizer, self.preprocessing = digits.texts, tokenizer, preprocessing
        self.batch_size, self.seed = batch_size, seed
        self.mine = slice(rank, None, world_size)
        self.examples, self.too_long, self.bad = len(digits.texts), 0, BadFiles()  # all are read, and fit
        self.wait_seconds = 0.0

    @property
    def steps_per_epoch(self) -> int:
        return max(EPOCH // self.batch_size, 1)

    def epoch(self, number: int, start: int = 0) -> Iterator[CaptionBatch]:
        """The batches of an epoch from step `start` on."""
        for step in range(start, self.steps_per_epoch):
            begun = perf_counter()
            batch = self.batch(number, step)
            self.wait_seconds += perf_counter() - begun
            yield batch

    def batch(self, epoch: int, step: int) -> CaptionBatch:
        """This process's lines of one step."""
        rng = np.random.default_rng((self.seed, epoch, step))
        fewest, most = self.lesson(epoch * self.steps_per_epoch + step)
        layout = lay_out(self.batch_size, rng, fewest=fewest, most=most)
        drawn = rng.integers(len(self.names), size=len(layout.lefts))
        written = texts([self.names[index] for index in drawn], layout)
        targets = [[START, *self.tokenizer.encode(text), END] for text in written]
        chance = BatchChance(self.seed, epoch, step, size=len(drawn))
        images, target = self.images(drawn, layout, chance)[self.mine], padded(targets[self.mine])
        return CaptionBatch(images, target, tokens_to_write(targets, len(target)))

    def lesson(self, step: int) -> tuple[int, int]:
        """The fewest and the most digits of a line at a step, counted from 0."""
        read = step * self.batch_size
        return next(((fewest, most) for until, fewest, most in LESSONS if read < until), (FEWEST, MOST))

    def images(self, drawn: np.ndarray, layout: Layout, chance: BatchChance) -> Float[Tensor, "B 1 12 80"]:
        """Each digit turned, scaled, slanted, shifted and bent a little before it is put into its line."""
        changed = affine(self.pixels[drawn][:, None].float(), CHANGES, chance)[:, 0]
        lines = self.preprocessing.normalize(paint(changed.round().to(torch.uint8), layout))
        return lines + NOISE * torch.randn(lines.shape, generator=chance.generator)
