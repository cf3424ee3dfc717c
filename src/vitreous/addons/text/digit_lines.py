"""Lines of 3 to 8 handwritten digits, composed from scikit-learn's: a small, real task of reading.

No digit is in both training and test lines. Test lines are composed once, training lines for each step, so
that none is seen twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Int, Shaped
from torch import Tensor

from vitreous.addons.text.batches import CaptionBatch, padded, tokens_per_target
from vitreous.addons.text.tokenizer import END, START, Tokenizer
from vitreous.data.batch_augmentation import BatchRandom, BatchTransform, affine
from vitreous.data.config import AffineConfig, DataConfig, SplitByName
from vitreous.data.dataset import ArrayImages, ImageDataset, Indices
from vitreous.data.loading import BatchLoader, DevicePrefetcher
from vitreous.data.sampling import Counted, Order, Rows, Sampler
from vitreous.data.sources.small import open_digits
from vitreous.errors import InputError
from vitreous.models.preprocessing import Preprocessing
from vitreous.rng import numpy_generator, torch_generator

DIGIT_LINES = "digit-lines"
HEIGHT, WIDTH, SIDE = 12, 80, 8
FEWEST, MOST = 3, 8
TEST_LINES = 1000
EPOCH = 9600  # lines
# Until so many lines were read: the fewest and the most digits of a line. Without short lines at first, most
# digits stay unread for 2,000 steps: nothing tells the decoder where to look before it knows one digit.
LESSONS = ((9600, 1, 2), (19_200, 1, 4))
CHANGES = AffineConfig(rotate=12, translate=0.05, scale=0.12, shear=8, elastic=0.02, fill="darkest")
NOISE = 0.05  # standard deviation, of normalized values

Texts = list[str]


class Layout(NamedTuple):
    """Where the digits of B lines are: lengths (B,); tops and lefts (D,) of all D digits, line by line."""

    lengths: Int[np.ndarray, " B"]
    tops: Int[np.ndarray, " D"]
    lefts: Int[np.ndarray, " D"]


def digit_lines(seed: int) -> tuple[tuple[ImageDataset, Texts], tuple[ImageDataset, Texts]]:
    """Single digits to learn from with their names; test lines, 12 x 80 pixels, with their texts."""
    train, _, test = open_digits(DataConfig(split=SplitByName(seed=seed)))
    if test is None:
        raise InputError("the bundled digits have no test part")
    return (train, names(train)), compose(test, TEST_LINES, np.random.default_rng((seed, 1)))


def digit_line_loader(
    digits: ImageDataset,
    tokenizer: Tokenizer,
    *,
    preprocessing: Preprocessing,
    longest: int,
    batch_size: int,
    seed: int,
    rank: int = 0,
    world_size: int = 1,
    device: str | torch.device = "cpu",
) -> DevicePrefetcher[CaptionBatch]:
    """Return batches of lines, short ones first. Each process composes all of them, and learns from its part.

    Args:
        longest: tokens that the model writes.
        batch_size: lines of a whole batch, which `world_size` processes share.

    Raises:
        InputError: images of another size are wanted, or the model cannot write a whole line.
    """
    if (preprocessing.size, preprocessing.channels) != ((HEIGHT, WIDTH), 1):
        raise InputError(
            f"lines of digits are gray images of {HEIGHT} x {WIDTH} pixels: leave the encoder's "
            "image_size and channels as they are"
        )
    if longest < MOST + 3:
        raise InputError(
            f"a line of {MOST} digits has up to {MOST + 3} tokens: set model.decoder.max_length to that or "
            "more"
        )
    pixels = torch.from_numpy(np.stack([np.asarray(digits.image(row)) for row in range(len(digits))]))
    of_digit = names(digits)
    count = max(EPOCH // batch_size, 1) * batch_size
    sampler = Sampler(
        lambda epoch: Order(Counted(count)), count, batch_size=batch_size, rank=rank, world_size=world_size
    )

    def collate(samples: Sequence[int], indices: Indices, rows: Rows) -> CaptionBatch:
        rng = numpy_generator(seed, "lines", rows.epoch, rows.step)
        read = rows.epoch * count + rows.step * batch_size
        lengths = next(((low, high) for until, low, high in LESSONS if read < until), (FEWEST, MOST))
        layout = lay_out(batch_size, rng, *lengths)
        chosen = rng.integers(len(digits), size=len(layout.lefts))
        # Each digit rotated, scaled, slanted, shifted and bent a little before it is put into its line.
        random = BatchRandom(seed, rows.epoch, rows.step, size=len(chosen))
        changed = affine(pixels[chosen][:, None].float(), CHANGES, random)[:, 0].round().to(torch.uint8)
        written = texts([of_digit[index] for index in chosen], layout)
        targets = [[START, *tokenizer.encode(text), END] for text in written]
        return CaptionBatch(
            paint(changed, layout)[rows.mine],
            padded(targets[rows.mine]),
            tokens_per_target(targets, len(samples)),
        )

    normalized = BatchTransform(preprocessing)

    def transform(batch: CaptionBatch, epoch: int, step: int) -> CaptionBatch:
        """Noise of the whole batch, since lines are small: the same lines for any number of processes."""
        generator = torch_generator(seed, "noise", epoch, step)
        noise = torch.randn(batch_size, 1, HEIGHT, WIDTH, generator=generator).chunk(world_size)[rank]
        batch = normalized(batch, epoch, step)
        return batch._replace(images=batch.images + NOISE * noise.to(batch.images.device))

    normalized.to(device)
    return DevicePrefetcher(BatchLoader(sampler, lambda index, rng: index, collate), transform, device)


def names(digits: ImageDataset) -> Texts:
    return [digits.label(index) for index in range(len(digits))]


def compose(digits: ImageDataset, count: int, rng: np.random.Generator) -> tuple[ImageDataset, Texts]:
    """Lines of digits sampled at random, at random places that do not overlap, and their texts."""
    layout = lay_out(count, rng)
    sampled = rng.integers(len(digits), size=len(layout.lefts))
    pixels = torch.from_numpy(np.stack([np.asarray(digits.image(int(index))) for index in sampled]))
    targets: Int[np.ndarray, " B"] = np.zeros(count, dtype=np.int64)
    lines = ArrayImages(paint(pixels, layout)[:, 0].numpy(), targets, ("text",), name=DIGIT_LINES)
    every = names(digits)
    return lines, texts([every[index] for index in sampled], layout)


def lay_out(count: int, rng: np.random.Generator, fewest: int = FEWEST, most: int = MOST) -> Layout:
    """Places for `fewest` to `most` digits in each of `count` lines."""
    lengths = rng.integers(fewest, most + 1, size=count)
    place = np.arange(most)
    real = place < lengths[:, None]
    room = np.minimum(WIDTH - SIDE * lengths, 2 * lengths)  # lines begin at the left, as writing does
    blank = rng.integers(0, room[:, None] + 1, size=(count, most))
    blank = np.sort(np.where(real, blank, WIDTH), axis=1)  # pixels without ink before each digit
    tops = rng.integers(0, HEIGHT - SIDE + 1, size=(count, most))
    return Layout(lengths, tops[real], (blank + SIDE * place)[real])


def paint(digits: Shaped[Tensor, "D 8 8"], layout: Layout) -> Shaped[Tensor, "B 1 12 80"]:
    """The lines: digits on a ground of zeros."""
    lengths, tops, lefts = (torch.from_numpy(each) for each in layout)
    line = torch.repeat_interleave(torch.arange(len(lengths)), lengths)[:, None, None]
    side = torch.arange(SIDE)
    canvas = digits.new_zeros(len(lengths), 1, HEIGHT, WIDTH)
    canvas[line, 0, tops[:, None, None] + side[:, None], lefts[:, None, None] + side] = digits
    return canvas


def texts(sampled: Sequence[str], layout: Layout) -> Texts:
    """The names of the sampled digits, line by line."""
    ends = layout.lengths.cumsum()
    return ["".join(sampled[end - length : end]) for end, length in zip(ends, layout.lengths, strict=True)]
