"""The head of a run's report: what its score is compared with, facts, findings, and what to do next."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np

from vitreous.data.findings import Finding
from vitreous.evaluation.result import Evaluation
from vitreous.extensions import addons
from vitreous.inspection.charts import Chart
from vitreous.inspection.page import Exhibit, LeftOut
from vitreous.languages import phrase
from vitreous.outside import read_text
from vitreous.training.callbacks import add_results, read_metrics

MOST_FINDINGS = 3
SHORT = 0.5  # epochs: a training that has seen most images less than once
SEVERITIES = ("error", "warning", "note")  # the most important first
# What to do next, by the names of the sentences in the catalog, after each training command.
LONGER = "vitreous {command} --resume {run} {longer}"
COMMANDS = {
    "train": {
        "doctor": "vitreous doctor {run}",
        "inspect": "vitreous inspect {run}",
        "longer": LONGER,
        "predict": "vitreous predict {run} image.jpg",
        "compare": "vitreous compare {run} OTHER",
    },
    "pretrain": {
        "doctor": "vitreous doctor {run}",
        "probe": "vitreous probe {run} DATA",
        "fine-tune": "vitreous train DATA --init {run}",
        "longer": LONGER,
    },
}
for addon in addons().values():
    for command, added in addon.next_steps.items():
        COMMANDS[command] = COMMANDS.get(command, {}) | dict(added)


def head_of(
    run: Path,
    model: Any,
    evaluation: Evaluation | None,
    parts: Sequence[Exhibit | LeftOut],
    *,
    findings: Sequence[Finding],
    command: str,
    ahead: Mapping[str, Any] | None = None,
    climbed: float = 0.0,
) -> dict[str, Any]:
    """Return what the head of a report has: its number and what to compare it with, whether the model is any
    better, facts, the most important findings, commands to go on with; and the configuration. What was
    measured goes to TensorBoard and the trackers of the run, too.

    Args:
        parts: exhibits of the report.
        command: that reproduces the run.
        ahead: the `name` and the accuracy (`best`) of a classical method that is better than the model.
        climbed: seconds in which ways to train were compared before the training.
    """
    rows = read_metrics(run / "metrics.jsonl")
    last = rows[-1] if rows else {}
    facts: dict[str, float] = {"parameters": sum(each.numel() for each in model.parameters())}
    facts |= {"classes": len(model.labels)} if model.labels else {}
    if rows:
        facts |= {"epochs": last["epoch"], "steps": last["step"], "time": last["seconds"]}
        write_events(run, last["step"], evaluation, parts)
    comparisons, useless = compared_score(evaluation, last)
    if ahead:
        comparisons.append(phrase("head.ahead", **ahead))
    useless_notice = phrase("head.useless") if useless else ""
    short = bool(rows) and last["epoch"] < SHORT
    ranked = sorted(findings, key=lambda each: SEVERITIES.index(each.severity))
    config = run / "config.toml"
    filled = {"run": quote(str(run)), "longer": twice_as_long(config, last, climbed), "command": command}
    return {
        "evaluation": evaluation,
        "comparisons": comparisons,
        "notice": phrase("head.short", epochs=last["epoch"]) if short else useless_notice,
        "facts": facts,
        "findings": ranked[:MOST_FINDINGS],
        "more_findings": max(len(ranked) - MOST_FINDINGS, 0),
        "commands": {name: text.format(**filled) for name, text in COMMANDS[command].items()},
        "command": f"vitreous {command} --config config.toml",
        "configuration": read_text(config) if config.is_file() else None,
    }


def twice_as_long(config: Path, last: Mapping[str, Any], climbed: float = 0.0) -> str:
    """Return the option that trains for twice as long, in minutes where minutes ended the run.

    Args:
        last: row of metrics.jsonl.
        climbed: seconds before the training that count, too.
    """
    settings = tomllib.loads(read_text(config)) if config.is_file() else {}
    minutes = settings.get("training", {}).get("minutes", "none")
    if minutes != "none":
        return f"--minutes {max(round(2 * (minutes + climbed / 60)), 1)}"
    return f"--epochs {max(round(2 * last.get('epoch', 10), 2), 0.01):g}"


def compared_score(evaluation: Evaluation | None, last: Mapping[str, Any]) -> tuple[list[str], bool]:
    """Return sentences on what a score is worth, and whether the model is no better than without learning.
    last: row of metrics.jsonl."""
    comparisons, useless = [], False
    if evaluation is not None and (known := evaluation.without_learning):
        name, values = known
        comparisons.append(phrase(f"head.{name}", **values))
        best, metric = values.get("most_frequent"), next(iter(evaluation.metrics.values()))
        useless = best is not None and metric.interval is not None and metric.interval.low <= best
    return [*comparisons, *gap_of(evaluation, last)], useless


def gap_of(evaluation: Evaluation | None, last: Mapping[str, Any]) -> list[str]:
    """Return how far training and test are apart, in a sentence; without a common measure the losses of
    training and validation."""
    name, measured, metric = (evaluation and evaluation.gap) or ("", "", "")
    if evaluation is not None and measured in last:
        training, test = last[measured], evaluation.metrics[metric].value
        return [phrase(f"head.{name}", training=training, test=test, gap=100 * (training - test))]
    if "validation_loss" in last and "loss" in last:
        return [phrase("head.gap-loss", training=last["loss"], test=last["validation_loss"])]
    return []


def write_events(
    run: Path, step: int, evaluation: Evaluation | None, parts: Sequence[Exhibit | LeftOut]
) -> None:
    """Add the metrics of the test set, the confusion matrix and the images of a report to TensorBoard and to
    the trackers of the run."""
    numbers = {
        f"test/{name}": each.value for name, each in (evaluation.metrics if evaluation else {}).items()
    }
    images = {}
    for part in parts:
        if isinstance(part, Exhibit) and isinstance(part.file, Chart) and part.name == "confusion":
            images[part.name] = part.file.pixels()
        elif isinstance(part, Exhibit) and isinstance(part.file, np.ndarray):
            images[part.name] = part.file
    add_results(run, step, numbers, images)
