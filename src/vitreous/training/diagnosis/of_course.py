"""Checks of a run's course: its settings and the lines of metrics.jsonl."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from vitreous.training.config import RunConfig, TrainingConfig
from vitreous.training.diagnosis.findings import Finding

Rows = Sequence[Mapping[str, Any]]

# Peak rates between which models of this kind usually learn, at a batch of 256.
USUAL_RATES = {"adamw": (1e-5, 5e-3), "muon": (1e-5, 5e-2), "adafactor": (1e-4, 1.0), "sgd": (1e-4, 1.0)}
ENOUGH_STEPS = 20  # before which nothing is said about the loss
WORTH_A_WORD = 30  # seconds of training, below which waiting is nobody's trouble
STARVING = 0.2  # share of the time in which training waited for data


def course_findings(config: RunConfig, rows: Rows, classes: int) -> Iterator[Finding]:
    """All checks that need no model."""
    if not rows:
        yield Finding("course", "metrics.jsonl has no line yet", "train for at least one epoch")
        return
    yield from not_finite(rows)
    yield from learning(config, rows, classes)
    yield from starving(config, rows)
    yield from overfitting(rows)


def not_finite(rows: Rows) -> Iterator[Finding]:
    """Steps that were skipped."""
    first = next((row for row in rows if row.get("skipped")), None)
    if first is not None:
        yield Finding(
            "not finite",
            f"{rows[-1]['skipped']} steps had a gradient that is not finite, the first before step "
            f"{first['step']}",
            "set a lower training.peak_lr, a longer training.schedule.warmup or training.precision=fp32",
        )


def learning(config: RunConfig, rows: Rows, classes: int) -> Iterator[Finding]:
    """A loss that stays where guessing is, or that climbs: usually the learning rate."""
    losses = [row["loss"] for row in rows if "loss" in row]
    if not losses or rows[-1]["step"] < ENOUGH_STEPS:
        return
    training, chance = config.training, math.log(classes)
    stuck = training.loss == "softmax" and min(losses) > 0.95 * chance
    smooth = [median(losses[max(end - 3, 0) : end]) for end in range(1, len(losses) + 1)]
    climbing = smooth[-1] > 1.3 * min(smooth)  # a single epoch's loss jumps: Mixup draws how hard it is
    if not (stuck or climbing):
        return
    seen = (
        f"the loss ({losses[-1]:.3f}) is no better than guessing (ln {classes} = {chance:.3f})"
        if stuck
        else f"the loss climbed from {min(smooth):.3f} to {smooth[-1]:.3f}"
    )
    yield Finding(
        "learning rate", f"{seen} after {rows[-1]['step']} steps; {rate_in_words(training)}", advice(training)
    )


def usual(training: TrainingConfig) -> tuple[float, float]:
    """The usual range of rates for this batch size: it grows with its root."""
    low, high = USUAL_RATES[training.optimiser.kind]
    factor = math.sqrt(training.batch_size / 256)
    return low * min(factor, 1.0), high * max(factor, 0.25)


def rate_in_words(training: TrainingConfig) -> str:
    return (
        f"the peak rate is {training.peak_lr:g} with {training.optimiser.kind} at a batch of "
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
        "look at the other findings and at the pictures in report.html: do the labels fit them?"
    )


def starving(config: RunConfig, rows: Rows) -> Iterator[Finding]:
    """The first line holds the beginning, when everything is read for the first time."""
    later = [row["waiting"] for row in rows[1:] if "waiting" in row]
    long = rows[-1].get("seconds", 0) > WORTH_A_WORD
    if later and long and (mean := sum(later) / len(later)) > STARVING:
        yield Finding(
            "loader",
            f"training waited for data {mean:.0%} of the time (data.workers={config.data.workers}, "
            f"data.in_memory={config.data.in_memory})",
            "keep the pictures in memory (data.in_memory=true), shrink them once (vitreous data pack), or "
            "set more data.workers",
        )


def overfitting(rows: Rows) -> Iterator[Finding]:
    """Known by heart, but not understood."""
    last = next((row for row in reversed(rows) if "validation_accuracy" in row and "accuracy" in row), None)
    if last and last["accuracy"] - last["validation_accuracy"] > 0.25:
        yield Finding(
            "overfitting",
            f"{last['accuracy']:.0%} right in training but {last['validation_accuracy']:.0%} in validation",
            "add pictures or augmentation, use a smaller model, or begin from a checkpoint (--init)",
        )
