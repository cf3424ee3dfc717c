"""Lines of 3 to 8 handwritten digits, composed from scikit-learn's: reading as a small job that is real.

No digit stands in training and test lines: the single digits are split first, and lines are made from each
side, those to judge by once, those to learn from anew for every step (`fresh_lines`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Int, Shaped
from torch import Tensor

from vitreous.data.config import DataConfig
from vitreous.data.dataset import ArrayImages, ImageDataset
from vitreous.data.sources.bundled import open_digits
from vitreous.errors import InputError

DIGIT_LINES = "digit-lines"
HEIGHT, WIDTH, SIDE = 12, 80, 8
FEWEST, MOST = 3, 8
TEST_LINES = 1000

Texts = list[str]


class Layout(NamedTuple):
    """Where the digits of B lines stand: lengths (B,); tops and lefts (D,) of all D digits, line by line."""

    lengths: Int[np.ndarray, " B"]
    tops: Int[np.ndarray, " D"]
    lefts: Int[np.ndarray, " D"]


def digit_lines(seed: int) -> tuple[tuple[ImageDataset, Texts], tuple[ImageDataset, Texts]]:
    """Single digits to learn from with their names; test lines, 12 x 80 pixels, with their texts."""
    train, _, test = open_digits(DataConfig(split_seed=seed))
    if test is None:
        raise InputError("the bundled digits have no test part")
    return (train, names(train)), compose(test, TEST_LINES, np.random.default_rng((seed, 1)))


def names(digits: ImageDataset) -> Texts:
    return [digits.classes[target] for target in digits.targets]


def compose(digits: ImageDataset, count: int, rng: np.random.Generator) -> tuple[ImageDataset, Texts]:
    """Lines of digits drawn at random, at random places that do not overlap, and what stands in them."""
    layout = lay_out(count, rng)
    drawn = rng.integers(len(digits), size=len(layout.lefts))
    pixels = torch.from_numpy(np.stack([np.asarray(digits.image(int(index))) for index in drawn]))
    targets: Int[np.ndarray, " B"] = np.zeros(count, dtype=np.int64)
    lines = ArrayImages(paint(pixels, layout)[:, 0].numpy(), targets, ("text",), name=DIGIT_LINES)
    every = names(digits)
    return lines, texts([every[index] for index in drawn], layout)


def lay_out(count: int, rng: np.random.Generator, *, fewest: int = FEWEST, most: int = MOST) -> Layout:
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


def texts(drawn: Sequence[str], layout: Layout) -> Texts:
    """The names of the drawn digits, line by line."""
    ends = layout.lengths.cumsum()
    return ["".join(drawn[end - length : end]) for end, length in zip(ends, layout.lengths, strict=True)]
