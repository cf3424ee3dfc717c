"""The head of a run's report: what its score is compared with, facts, findings, and what to do next."""

from __future__ import annotations

import math
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
IN_MINUTES = ("train", "pretrain")  # commands that take --minutes
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


def report_head(
    run: Path,
    model: Any,
    evaluation: Evaluation | None,
    parts: Sequence[Exhibit | LeftOut],
    *,
    findings: Sequence[Finding],
    command: str,
    ahead: Mapping[str, object] | None = None,
    learned: bool = True,
) -> dict[str, Any]:
    """Return what the head of a report has, by the names that templates/run.html.j2 uses. What was measured
    goes to TensorBoard and the trackers of the run, too.

    Args:
        model: of any kind, with `labels`.
        parts: exhibits of the report.
        command: that trained the run.
        ahead: the `name` and the accuracy (`best`) of a classical method that is better than the model.
        learned: whether the model is the network that the steps of the run trained.
    """
    rows = read_metrics(run / "metrics.jsonl")
    last = rows[-1] if rows else {}
    facts: dict[str, float] = {"parameters": sum(each.numel() for each in model.parameters())}
    if model.labels:
        facts["classes"] = len(model.labels)
    notice = ""
    if rows:
        facts |= {"epochs": last["epoch"], "steps": last["step"], "time": last["seconds"]}
        write_events(run, int(last["step"]), evaluation, parts)
    comparisons = comparisons_of(evaluation, last if learned else {})
    if ahead:
        comparisons.append(phrase("head.ahead", **ahead))
    short = learned and bool(rows) and last["epoch"] < SHORT
    if short:
        notice = phrase("head.short", epochs=last["epoch"])
    elif is_useless(evaluation):
        notice = phrase("head.useless")
    longer, more = twice_as_long(run / "config.toml", last, command)
    minutes = 0
    if rows:  # 1: less than one
        minutes = 1 if more < 1 else max(round(more), 2)
    config = run / "config.toml"
    values = {"run": quote(str(run)), "longer": longer, "command": command}
    ranked = sorted(findings, key=lambda each: SEVERITIES.index(each.severity))
    return {
        "evaluation": evaluation,
        "comparisons": comparisons,
        "notice": notice,  # what the reader has to know before all figures
        "short": short,  # whether the training ended before most images were seen
        "facts": facts,
        "findings": ranked[:MOST_FINDINGS],
        "more_findings": max(len(ranked) - MOST_FINDINGS, 0),
        "commands": {  # what to do next, by the names of their sentences in the catalog
            name: text.format(**values)
            for name, text in COMMANDS[command].items()
            if rows or name != "longer"  # where nothing was trained, nothing is longer
        },
        "minutes": minutes,  # that training for as long again takes; 0 where that is not known
        "command": f"vitreous {command} --config config.toml",
        "configuration": read_text(config) if config.is_file() else None,
    }


def twice_as_long(config: Path, last: Mapping[str, float], command: str) -> tuple[str, float]:
    """Return the option of --resume that trains for twice as long, and how many minutes more it takes: in
    minutes where minutes ended the run, or where it ended so early that its epochs say little. The minutes of
    a run are those of the command, with the candidates that it compared before it trained.

    Args:
        last: row of metrics.jsonl.
    """
    trained = last.get("seconds", 0.0) / 60
    settings = tomllib.loads(read_text(config)) if config.is_file() else {}
    number, _, unit = str(settings.get("training", {}).get("length")).partition(" ")
    if unit == "minutes":
        return f"--minutes {max(round(2 * float(number)), 1)}", float(number)
    if last and last["epoch"] < SHORT and command in IN_MINUTES:
        return f"--minutes {math.ceil(2 * trained)}", trained
    return f"--epochs {max(round(2 * last.get('epoch', 10), 2), 0.01):g}", trained


def is_useless(evaluation: Evaluation | None) -> bool:
    """Return whether a model may be no better than the answer that is most frequent."""
    if evaluation is None or not (known := evaluation.without_learning):
        return False
    best = known[1].get("most_frequent")
    metric = next(iter(evaluation.metrics.values()))
    return best is not None and metric.interval is not None and metric.interval.low <= best


def comparisons_of(evaluation: Evaluation | None, last: Mapping[str, float]) -> list[str]:
    """Return sentences on what a score is to be compared with: a model that has learned nothing, and the
    training images; without a common measure the losses of training and validation.

    Args:
        last: row of metrics.jsonl.
    """
    sentences = []
    if evaluation is not None and (known := evaluation.without_learning):
        name, values = known
        sentences.append(phrase(f"head.{name}", **values))
    if evaluation is not None and evaluation.gap and evaluation.gap[1] in last:
        name, measured, metric = evaluation.gap
        training, test = last[measured], evaluation.metrics[metric].value
        sentences.append(phrase(f"head.{name}", training=training, test=test, gap=100 * (training - test)))
    elif "validation_loss" in last and "loss" in last:
        sentences.append(phrase("head.gap-loss", training=last["loss"], test=last["validation_loss"]))
    return sentences


def write_events(
    run: Path, step: int, evaluation: Evaluation | None, parts: Sequence[Exhibit | LeftOut]
) -> None:
    """Add the metrics of the test set, the confusion matrix and the images of a report to TensorBoard and to
    the trackers of the run."""
    numbers = {}
    if evaluation is not None:
        for name, metric in evaluation.metrics.items():
            numbers[f"test/{name}"] = metric.value
    images = {}
    for part in parts:
        if isinstance(part, Exhibit) and isinstance(part.file, Chart) and part.name == "confusion":
            images[part.name] = part.file.pixels()
        elif isinstance(part, Exhibit) and isinstance(part.file, np.ndarray):
            images[part.name] = part.file
    add_results(run, step, numbers, images)
