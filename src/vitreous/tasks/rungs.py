"""The rungs of a ladder, as a run keeps them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from vitreous.evaluation.scores import Interval
from vitreous.languages import phrase
from vitreous.languages.terminal import said, said_time
from vitreous.outside import read_text
from vitreous.results import percent
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

    def title(self) -> str:
        """Return its name in the language that is spoken."""
        return phrase(self.words, init=self.init) if self.words else self.name

    def sentence(self) -> str:
        """Return the rung as a line of the progress."""
        low, high = map(percent, self.interval)
        numbers = {"accuracy": percent(self.accuracy), "low": low, "high": high, "count": self.count}
        line = said(
            "{name}: {accuracy} ({low} to {high}) of {count} images, cross-fitted",
            name=self.title(),
            **numbers,
        )
        if self.measured_on == "validation":
            line = said(
                "{name}: {accuracy} ({low} to {high}) of {count} validation images",
                name=self.title(),
                **numbers,
            )
        return said("{line}, in {time}", line=line, time=said_time(self.seconds)) if self.seconds else line


def write_rungs(folder: Path, rungs: Iterable[Rung]) -> None:
    """Write the ladder into a run."""
    write_text(folder / RUNGS, json.dumps([asdict(each) for each in rungs], indent=1))


def read_rungs(folder: Path) -> list[dict[str, Any]]:
    """Return the ladder of a run; nothing where it was not climbed."""
    file = folder / RUNGS
    found: list[dict[str, Any]] = json.loads(read_text(file)) if file.is_file() else []
    return found
