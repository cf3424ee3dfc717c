"""A reader of images against texts that are known: characters and lines that are right."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from vitreous.data.dataset import BadImage
from vitreous.data.text.captions import Captions
from vitreous.evaluation.result import Evaluation, Metric, TextTable
from vitreous.evaluation.scores import wilson_interval
from vitreous.evaluation.text_models import IMAGE_BATCH, Reader

SHOWN = 20  # mistakes in the JSON


@dataclass(frozen=True)
class CaptioningEvaluation(Evaluation):
    """What a reader made of each image.

    Attributes:
        names: of the images that could be read from the disk.
        wanted: their texts.
        texts: its own.
        failed: images that could not be decoded, and why.
        seconds: of reading.
    """

    task = "captioning"

    names: Sequence[str]
    wanted: Sequence[str]
    texts: Sequence[str]
    failed: dict[str, str]
    seconds: float

    @property
    def lines(self) -> int:
        """Texts that are right to the letter."""
        return sum(want == text for want, text in zip(self.wanted, self.texts, strict=True))

    @property
    def characters(self) -> float:
        """1 - (insertions, deletions and replacements) / (characters of the wanted texts): one less the
        character error rate; 0 where that is above 1, which it is where too much was written."""
        wrong = sum(edits(want, text) for want, text in zip(self.wanted, self.texts, strict=True))
        return max(1 - wrong / sum(len(want) for want in self.wanted), 0.0)

    @property
    def count(self) -> int:
        return len(self.wanted)

    @property
    def metrics(self) -> dict[str, Metric]:
        lines = wilson_interval(self.lines, self.count)
        return {
            "line_accuracy": Metric(self.lines / max(self.count, 1), "lines right", lines),
            "character_accuracy": Metric(self.characters, "characters right"),
        }

    def details(self) -> dict[str, Any]:
        shown = self.mistakes[:SHOWN]
        return {"mistakes": [dict(zip(("image", "wanted", "read"), row, strict=True)) for row in shown]}

    def tables(self) -> list[TextTable]:
        if not self.mistakes:
            return []
        return [TextTable("mistakes", ("image", "text", "read"), self.mistakes[:5], words=3)]

    @property
    def mistakes(self) -> list[tuple[str, str, str]]:
        """(image, wanted text, text that was read) where the two differ."""
        rows = zip(self.names, self.wanted, self.texts, strict=True)
        return [row for row in rows if row[1] != row[2]]


def evaluate_reader(
    reader: Reader, captions: Captions, *, beams: int = 4, batch_size: int = IMAGE_BATCH
) -> CaptioningEvaluation:
    """Read every image with a beam, `batch_size` of them together, and compare."""
    begun = time.perf_counter()
    names, wanted, texts, failed = [], [], [], {}
    for start in range(0, len(captions.texts), batch_size):
        images = []
        for row in range(start, min(start + batch_size, len(captions.texts))):
            try:
                images.append(captions.images.image(row))
            except BadImage as bad:
                failed[bad.name] = bad.reason
                continue
            names.append(captions.images.name(row))
            wanted.append(captions.texts[row])
        texts += [found.text for found in reader.read(images, beams=beams, batch_size=batch_size)]
    return CaptioningEvaluation(names, wanted, texts, failed, time.perf_counter() - begun)


def edits(wanted: str, text: str) -> int:
    """The fewest insertions, deletions and replacements from one text to the other (Levenshtein, 1966)."""
    row = list(range(len(text) + 1))
    for i, letter in enumerate(wanted, start=1):
        above, row[0] = row[0], i
        for j, other in enumerate(text, start=1):
            above, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, above + (letter != other))
    return row[-1]
