"""A reader of images against texts that are known: characters and lines that are right."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from vitreous.data.dataset import BadImage
from vitreous.data.text.captions import Captions, open_captions
from vitreous.evaluation.scores import wilson_interval
from vitreous.training.sequence.config import ReadingConfig
from vitreous.training.sequence.plan import absolute_sources
from vitreous.training.sequence.reader import BATCH, Reader

SHOWN = 20  # mistakes in the JSON


@dataclass(frozen=True)
class ReadingEvaluation:
    """What a reader made of each image.

    Attributes:
        names: of the images that could be read from the disk.
        wanted: their texts.
        texts: its own.
        failed: images that could not be decoded, and why.
        seconds: of reading.
    """

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

    def to_json(self) -> dict[str, Any]:
        count = len(self.wanted)
        rows = zip(self.names, self.wanted, self.texts, strict=True)
        mistakes = [
            {"image": name, "wanted": want, "read": text} for name, want, text in rows if want != text
        ]
        return {
            "test_count": count,
            "line_accuracy": self.lines / count,
            "line_accuracy_interval": list(wilson_interval(self.lines, count)),
            "character_accuracy": self.characters,
            "reading_seconds": self.seconds,
            "failed": [{"path": path, "reason": reason} for path, reason in self.failed.items()],
            "mistakes": mistakes[:SHOWN],
        }


def captions_to_judge(config: ReadingConfig, data: str | None) -> Captions:
    """What `vitreous evaluate RUN [DATA]` reads: the held-out part of what the run learned from; of other
    data the part of their own to judge by, or everything."""
    source = absolute_sources(data) if data else config.source
    found = open_captions(source, seed=config.seed, test_fraction=config.test_fraction)
    return found.test if source == config.source else found.strange


def evaluate_reader(
    reader: Reader, captions: Captions, *, beams: int = 4, batch_size: int = BATCH
) -> ReadingEvaluation:
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
    return ReadingEvaluation(names, wanted, texts, failed, time.perf_counter() - begun)


def edits(wanted: str, text: str) -> int:
    """The fewest insertions, deletions and replacements from one text to the other (Levenshtein, 1966)."""
    row = list(range(len(text) + 1))
    for i, letter in enumerate(wanted, start=1):
        above, row[0] = row[0], i
        for j, other in enumerate(text, start=1):
            above, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, above + (letter != other))
    return row[-1]
