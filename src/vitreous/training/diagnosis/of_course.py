"""Checks of a run's course: its settings, the lines of metrics.jsonl, the images that were left out."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from vitreous.data.config import DataConfig
from vitreous.data.findings import Finding
from vitreous.results import percent
from vitreous.training.config import TrainingConfig

Rows = Sequence[Mapping[str, Any]]

# Peak rates between which models of this kind usually learn, at a batch of 256.
USUAL_RATES = {"adamw": (1e-5, 5e-3), "muon": (1e-5, 5e-2), "adafactor": (1e-4, 1.0), "sgd": (1e-4, 1.0)}
ENOUGH_STEPS = 20  # before which nothing is said about the loss
ENOUGH_LINES = 4  # of metrics.jsonl, to say that a loss stays where it was
WORTH_A_WORD = 30  # seconds of training, below which waiting does not matter
CALMER = "set a lower training.peak_lr, a longer training.schedule.warmup or training.precision=fp32"
STARVING = 0.2  # share of the time in which training waited for data


def course_findings(
    training: TrainingConfig,
    rows: Rows,
    *,
    kept: bool = False,
    classes: int | None = None,
    data: DataConfig | None = None,
) -> Iterator[Finding]:
    """All checks that need no model.

    Args:
        kept: whether there is a model, which a run writes at its end or where its loss is not finite.
        classes: that each image is one of; None where something else is learned.
        data: how images are loaded, where they are.
    """
    if not rows and kept:
        problem = "the loss was not finite before the first line of metrics.jsonl"
        yield Finding("not finite", "error", problem, CALMER)
    elif not rows:
        yield Finding("course", "warning", "metrics.jsonl has no line yet", "train for at least one epoch")
    if not rows:
        return
    yield from not_finite(rows)
    yield from learning(training, rows, classes)
    yield from starving(data, rows)
    yield from overfitting(rows)


def not_finite(rows: Rows) -> Iterator[Finding]:
    """Steps that were skipped."""
    first = next((row for row in rows if row.get("skipped")), None)
    if first is not None:
        yield Finding(
            "not finite",
            "warning",
            f"{rows[-1]['skipped']} steps had a gradient that is not finite, the first before step "
            f"{first['step']}",
            CALMER,
        )


def learning(training: TrainingConfig, rows: Rows, classes: int | None) -> Iterator[Finding]:
    """A loss that stays where it began, or where guessing is, or that climbs: usually the learning rate."""
    losses = [row["loss"] for row in rows if "loss" in row]
    # What DINO's student should say moves with its teacher: such a loss climbs while it learns.
    if not losses or rows[-1]["step"] < ENOUGH_STEPS or "teacher_entropy" in rows[-1]:
        return
    smooth = [median(losses[max(end - 3, 0) : end]) for end in range(1, len(losses) + 1)]
    if classes is None:
        stuck = len(losses) >= ENOUGH_LINES and min(losses) > 0.97 * losses[0]
        seen = f"the loss has hardly fallen, from {losses[0]:.3f} to {losses[-1]:.3f}"
    else:
        chance = math.log(classes)
        stuck = training.loss == "softmax" and min(losses) > 0.95 * chance
        seen = f"the loss ({losses[-1]:.3f}) is no better than guessing (ln {classes} = {chance:.3f})"
    # A single epoch's loss jumps: Mixup draws how hard it is.
    climbing = smooth[-1] > 1.3 * min(smooth)
    if not stuck and climbing:
        seen = f"the loss climbed from {min(smooth):.3f} to {smooth[-1]:.3f}"
    if stuck or climbing:
        said = f"{seen} after {rows[-1]['step']} steps; {rate_in_words(training)}"
        yield Finding("learning rate", "error", said, advice(training))


def usual(training: TrainingConfig) -> tuple[float, float]:
    """The usual range of rates for this batch size: it grows with its root."""
    low, high = USUAL_RATES[training.optimizer.kind]
    factor = math.sqrt(training.batch_size / 256)
    return low * min(factor, 1.0), high * max(factor, 0.25)


def rate_in_words(training: TrainingConfig) -> str:
    return (
        f"the peak rate is {training.peak_lr:g} with {training.optimizer.kind} at a batch of "
        f"{training.batch_size}"
    )


def advice(training: TrainingConfig) -> str:
    low, high = usual(training)
    if training.peak_lr > high:
        return f"set training.peak_lr below {high:.2g}"
    if training.peak_lr < low:
        return f"set training.peak_lr above {low:.2g}"
    return (
        f"try training.peak_lr={training.peak_lr / 3:.2g} with a longer training.schedule.warmup, and "
        "look at the other findings and at the images in report.html: do the labels fit them?"
    )


def starving(data: DataConfig | None, rows: Rows) -> Iterator[Finding]:
    """The first line holds the beginning, when everything is read for the first time."""
    later = [row["waiting"] for row in rows[1:] if "waiting" in row]
    long = rows[-1].get("seconds", 0) > WORTH_A_WORD
    if not (later and long and (mean := sum(later) / len(later)) > STARVING):
        return
    seen = f"training waited for data {percent(mean)} of the time"
    if data is None:
        yield Finding(
            "loader", "warning", seen, "show fewer or smaller images, or train where there are more cores"
        )
        return
    yield Finding(
        "loader",
        "warning",
        f"{seen} (data.workers={data.workers}, data.in_memory={data.in_memory})",
        "keep the images in memory (data.in_memory=true), shrink them once (vitreous data pack), or "
        "set more data.workers",
    )


def overfitting(rows: Rows) -> Iterator[Finding]:
    """Training images are classified much better than validation images."""
    last = next((row for row in reversed(rows) if "validation_accuracy" in row and "accuracy" in row), None)
    if last and last["accuracy"] - last["validation_accuracy"] > 0.25:
        yield Finding(
            "overfitting",
            "warning",
            f"{percent(last['accuracy'])} right in training but "
            f"{percent(last['validation_accuracy'])} in validation",
            "add images or augmentation, use a smaller model, or begin from a checkpoint (--init)",
        )


def bad_file_findings(run: Path) -> Iterator[Finding]:
    """What bad_files.txt lists."""
    listed = run / "bad_files.txt"
    if listed.is_file() and (lines := listed.read_text(encoding="utf-8").splitlines()):
        name, _, reason = lines[0].partition("\t")
        yield Finding(
            "bad files",
            "warning",
            f"{len(lines)} images could not be read and were left out, such as {name} ({reason})",
            f"fix or remove what {listed} lists",
        )
