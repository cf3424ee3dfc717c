"""The rungs of a ladder, as a run keeps them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from vitreous.evaluation.scores import Interval
from vitreous.outside import read_text
from vitreous.results import duration, percent
from vitreous.whole_files import write_text

RUNGS = "ladder.json"  # in a run


@dataclass(frozen=True)
class Rung:
    """A step of the ladder, and what it gave on images that it did not learn from.

    Attributes:
        words: the name in the catalog of languages.
        init: the checkpoint that it begins with.
        measured_on: which images those are: "validation", or "cross-fitted".
        loss: the mean cross-entropy of its answers; None for a method without probabilities.
        speed: images a second that it learned from.
    """

    name: str
    accuracy: float
    interval: Interval
    count: int
    measured_on: str
    loss: float | None = None
    seconds: float = 0.0
    speed: float = 0.0
    words: str = ""
    init: str | None = None

    def sentence(self) -> str:
        """Return the rung as a line of the progress."""
        low, high = map(percent, self.interval)
        validation = self.measured_on == "validation"
        where = (
            f"{self.count} validation images" if validation else f"{self.count} images, {self.measured_on}"
        )
        when = f", in {duration(self.seconds)}" if self.seconds else ""
        return f"{self.name}: {percent(self.accuracy)} ({low} to {high}) of {where}{when}"


def write_rungs(folder: Path, rungs: Iterable[Rung]) -> None:
    """Write the ladder into a run."""
    write_text(folder / RUNGS, json.dumps([asdict(each) for each in rungs], indent=1))


def read_rungs(folder: Path) -> list[dict[str, Any]]:
    """Return the ladder of a run; nothing where it was not climbed."""
    file = folder / RUNGS
    found: list[dict[str, Any]] = json.loads(read_text(file)) if file.is_file() else []
    return found
