"""What a visitor can try at once: held-out examples of a run on one of the bundled jobs."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from vitreous.data.config import DataConfig
from vitreous.data.segmentation.digit_pages import DIGIT_PAGES, open_digit_pages
from vitreous.data.sources.bundled import open_digits
from vitreous.data.text.digit_lines import DIGIT_LINES, compose
from vitreous.data.text.parallel import NUMBERS, open_parallel
from vitreous.errors import InputError
from vitreous.evaluation.held_out import held_out
from vitreous.inspection.images import data_uri
from vitreous.training.run import Run
from vitreous.training.segmentation.config import SegmentationConfig
from vitreous.training.sequence.config import read_config

log = logging.getLogger(__name__)
DIGITS = "digits"
IMAGES, TEXTS = 6, 6


class Examples(NamedTuple):
    """source: the run's data, or "". images: data URIs. texts: to be translated."""

    source: str = ""
    images: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()


def examples_of(run: str, find: Callable[[str], Examples]) -> Examples:
    """The examples of a run directory, if its configuration can be read: that of an older version cannot
    always, and its model is served all the same."""
    if not (Path(run) / "config.toml").is_file():
        return Examples()
    try:
        return find(run)
    except InputError as error:
        log.warning("%s is served without examples: %s", run, error)
        return Examples()


def image_examples(run: str) -> Examples:
    """For a classifier: of a run on the digits, a held-out one of each class."""
    source = Run.open(Path(run)).config.source
    if source != DIGITS:
        return Examples(source)
    images = held_out(run, None, {}).images
    first = [int(np.flatnonzero(images.targets == number)[0]) for number in range(len(images.classes))]
    return Examples(source, tuple(uri(images.image(row)) for row in first))


def line_examples(run: str) -> Examples:
    """For a reader: of a run on lines of digits, lines of held-out digits."""
    config = read_config(Path(run) / "config.toml")
    if config.source != DIGIT_LINES:
        return Examples(config.source)
    _, _, digits = open_digits(DataConfig(split_seed=config.seed))
    assert digits is not None  # a share is held out by default
    lines, _ = compose(digits, IMAGES, np.random.default_rng((config.seed, 1)))
    return Examples(config.source, tuple(uri(lines.image(row)) for row in range(IMAGES)))


def page_examples(run: str) -> Examples:
    """For a segmenter: of a run on pages of digits, pages of held-out digits."""
    config = Run.open(Path(run), SegmentationConfig).config
    if config.source != DIGIT_PAGES:
        return Examples(config.source)
    pages = open_digit_pages(config.data).test
    assert pages is not None  # open_digit_pages insists on it
    return Examples(config.source, tuple(uri(pages.pair(row)[0]) for row in range(IMAGES)))


def text_examples(run: str) -> Examples:
    """For a translator: of a run on numbers in words, held-out numbers."""
    config = read_config(Path(run) / "config.toml")
    if config.source != NUMBERS:
        return Examples(config.source)
    pairs = open_parallel(NUMBERS, seed=config.seed, test_fraction=config.test_fraction).test
    # A step that does not divide by the six directions, so that each occurs; short ones are easy to read.
    rows = range(0, len(pairs) // 8, max(len(pairs) // 8 // TEXTS, 7) // 6 * 6 + 1)
    return Examples(config.source, (), tuple(pairs[row].source for row in rows)[:TEXTS])


def uri(image: Image.Image) -> str:
    return data_uri(np.asarray(image.convert("RGB")))
