"""What every evaluation gives, whatever the task: named metrics, counts, and tables for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from vitreous.data.findings import Finding
from vitreous.evaluation.scores import Calibration, ExampleScores, Interval
from vitreous.results import Result, failures, percent

FEWEST = 20  # held-out examples, of which an accuracy says something


class Metric(NamedTuple):
    """A measured number."""

    value: float  # the number; NaN where nothing can be said
    label: str  # its name for people
    interval: Interval | None = None  # 95% confidence; None where there is none
    rate: bool = True  # whether it is a share, printed in percent

    def text(self, number: float | None = None) -> str:
        """Return a number of this metric (its value by default) as people write it."""
        number = self.value if number is None else number
        if self.rate:
            return percent(number)
        return "-" if number != number else f"{number:.4g}"


class TextTable(NamedTuple):
    """A table for people: its first `words` columns are words, the others numbers."""

    title: str
    headers: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: int = 1


AnswerValue = int | list[int] | float | str  # a class number, a list of them, a number or a text


class Answers(NamedTuple):
    """The answer to each example, beside what is true."""

    classes: Sequence[str]  # what class numbers mean; none where the answers are numbers or texts themselves
    true: Sequence[AnswerValue]
    given: Sequence[AnswerValue]
    loss: Float[np.ndarray, " N"]  # how far the answer is from what is true, in the unit of `loss_name`
    confidence: Float[np.ndarray, " N"] | None = None  # the answer's probability
    right: np.ndarray | None = None  # whether the answer is right; None where it is more or less so
    loss_name: str = "loss"  # in the catalog of the pages

    def subset(self, rows: Sequence[int] | np.ndarray) -> Answers:
        """Return the answers to some of the examples."""
        return self._replace(
            true=[self.true[row] for row in rows],
            given=[self.given[row] for row in rows],
            loss=self.loss[rows],
            confidence=None if self.confidence is None else self.confidence[rows],
            right=None if self.right is None else self.right[rows],
        )


@dataclass(frozen=True, kw_only=True)
class Evaluation(Result):
    """What a model made of held-out examples, in one form for all tasks.

    Attributes:
        model, source, part: what was evaluated on which part of which data; empty after training.
        task: its name in the registry of tasks.
        of: what is counted.
        names: of the examples that were evaluated.
        indices: their numbers in the dataset.
        per_example: the attributes that have an entry for each example.
        failed: what could not be read, and why.
        damaged: images that were evaluated, but for a part that is missing, and what that is.
        data_findings: what is known of the data, as by `train` and `data check`; of those of a run what its
            training has found.
        seconds: from the first example to the last.
    """

    task: ClassVar[str]
    of: ClassVar[str] = "images"
    per_example: ClassVar[tuple[str, ...]] = ()
    # What is measured in training and on the test set: a sentence, the key in metrics.jsonl, and the metric.
    gap: ClassVar[tuple[str, str, str] | None] = None

    names: Sequence[str]
    indices: Sequence[int] | Int[np.ndarray, " N"] = ()
    failed: Mapping[str, str]
    damaged: Mapping[str, str] = field(default_factory=dict)
    seconds: float
    model: str = ""
    source: str = ""
    part: str = ""
    data_findings: Sequence[Finding] = ()

    if TYPE_CHECKING:  # what the evaluation of a task has besides: accuracy, per_class, ...

        def __getattr__(self, name: str) -> Any: ...

    @property
    def count(self) -> int:
        """Evaluated examples."""
        return len(self.names)

    @property
    def metrics(self) -> dict[str, Metric]:
        """The metrics, the most important first."""
        raise NotImplementedError

    def subset(self, rows: Sequence[int] | np.ndarray) -> Evaluation:
        """Return the evaluation of some of the examples alone, in the order of `rows`."""
        chosen: dict[str, Any] = {}
        for name in ("names", "indices", *self.per_example):
            entries = getattr(self, name)
            if entries is None:
                continue
            if hasattr(entries, "shape"):
                chosen[name] = entries[rows]
            else:
                chosen[name] = [entries[row] for row in rows]
        return replace(self, **chosen)

    def scores(self) -> ExampleScores | None:
        """Return how good the answer to each example is; None where examples have no score of their own."""
        return None

    def by_class(self) -> dict[str, float]:
        """Return how good the answers are for each class, by its label; nothing without classes."""
        return {}

    def answers(self) -> Answers | None:
        """Return the answers to single examples, for those who want to look at them; None without any."""
        return None

    @property
    def without_learning(self) -> tuple[str, Mapping[str, float]] | None:
        """What an answer that ignores the example gets in the first metric: a name in the catalog of the
        pages, and its values; None where nothing is known."""
        return None

    def findings(self) -> Iterator[Finding]:
        """Yield what the answers tell of a training that has failed."""
        yield from ()

    def details(self) -> dict[str, object]:
        """Return more than the metrics, for JSON."""
        return {}

    def tables(self) -> list[TextTable]:
        """Return more than the metrics, for people."""
        return []

    def table(self) -> list[dict[str, object]]:
        """Return one row for each metric: its value and 95% interval."""
        rows = []
        for metric in self.metrics.values():
            low, high = metric.interval or (None, None)
            rows.append({"metric": metric.label, "value": metric.value, "low": low, "high": high})
        return rows

    def metrics_to_json(self) -> dict[str, object]:
        """Return the value and the 95% interval of each metric."""
        metrics: dict[str, object] = {}
        for name, metric in self.metrics.items():
            interval = list(metric.interval) if metric.interval else None
            metrics[name] = {"value": metric.value, "interval": interval}
        return metrics

    def to_json(self) -> dict[str, object]:
        """Return everything but the answers to single examples.

        Each metric is given twice: in `metrics`, and by a name of its own such as `test_accuracy`.
        """
        flat: dict[str, object] = {}
        for name, metric in self.metrics.items():
            flat[f"test_{name}"] = metric.value
            if metric.interval:
                flat[f"test_{name}_interval"] = list(metric.interval)
        evaluated = {"run": self.model, "data": self.source, "part": self.part} if self.model else {}
        return {
            **evaluated,
            "task": self.task,
            "metrics": self.metrics_to_json(),
            "count": self.count,
            "seconds": self.seconds,
            "failed": failures(self.failed),
            "damaged": failures(self.damaged),
            "test_count": self.count,
            "findings": [each.to_json() for each in (*self.data_findings, *self.findings())],
            **flat,
            **self.details(),
        }


@dataclass(frozen=True)
class Mistake:
    """An image that was called `predicted`, with what probability, and is `actual`."""

    index: int
    name: str
    predicted: str
    actual: str
    probability: float


@dataclass(frozen=True, kw_only=True)
class LabelEvaluation(Evaluation):
    """What a classifier predicts for each image.

    Attributes:
        classes: the label of each class, in the model's order.
        targets: its class, (N,); where it may have several, a 0 or 1 for each class, (N, classes).
        uncalibrated_error: the calibration error without the model's temperature; None where it has none.
    """

    indices: Int[np.ndarray, " N"]
    classes: tuple[str, ...]
    targets: np.ndarray
    uncalibrated_error: float | None = None

    @property
    def calibration(self) -> Calibration:
        """Whether the probabilities are right: of the predicted class, or of every yes and no."""
        raise NotImplementedError

    @property
    def calibration_metrics(self) -> dict[str, Metric]:
        found = {"calibration_error": Metric(self.calibration.ece, "calibration error (ECE)")}
        if self.uncalibrated_error is not None:
            label = "calibration error without the temperature"
            found["uncalibrated_error"] = Metric(self.uncalibrated_error, label)
        return found
