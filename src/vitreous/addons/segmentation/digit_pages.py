"""Pages with handwritten digits of scikit-learn on them: segmentation as a small job that is real.

No digit is on training and on test pages: the single digits are split first, and pages are made of each
side. A pixel's class is that of the digit whose ink covers it, or the background.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float, UInt8
from numpy.typing import NDArray
from PIL import Image

from vitreous.addons.segmentation.masked import Mask, MaskedDataset, MaskSplits
from vitreous.data.config import DataConfig
from vitreous.data.dataset import ClassTargets, DataSummary, ImageDataset
from vitreous.data.held_out import split
from vitreous.data.sources.small import open_digits
from vitreous.errors import InputError
from vitreous.models.preprocessing import Preprocessing
from vitreous.models.stored import Stored, stored

DIGIT_PAGES = "digit-pages"
SIDE = 64
FEWEST, MOST = 3, 6
SMALLEST, LARGEST = 16, 32  # pixels of a digit's square
OVERLAP = 0.15  # of the smaller of two squares, at most
INK = 0.4  # cover from which a pixel belongs to a digit
TRAIN_PAGES, VALIDATION_PAGES, TEST_PAGES = 20_000, 200, 500
CLASSES = ("background", *(str(digit) for digit in range(10)))


class DigitPages(MaskedDataset):
    """Pages of one set of digits. A page depends on (seed, part, index) alone, and is made when asked for."""

    listed = False

    def __init__(self, digits: ImageDataset, count: int, *, seed: int, part: int) -> None:
        cover = [np.asarray(digits.image(index)) for index in range(len(digits))]
        self.cover: UInt8[np.ndarray, "N 8 8"] = np.stack(cover)
        self.digits: NDArray[np.int64] = digits.targets.strata()
        self.seed, self.part, self.source = seed, part, DIGIT_PAGES
        self.targets = ClassTargets(np.zeros(count, dtype=np.int64), CLASSES)

    def pair(self, index: int, how: Preprocessing | int = 3) -> tuple[Stored, Mask]:
        """Return a gray page and its mask."""
        rng = np.random.default_rng((self.seed, self.part, index))
        paper = textured(rng)
        dark = rng.random() < 0.5  # dark ink on light paper, or light on dark
        mask = np.zeros((SIDE, SIDE), dtype=np.uint8)
        for top, left, side in squares(rng):
            sampled = int(rng.integers(len(self.cover)))
            cover = warped_digit(self.cover[sampled], side, rng)
            ink = rng.uniform(0.65, 1.0)
            here = (slice(top, top + side), slice(left, left + side))
            paper[here] += cover * (ink - paper[here])
            mask[here][cover > INK] = 1 + self.digits[sampled]
        paper += rng.normal(0, 0.05, paper.shape)
        gray = (255 * (1 - paper if dark else paper)).round().clip(0, 255).astype(np.uint8)
        return stored(gray, self.name(index), how if isinstance(how, int) else how.channels), mask


def textured(rng: np.random.Generator) -> Float[np.ndarray, "H W"]:
    """Return dark paper with smooth clouds and stripes."""
    clouds = Image.fromarray(rng.random((6, 6)).astype(np.float32)).resize(
        (SIDE, SIDE), Image.Resampling.BICUBIC
    )
    angle, wave = rng.uniform(0, math.pi), rng.uniform(4, 16)
    rows, columns = np.mgrid[:SIDE, :SIDE]
    stripes = np.sin((rows * math.sin(angle) + columns * math.cos(angle)) * 2 * math.pi / wave)
    return rng.uniform(0.05, 0.25) + 0.2 * (np.asarray(clouds, dtype=float) - 0.5) + 0.05 * stripes


def squares(rng: np.random.Generator) -> list[tuple[int, int, int]]:
    """Return (top, left, side) of some squares on the page that overlap little; what finds no place is left
    out."""
    found: list[tuple[int, int, int]] = []
    for _ in range(int(rng.integers(FEWEST, MOST + 1))):
        side = int(rng.integers(SMALLEST, LARGEST + 1))
        for _ in range(20):
            top, left = (int(place) for place in rng.integers(0, SIDE - side + 1, size=2))
            if all(shared_area((top, left, side), other) <= OVERLAP for other in found):
                found.append((top, left, side))
                break
    return found


def shared_area(one: tuple[int, int, int], other: tuple[int, int, int]) -> float:
    """Return the area that two squares share, as a part of the smaller one."""
    high = min(one[0] + one[2], other[0] + other[2]) - max(one[0], other[0])
    wide = min(one[1] + one[2], other[1] + other[2]) - max(one[1], other[1])
    return max(high, 0) * max(wide, 0) / min(one[2], other[2]) ** 2


def warped_digit(
    cover: UInt8[np.ndarray, "8 8"], side: int, rng: np.random.Generator
) -> Float[np.ndarray, "side side"]:
    """Return a digit's ink, 0 ... 1, resized, rotated by up to 12 degrees, stretched and slanted a little."""
    turn, slant = rng.uniform(-0.21, 0.21), rng.uniform(-0.12, 0.12)
    across, along = rng.uniform(0.9, 1.1, size=2) * (8 / side)
    cos, sin = math.cos(turn), math.sin(turn)
    # The way from a pixel of the square to a place in the 8 x 8 digit, about both centers.
    a, b, d, e = across * cos, across * (slant - sin), along * sin, along * cos
    middle = side / 2
    way = (a, b, 4 - (a + b) * middle, d, e, 4 - (d + e) * middle)
    image = Image.fromarray(cover).transform(
        (side, side), Image.Transform.AFFINE, way, resample=Image.Resampling.BICUBIC
    )
    return np.asarray(image, dtype=float) / 255


def open_digit_pages(config: DataConfig) -> MaskSplits:
    """Return pages of 64 x 64 pixels with 3 to 6 digits. `data.validation_fraction` of the training digits
    make validation pages; `data.split.seed` samples another split of the digits, and other pages."""
    train, validation, test = split(open_digits(config), config.without_validation(), where="digits")
    if test is None:
        raise InputError("data.test_fraction=0 leaves no digits for test pages: set it to 0.2, for example")
    seed = config.split_seed
    return MaskSplits(
        train=DigitPages(train, TRAIN_PAGES, seed=seed, part=0),
        validation=DigitPages(validation, VALIDATION_PAGES, seed=seed, part=1) if validation else None,
        test=DigitPages(test, TEST_PAGES, seed=seed, part=2),
        name=DIGIT_PAGES,
        summary=DataSummary(TRAIN_PAGES, len(CLASSES), SIDE, SIDE, channels=1, multi_label=False),
    )
