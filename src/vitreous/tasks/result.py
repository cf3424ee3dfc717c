"""What a training gave: its result, and the model card, its README.md."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from shlex import quote
from typing import Any

from vitreous import __version__
from vitreous.checkpoints.model_card import origin_facts
from vitreous.checkpoints.runs import CANDIDATES
from vitreous.data.findings import Finding
from vitreous.evaluation.measures import candidate_title
from vitreous.evaluation.result import Evaluation
from vitreous.outside import read_text
from vitreous.results import failures
from vitreous.tasks.task import Card
from vitreous.training.config import CommandConfig
from vitreous.training.run import RunDirectory
from vitreous.whole_files import write_text

TEMPLATE = Path(__file__).with_name("card.md")  # with names in braces
MOST_CLASSES = 50  # that a card names


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
    report: Path | None
    extra: Mapping[str, Any] = field(default_factory=dict)  # what else the task has to say
    findings: Sequence[Finding] = ()  # what may keep the model from being good
    said_before: Sequence[Finding] = ()  # those of them that were said before the training: of the data

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


def write_card(card: Card, result: RunResult) -> None:
    """Write what the model is, how good it is, how it was made and how to use it."""
    run, config = result.run, result.run.config
    known = {**result.to_json(), **dict(config)}
    known["classes"] = ", ".join(f"`{name}`" for name in known.get("classes", ())[:MOST_CLASSES])
    path = quote(str(run.path))
    init, recipe = known.get("init"), known.get("recipe") or "of its own"
    model: Any = getattr(result.answerer, "model", result.answerer)
    facts = {
        **measured(result.evaluation),
        "Data": f"`{config.source}`, {result.train_count} examples to train on",
        **{name: text.format(**known).replace("|", " ") for name, text in card.facts.items()},
        "Initialized from": f"`{init}`" if init else "random weights",
        **origin_facts(getattr(model, "origin", None)),
        "Parameters": f"{result.parameters:,}",
        "Training": f"{result.seconds:.0f} s, seed {config.seed}, recipe {recipe}",
    }
    text = TEMPLATE.read_text(encoding="utf-8").format(
        name=run.path.name,
        about=card.about.format(**known),
        version=__version__,
        rows="\n".join(f"| {name} | {value} |" for name, value in facts.items()),
        use=card.use.replace("RUN", path),
        evaluate=f"\nvitreous evaluate {path}" if result.evaluation else "",
        path=run.path,
        python=card.python,
        command=config.command,
        limits=card.limits.format(**known),
    )
    write_text(run.path / "README.md", text)


def measured(evaluation: Evaluation | None) -> dict[str, str]:
    """Return a row for each metric; the first says on how many examples."""
    if not evaluation:
        return {"Accuracy": "not measured: the data have no held-out part"}
    rows, count = {}, f" on {evaluation.count} held-out {evaluation.of}"
    for metric in evaluation.metrics.values():
        text = metric.text()
        if metric.interval:
            low, high = (metric.text(each) for each in metric.interval)
            text += f" (95% interval {low} to {high})"
        rows[metric.label[0].upper() + metric.label[1:]] = text + count
        count = ""
    return rows


def write_candidates(folder: Path, rows: Iterable[Any]) -> None:
    """Write the table of the candidates, of `vitreous.tasks.candidates.Trial`, into a run."""
    write_text(folder / CANDIDATES, json.dumps([asdict(each) for each in rows], indent=1))


def read_candidates(folder: Path) -> list[dict[str, Any]]:
    """Return the table of the candidates of a run; nothing where none were compared."""
    file = folder / CANDIDATES
    found: list[dict[str, Any]] = json.loads(read_text(file)) if file.is_file() else []
    return found
