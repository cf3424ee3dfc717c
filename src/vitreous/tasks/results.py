"""What training, evaluation and prediction return, whatever the task."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vitreous.evaluation.result import Evaluation
from vitreous.results import Result, scalars
from vitreous.tasks.task import Answer
from vitreous.training.run import Run


@dataclass(frozen=True)
class RunResult:
    """What a training gave.

    Attributes:
        answerer: the trained model; of tasks that write text, with its tokenizer.
        evaluation: on the held-out part; None where there is none.
        held_out: which part that is: "test" or "validation".
        seconds: of training, over all sessions.
        waiting: the share of this session's training time in which it waited for data.
        bad: examples that could not be read, with the reason.
        more: what else the task has to say.
    """

    task: str
    run: Run
    answerer: Any
    evaluation: Evaluation | None
    held_out: str | None
    seconds: float
    waiting: float
    train_count: int
    parameters: int
    bad: Mapping[str, str]
    report: Path | None
    more: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        empty = {"task": self.task, "metrics": {}, "count": 0, "failed": []}
        measured = self.evaluation.to_json() if self.evaluation else empty
        return {
            "run": str(self.run.path),
            **measured,
            "held_out": self.held_out,
            "evaluation_seconds": measured.get("seconds"),
            "seconds": self.seconds,
            "waiting": self.waiting,
            "train_count": self.train_count,
            "parameters": self.parameters,
            "bad_files": [{"path": path, "reason": reason} for path, reason in self.bad.items()],
            **({"report": str(self.report)} if self.report else {}),
            **{name: plain_json(value) for name, value in self.more.items()},
        }


def plain_json(value: Any) -> Any:
    """Return lists of named tuples as lists of objects."""
    if isinstance(value, list | tuple) and value and hasattr(value[0], "_asdict"):
        return [each._asdict() for each in value]
    return value


@dataclass(frozen=True)
class Evaluated(Result):
    """An evaluation, and what it was made on."""

    model: str
    source: str
    part: str
    evaluation: Evaluation

    def to_json(self) -> dict[str, Any]:
        return {"run": self.model, "data": self.source, "part": self.part, **self.evaluation.to_json()}

    def table(self) -> list[dict[str, Any]]:
        """Return one row for each metric: its value and 95 % interval."""
        return [
            {
                "metric": metric.label,
                "value": metric.value,
                "low": metric.interval[0] if metric.interval else None,
                "high": metric.interval[1] if metric.interval else None,
            }
            for metric in self.evaluation.metrics.values()
        ]


@dataclass(frozen=True)
class Predictions(Result):
    """The answers to images, in order, and the images that could not be read, with the reason."""

    task: str
    answers: Sequence[Answer]
    failed: Mapping[str, str]
    about: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "task": self.task,
            "predictions": [each.to_json() for each in self.answers],
            "failed": [{"path": path, "reason": reason} for path, reason in self.failed.items()],
            **self.about,
        }

    def __len__(self) -> int:
        return len(self.answers)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.answers)

    def __getitem__(self, index: int) -> Any:
        return self.answers[index]

    def table(self) -> list[dict[str, Any]]:
        """Return one row for each image."""
        return [scalars(each.to_json()) for each in self.answers]
