"""What `data check` and `doctor` give: findings, with what they are of."""

from __future__ import annotations

from dataclasses import dataclass

from vitreous.data.findings import Finding
from vitreous.results import Result


@dataclass(frozen=True)
class Examination(Result):
    """What was found, the gravest first."""

    findings: tuple[Finding, ...]

    def __post_init__(self) -> None:
        ordered = sorted(self.findings, key=lambda each: ("error", "warning", "note").index(each.severity))
        object.__setattr__(self, "findings", tuple(ordered))

    def to_json(self) -> dict[str, object]:
        return {**vars(self), "findings": [each.to_json() for each in self.findings]}

    def table(self) -> list[dict[str, object]]:
        """Return one row for each finding."""
        return [
            {"severity": each.severity, "problem": each.problem, "fix": each.fix} for each in self.findings
        ]

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings that spoil a training or its accuracy."""
        return tuple(each for each in self.findings if each.severity == "error")


@dataclass(frozen=True)
class DataReport(Examination):
    """Counts and findings of a dataset."""

    images: dict[str, int]  # by split
    classes: dict[str, int]  # all splits together
    unreadable: tuple[str, ...] = ()  # names of all files that cannot be read
    moved: tuple[str, ...] = ()  # those of them that are in quarantine now
    page: str | None = None  # what --report wrote
    actions: str | None = None  # the CSV beside it
    pipeline: str | None = None  # how `train` shows an image to a model by default


@dataclass(frozen=True)
class Diagnosis(Examination):
    """What `doctor` found in a run or a dataset."""

    subject: str
