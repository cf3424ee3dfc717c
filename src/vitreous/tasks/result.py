"""What a training gave."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from vitreous.checkpoints.runs import CANDIDATES
from vitreous.data.findings import Finding
from vitreous.evaluation.measures import candidate_title
from vitreous.evaluation.result import Evaluation
from vitreous.outside import read_text
from vitreous.results import failures
from vitreous.training.config import CommandConfig
from vitreous.training.run import RunDirectory
from vitreous.whole_files import write_text


@dataclass(frozen=True)
class RunResult:
    """What a training gave."""

    task: str
    run: RunDirectory[CommandConfig]
    answerer: Any  # what answers with the trained model
    evaluation: Evaluation | None  # on the held-out part; None where there is none
    held_out: str | None  # which part that is: "test" or "validation"
    seconds: float  # of training, over all sessions
    waiting: float  # the share of this session's training time in which it waited for data
    train_count: int
    parameters: int
    bad: Mapping[str, str]  # examples that could not be read, with the reason
    extra: Mapping[str, Any] = field(default_factory=dict)  # what else the task has to say
    findings: Sequence[Finding] = ()  # what may keep the model from being good
    said_before: Sequence[Finding] = ()  # those of them that were said before the training: of the data
    report: Path | None = None

    @property
    def candidates(self) -> Sequence[Mapping[str, Any]]:
        """The rows of the candidates that were compared, the best first."""
        return self.extra.get("candidates", ())

    @property
    def title(self) -> str:
        """The candidate that answers, in words."""
        return candidate_title(self.candidates[0]) if self.candidates else ""

    def to_json(self) -> dict[str, object]:
        measured: dict[str, Any] = {"task": self.task, "metrics": {}, "count": 0, "failed": []}
        if self.evaluation:
            measured = self.evaluation.to_json()
        return {
            "run": str(self.run.path),
            **measured,
            "held_out": self.held_out,
            "evaluation_seconds": measured.get("seconds"),
            "seconds": self.seconds,
            "waiting": self.waiting,
            "train_count": self.train_count,
            "parameters": self.parameters,
            "bad_files": failures(self.bad),
            "findings": [each.to_json() for each in self.findings],
            **({"report": str(self.report)} if self.report else {}),
            **self.extra,
        }


def write_candidates(folder: Path, rows: Iterable[Any]) -> None:
    """Write the table of the candidates, of `vitreous.tasks.candidates.Trial`, into a run."""
    write_text(folder / CANDIDATES, json.dumps([asdict(each) for each in rows], indent=1))


def read_candidates(folder: Path) -> list[dict[str, Any]]:
    """Return the table of the candidates of a run; nothing where none were compared."""
    file = folder / CANDIDATES
    found: list[dict[str, Any]] = json.loads(read_text(file)) if file.is_file() else []
    return found
