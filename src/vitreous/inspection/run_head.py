"""The head of a run's report: what its score is compared with, findings, and what to do next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Any

from vitreous.data.findings import Finding
from vitreous.evaluation.classification import ClassificationEvaluation
from vitreous.evaluation.result import Evaluation
from vitreous.languages import phrase

MOST_FINDINGS = 3
SEVERITIES = ("error", "warning", "note")  # the most important first
# What to do next, by the names of the sentences in the catalog, after each training command.
LONGER = "vitreous {command} --resume {run} --epochs {epochs}"
COMMANDS = {
    "train": {
        "doctor": "vitreous doctor {run}",
        "inspect": "vitreous inspect {run}",
        "longer": LONGER,
        "predict": "vitreous predict {run} image.jpg",
        "serve": "vitreous serve {run}",
    },
    "pretrain": {
        "doctor": "vitreous doctor {run}",
        "probe": "vitreous probe {run} DATA",
        "fine-tune": "vitreous train DATA --init {run}",
        "longer": LONGER,
    },
    "translate train": {
        "doctor": "vitreous doctor {run}",
        "longer": LONGER,
        "translate": 'vitreous translate {run} "..."',
        "serve": "vitreous serve {run}",
    },
}


def head_of(
    run: Path,
    evaluation: Evaluation | None,
    findings: Sequence[Finding],
    last: Mapping[str, Any],
    command: str,
) -> dict[str, Any]:
    """Return what the head of a report has besides its number: what to compare it with, whether the model is
    any better, the most important findings, and commands to go on with.

    Args:
        last: row of metrics.jsonl.
    """
    comparisons, useless = [], False
    if isinstance(evaluation, ClassificationEvaluation):
        most_frequent = float(evaluation.confusion.sum(axis=1).max() / evaluation.count)
        useless = evaluation.interval.low <= most_frequent
        classes = len(evaluation.classes)
        comparisons.append(phrase("head.chance", most_frequent=most_frequent, chance=1 / classes))
        if "accuracy" in last:
            gap = 100 * (last["accuracy"] - evaluation.accuracy)
            comparisons.append(phrase("head.gap", training=last["accuracy"], gap=gap))
    elif evaluation is not None and evaluation.task == "regression":
        comparisons.append(phrase("head.mean"))
    ranked = sorted(findings, key=lambda each: SEVERITIES.index(each.severity))
    more = {"run": quote(str(run)), "epochs": f"{2 * last.get('epoch', 10):g}", "command": command}
    return {
        "comparisons": comparisons,
        "notice": phrase("head.useless") if useless else "",
        "findings": ranked[:MOST_FINDINGS],
        "more_findings": max(len(ranked) - MOST_FINDINGS, 0),
        "commands": {name: text.format(**more) for name, text in COMMANDS[command].items()},
    }
