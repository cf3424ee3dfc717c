"""What a person sees while a model learns: one live line on a terminal, else a plain line for each entry."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

REFRESH = 0.25  # seconds between readings of the numbers; reading them makes a GPU wait


class Display:
    """Progress on stderr. Without a terminal nothing moves, and `line` prints plain lines."""

    def __init__(self, title: str = "training") -> None:
        self.console = Console(stderr=True)
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.percentage:>3.0f} %"),
            TextColumn("{task.fields[numbers]}"),
            TimeRemainingColumn(compact=True),
            TextColumn("left"),
            console=self.console,
            refresh_per_second=1 / REFRESH,
            disable=not self.console.is_terminal,
        )
        self.task = self.progress.add_task(title, total=None, numbers="")
        self.next_reading = 0.0

    def __enter__(self) -> Display:
        self.progress.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.progress.__exit__(kind, error, trace)

    def step(self, step: int, total: int, numbers: Callable[[], Mapping[str, float | int]]) -> None:
        """After each step; `numbers` is asked for a few times a second at most."""
        if self.progress.disable or time.monotonic() < self.next_reading:
            return
        self.next_reading = time.monotonic() + REFRESH
        self.progress.update(self.task, completed=step, total=total, numbers=in_words(numbers()))

    def line(self, step: int, total: int, row: Mapping[str, float | int]) -> None:
        """After each line of metrics.jsonl."""
        if self.progress.disable:
            left = row["seconds"] / step * (total - step) if step else 0.0
            print(f"step {step}/{total}  {in_words(row)}  {left:.0f} s left", file=sys.stderr, flush=True)


def in_words(row: Mapping[str, float | int]) -> str:
    """Loss, accuracy and speed, those that are there."""
    wording = {
        "loss": "loss {:.4f}",
        "accuracy": "accuracy {:.1%}",
        "miou": "mean IoU {:.1%}",
        "validation_accuracy": "validation {:.1%}",
        "validation_miou": "its mean IoU {:.1%}",
        "images_per_second": "{:,.0f} images/s",
    }
    return "  ".join(words.format(row[name]) for name, words in wording.items() if name in row)
