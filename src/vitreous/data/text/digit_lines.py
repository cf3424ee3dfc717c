"""Lines of 3 to 8 handwritten digits, composed from scikit-learn's: reading as a small job that is real.

No digit stands in training and test lines: the single digits are split first, and lines are made from each
side.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, UInt8

from vitreous.data.config import DataConfig
from vitreous.data.pictures import ArrayPictures, Pictures
from vitreous.data.sources.digits import open_digits
from vitreous.errors import InputError

DIGIT_LINES = "digit-lines"
HEIGHT, WIDTH, SIDE = 12, 80, 8
FEWEST, MOST = 3, 8
TRAIN_LINES, TEST_LINES = 30_000, 1000

Lines = tuple[Pictures, list[str]]


def digit_lines(seed: int) -> tuple[Lines, Lines]:
    """(train, test): pictures of 12 x 80 pixels and their digits as text."""
    train, _, test = open_digits(DataConfig(split_seed=seed))
    if test is None:
        raise InputError("the bundled digits have no test part")
    return (
        compose(train, TRAIN_LINES, np.random.default_rng((seed, 0)), distort=True),
        compose(test, TEST_LINES, np.random.default_rng((seed, 1)), distort=False),
    )


def compose(digits: Pictures, count: int, rng: np.random.Generator, *, distort: bool) -> Lines:
    """Lines of digits drawn at random, at random places that do not overlap.

    Args:
        distort: turn, scale, slant and shift each digit a little, as training data.
    """
    lengths = rng.integers(FEWEST, MOST + 1, size=count)
    drawn = rng.integers(len(digits), size=int(lengths.sum()))
    pixels = np.stack([np.asarray(digits.picture(index)) for index in range(len(digits))])[drawn]
    if distort:
        pixels = distorted(pixels, rng)
    names = "".join(digits.classes[target] for target in digits.targets[drawn])
    canvas = np.zeros((count, HEIGHT, WIDTH), dtype=np.uint8)
    texts, first = [], 0
    for line, length in enumerate(lengths):
        room = min(WIDTH - SIDE * length, 2 * length)  # lines begin at the left, as writing does
        gaps = np.diff(np.sort(rng.integers(0, room + 1, size=length)), prepend=0)
        lefts = np.cumsum(gaps + SIDE) - SIDE
        tops = rng.integers(0, HEIGHT - SIDE + 1, size=length)
        for digit, (top, left) in enumerate(zip(tops, lefts, strict=True)):
            canvas[line, top : top + SIDE, left : left + SIDE] = pixels[first + digit]
        texts.append(names[first : first + length])
        first += length
    targets: Int[np.ndarray, " N"] = np.zeros(count, dtype=np.int64)
    return ArrayPictures(canvas, targets, ("text",), name=DIGIT_LINES), texts


def distorted(pixels: UInt8[np.ndarray, "N 8 8"], rng: np.random.Generator) -> UInt8[np.ndarray, "N 8 8"]:
    """Each digit turned by up to 12 degrees, scaled and slanted by up to 12 %, shifted by up to half a
    pixel."""
    count = len(pixels)
    angle, slant = rng.uniform(-0.21, 0.21, count), rng.uniform(-0.12, 0.12, count)
    across, along = rng.uniform(0.88, 1.12, count), rng.uniform(0.88, 1.12, count)
    matrix: Float[np.ndarray, "N 2 3"] = np.zeros((count, 2, 3))
    matrix[:, 0, 0], matrix[:, 0, 1] = across * np.cos(angle), -np.sin(angle) + slant
    matrix[:, 1, 0], matrix[:, 1, 1] = np.sin(angle), along * np.cos(angle)
    matrix[:, :, 2] = rng.uniform(-0.125, 0.125, (count, 2))
    theta = torch.from_numpy(matrix).float()
    source = torch.from_numpy(pixels)[:, None].float()
    grid = F.affine_grid(theta, [count, 1, SIDE, SIDE], align_corners=False)
    return F.grid_sample(source, grid, align_corners=False)[:, 0].round().to(torch.uint8).numpy()
