"""What every evaluation gives, whatever the task: named metrics, counts, and tables for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from vitreous.evaluation.scores import Interval


class Metric(NamedTuple):
    """A measured number.

    Attributes:
        value: the number; NaN where nothing can be said.
        label: its name for people.
        interval: 95 % confidence; None where there is none.
        rate: whether it is a share, printed in percent.
    """

    value: float
    label: str
    interval: Interval | None = None
    rate: bool = True

    def text(self, number: float | None = None) -> str:
        """Return a number of this metric (its value by default) as people write it."""
        number = self.value if number is None else number
        if number != number:
            return "-"
        return f"{100 * number:.2f} %" if self.rate else f"{number:.4g}"


def percent(rate: float) -> str:
    """Return a rate as people write it; a dash for NaN."""
    return Metric(rate, "").text()


class TextTable(NamedTuple):
    """A table for people: its first `words` columns are words, the others numbers."""

    title: str
    headers: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: int = 1


class Evaluation:
    """What a model made of held-out examples, in one form for all tasks.

    Attributes:
        task: its name in the registry of tasks.
        failed: what could not be read, and why.
        seconds: from the first example to the last.
        of: what is counted.
    """

    task: ClassVar[str]
    of: ClassVar[str] = "images"
    failed: Mapping[str, str]
    seconds: float

    @property
    def count(self) -> int:
        """Evaluated examples."""
        raise NotImplementedError

    @property
    def metrics(self) -> dict[str, Metric]:
        """The metrics, the most important first."""
        raise NotImplementedError

    def details(self) -> dict[str, Any]:
        """More than the metrics, for JSON."""
        return {}

    def tables(self) -> list[TextTable]:
        """More than the metrics, for people."""
        return []

    def to_json(self) -> dict[str, Any]:
        """Return everything but the answers to single examples.

        Each metric is given twice: in `metrics`, and by a name of its own such as `test_accuracy`.
        """
        metrics = self.metrics
        flat: dict[str, Any] = {}
        for name, metric in metrics.items():
            flat[f"test_{name}"] = metric.value
            if metric.interval:
                flat[f"test_{name}_interval"] = list(metric.interval)
        return {
            "task": self.task,
            "metrics": {
                name: {"value": metric.value, "interval": list(metric.interval) if metric.interval else None}
                for name, metric in metrics.items()
            },
            "count": self.count,
            "seconds": self.seconds,
            "failed": [{"path": path, "reason": reason} for path, reason in self.failed.items()],
            "test_count": self.count,
            **flat,
            **self.details(),
        }
