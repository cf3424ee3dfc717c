"""What a model answers to images: the most probable labels of each; and what `vitreous.predict` returns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from vitreous.results import Answer, Result, percent, scalars


@dataclass(frozen=True)
class Choice:
    """A label, and what probability the model gives it."""

    label: str
    probability: float


@dataclass(frozen=True)
class Prediction:
    """The most probable labels of one image, in descending order, and the first of them.

    Attributes:
        labels: all that reach a threshold, where one was given.
    """

    path: str
    label: str
    probability: float
    top: tuple[Choice, ...]
    labels: tuple[str, ...] | None = None

    @classmethod
    def of(cls, path: str, top: tuple[Choice, ...], labels: tuple[str, ...] | None = None) -> Prediction:
        return cls(path, top[0].label, top[0].probability, top, labels)

    def to_json(self) -> dict[str, object]:
        fields = asdict(self)
        if self.labels is None:
            del fields["labels"]
        return fields

    def line(self) -> str:
        """Return the prediction for people, in a line."""
        some = self.top[1:] if self.labels is None else self.top
        others = ", ".join(f"{each.label} {percent(each.probability)}" for each in some)
        if self.labels is not None:
            said = f"{self.path}  {' | '.join(self.labels) or '-'}"
        else:
            said = f"{self.path}  {self.label}  {percent(self.probability)}"
        return f"{said}  ({others})" if others else said


@dataclass(frozen=True)
class Predictions(Result):
    """The answers to images, in order, and the images that could not be read, with the reason.

    Attributes:
        count: how many answers there are.
        out: the file that they are in; then `answers` is empty.
    """

    task: str
    answers: Sequence[Answer]
    failed: Mapping[str, str]
    count: int
    about: Mapping[str, Any] = field(default_factory=dict)
    out: Path | None = None

    def to_json(self) -> dict[str, object]:
        answers = [each.to_json() for each in self.answers]
        given = {"count": self.count, "out": str(self.out)} if self.out else {"predictions": answers}
        failed = [{"path": path, "reason": reason} for path, reason in self.failed.items()]
        return {"task": self.task, **given, "failed": failed, **self.about}

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Any]:
        return iter(self.answers)

    def __getitem__(self, index: int) -> Any:
        return self.answers[index]

    def table(self) -> list[dict[str, Any]]:
        """Return one row for each image."""
        return [scalars(each.to_json()) for each in self.answers]
