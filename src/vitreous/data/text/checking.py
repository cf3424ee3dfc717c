"""What is wrong with images and their texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from vitreous.data.checking import SHOWN, DataReport, Finding, alike, broken, looks
from vitreous.data.dataset import DataSummary, ImageDataset, Splits, Subset
from vitreous.data.survey import Survey, survey
from vitreous.data.text.captions import Captions, CaptionSplits, open_captions

LONG = 4  # times as long as the median text
SHORT = 10  # characters, of which a median below says nothing
RARE = 3  # times that a character stands in all texts
TEST_FRACTION = 0.05  # held out where the manifest says nothing, as training does


def check_texts(source: str, *, workers: int | None = None) -> DataReport:
    """Look at every image of a manifest, and at every text.

    Raises:
        InputError: no manifest, or next to nothing in it.
    """
    data = open_captions(source, seed=0, test_fraction=TEST_FRACTION)
    number = {text: row for row, text in enumerate(sorted({*data.train.texts, *data.test.texts}))}
    train, test = (labeled(part, number) for part in (data.train, data.test))
    summary = DataSummary(len(train), len(number), 1, 0, 0, 3, False)
    seen = survey(Splits(train, None, test, source, summary), workers=workers)
    parts = np.bincount(seen.parts, minlength=2).tolist()
    return DataReport(
        images=dict(zip(seen.part_names, parts, strict=True)),
        classes={},
        findings=tuple(finding for finding in findings(seen, data) if finding.found),
    )


def labeled(part: Captions, number: dict[str, int]) -> ImageDataset:
    """The images, where those with the same text have the same number for a label."""
    images = Subset(part.images, np.arange(len(part.texts)))
    images.targets = np.array([number[text] for text in part.texts], dtype=np.int64)
    images.classes = tuple(number)
    return images


def findings(seen: Survey, data: CaptionSplits) -> Iterator[Finding]:
    """In the order of their weight; those that found 0 are none."""
    yield broken(seen)
    yield from alike(seen, "texts")
    yield from texts(data)
    yield from looks(seen)


def texts(data: CaptionSplits) -> Iterator[Finding]:
    """What the texts alone tell."""
    advice = "write their texts, or remove the lines"
    yield Finding("no text", "warning", "images have no text, and are left out", advice, data.empty, ())
    learned = Counter("".join(data.train.texts))
    unseen = sorted(set("".join(data.test.texts)) - set(learned))
    yield Finding(
        "unseen character",
        "warning",
        "characters stand in texts to test on, and in none to learn from",
        "add images with them to train: they cannot be read",
        len(unseen),
        tuple(unseen[:SHOWN]),
    )
    rare = sorted(letter for letter, times in learned.items() if times < RARE)
    yield Finding(
        "rare character",
        "note",
        f"characters stand fewer than {RARE} times in what is learned from",
        "look whether they are slips, or add images with them",
        len(rare),
        tuple(rare[:SHOWN]),
    )
    everything = [*data.train.texts, *data.test.texts]
    usual = float(np.median([len(text) for text in everything]))
    long = [text for text in everything if len(text) > LONG * max(usual, SHORT)]
    yield Finding(
        "long text",
        "note",
        f"texts are more than {LONG} times as long as the median ({usual:.0f} characters)",
        "look whether their images are single lines",
        len(long),
        tuple(long[:SHOWN]),
    )
