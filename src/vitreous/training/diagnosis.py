"""Why is it not learning? Checks of a run's course; each finding has its fix."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from vitreous.data.config import DataConfig
from vitreous.data.findings import Finding, finding
from vitreous.data.loading import DAMAGED, LOST
from vitreous.outside import read_text
from vitreous.training.callbacks import MetricsRow
from vitreous.training.config import TrainingConfig

MetricsRows = Sequence[MetricsRow]
SentenceValues = dict[str, Any]  # of a finding's sentence

# The lowest, a good and the highest peak rate with which models of this kind usually learn, batch of 256.
USUAL_RATES = {
    "adamw": (1e-5, 1e-3, 5e-3),
    "muon": (1e-5, 1e-2, 5e-2),
    "adafactor": (1e-4, 1e-2, 1.0),
    "sgd": (1e-4, 3e-2, 1.0),
}
ENOUGH_STEPS = 20  # before which nothing is said about the loss
FEW_STEPS = 100  # after which a small model may still be where it began
ENOUGH_LINES = 4  # of metrics.jsonl, to say that a loss stays where it was
WORTH_A_WORD = 30  # seconds of training, below which waiting does not matter
GAP = 0.25  # of the accuracies on training images and on others
EXPLAINED = 0.1  # share of the trivial loss, below which a pre-training has learned next to nothing
STARVING = 0.2  # share of the time in which training waited for data


def course_findings(
    training: TrainingConfig,
    rows: MetricsRows,
    *,
    kept: bool = False,
    ended: bool = False,
    classes: int | None,
    data: DataConfig | None = None,
    usual: TrainingConfig | None = None,
    moving_target: bool = False,
) -> Iterator[Finding]:
    """Yield the findings of all checks that need no model.

    Args:
        kept: whether there is a model, which a run writes at its end or where its loss is not finite.
        ended: whether the run came to its end, and so has had lines.
        classes: that each image is one of; None where something else is learned.
        data: how images are loaded, where they are.
        usual: the training as the recipe has it.
        moving_target: whether the loss can climb while the model learns.
    """
    # Nothing was to be learned, or no time was left for a step: the model is what it began with.
    if not rows and (training.steps == 0 or training.minutes):
        return
    if not rows:
        if ended:
            yield from finding("lost course", severity="warning")
        elif kept:
            yield from finding("not finite.start")
        else:
            yield from finding("course", severity="warning")
        return
    yield from skipped_steps(rows)
    if not moving_target:
        yield from learning(training, rows, classes, usual)
    yield from starving(data, rows)
    yield from overfitting(rows)
    yield from trivial_prediction(rows)


def trivial_prediction(rows: MetricsRows) -> Iterator[Finding]:
    """Yield a finding about a pre-training that has hardly left the trivial prediction at its end."""
    share = rows[-1].get("validation_explained")
    if share is not None and share < EXPLAINED and rows[-1]["step"] >= ENOUGH_STEPS:
        yield from finding("explained", share=share, severity="warning")


def skipped_steps(rows: MetricsRows) -> Iterator[Finding]:
    """Yield a finding about steps that were skipped."""
    first = next((row for row in rows if row.get("skipped")), None)
    if first is not None:
        yield from finding(
            "not finite.steps", found=int(rows[-1]["skipped"]), step=first["step"], severity="warning"
        )


def learning(
    training: TrainingConfig, rows: MetricsRows, classes: int | None, usual: TrainingConfig | None
) -> Iterator[Finding]:
    """Yield a finding about a loss that stays where it began, or where guessing is, or that climbs. The
    learning rate is to blame where it is not a usual one."""
    losses = [row["loss"] for row in rows if "loss" in row]
    if not losses or rows[-1]["step"] < ENOUGH_STEPS:
        return
    # A single line's loss jumps, since Mixup draws how hard it is; the lowest of hundreds would be luck.
    width = max(3, len(losses) // 10)
    smooth = [median(losses[max(end - width, 0) : end]) for end in range(1, len(losses) + 1)]
    if classes is None:
        course, first, last = "flat", losses[0], losses[-1]
        stuck = len(losses) >= ENOUGH_LINES and min(losses) > 0.97 * losses[0]
    else:
        course, first, last = "chance", math.log(classes), losses[-1]
        # A head that was sure from the beginning has a large loss, and answers nearly all images rightly.
        right = max((row["accuracy"] for row in rows if "accuracy" in row), default=0.0)
        guessing = right < (1 + 1 / classes) / 2
        stuck = training.loss == "softmax" and min(losses) > 0.95 * first and guessing
    climbing = smooth[-1] > 1.3 * min(smooth)
    if not stuck and climbing:
        course, first, last = "climbing", min(smooth), smooth[-1]
    if not (stuck or climbing):
        return
    low, good, high = usual_rates(training, usual)
    seen: SentenceValues = {
        "course": course,
        "first": first,
        "last": last,
        "classes": classes,
        "steps": rows[-1]["step"],
    }
    seen |= {"optimizer": training.optimizer.kind, "batch": training.batch_size, "rate": training.peak_lr}
    if low <= training.peak_lr <= high:
        yield from finding("not learning", few=rows[-1]["step"] < FEW_STEPS, **seen)
    else:
        yield from finding("learning rate", low=low, good=good, high=high, **seen)


def usual_rates(training: TrainingConfig, usual: TrainingConfig | None) -> tuple[float, float, float]:
    """Return the lowest, a good and the highest peak rate: about that of the recipe, if it has the same
    optimizer; else those of the optimizer, which grow with the root of the batch size."""
    if usual and usual.optimizer.kind == training.optimizer.kind:
        return usual.peak_lr / 20, usual.peak_lr, usual.peak_lr * 5
    low, good, high = USUAL_RATES[training.optimizer.kind]
    factor = math.sqrt(training.batch_size / 256)
    return low * min(factor, 1.0), good * min(max(factor, 0.5), 2.0), high * max(factor, 0.5)


def starving(data: DataConfig | None, rows: MetricsRows) -> Iterator[Finding]:
    """Yield a finding about waiting for data. The first line holds the beginning, when everything is read for
    the first time."""
    later = [row["waiting"] for row in rows[1:] if "waiting" in row]
    long = rows[-1].get("seconds", 0) > WORTH_A_WORD
    if not (later and long and (mean := sum(later) / len(later)) > STARVING):
        return
    if data is None:
        yield from finding("loader.texts", share=mean, severity="warning")
    else:
        yield from finding(
            "loader.images",
            share=mean,
            workers=data.read.workers,
            in_memory=data.read.in_memory,
            severity="warning",
        )


# Kinds of findings, a cause before what it brings about.
CAUSES = (
    *("bad files", "blank images", "leak", "conflict", "labels", "split", "own labels", "normalization"),
    *("frozen encoder", "origin of NaN", "learning rate", "image size", "patch size", "labels at random"),
    *("not finite", "wrong labels", "loader", "overfitting"),
)
ROOTS = {"blank images", "normalization", "frozen encoder", "learning rate", "labels at random", "split"}
ROOTS |= {"origin of NaN", "labels"}
CONSEQUENCES = {"not learning", "one class", "exploding layer", "dead layer"}
CONSEQUENCES |= {"labels at random", "overfitting", "wrong labels"}
EQUAL_IMAGES = {"leak", "conflict"}  # where all of them are blank


def causes_first(findings: Iterable[Finding]) -> list[Finding]:
    """Return findings, causes before consequences, without consequences that the first error explains."""
    order = {kind: place for place, kind in enumerate(CAUSES)}
    found = sorted(findings, key=lambda each: order.get(each.kind, len(order)))
    root = next((each.kind for each in found if each.kind in ROOTS and each.severity == "error"), None)
    explained = CONSEQUENCES - {root} if root else set()
    explained |= EQUAL_IMAGES if root == "blank images" else set()
    return [each for each in found if each.kind not in explained]


def frozen_encoder(training: TrainingConfig, init: str | None) -> Iterator[Finding]:
    """Yield a finding about weights that were never trained, and will not be."""
    learned = "backbone", "stem", "blocks"
    layers = [part for part in training.freeze if part.split(".")[0] in learned]
    if init is None and layers:
        yield from finding("frozen encoder", layers=layers)


def overfitting(rows: MetricsRows, held_out: float | None = None) -> Iterator[Finding]:
    """Yield a finding where training images are classified much better than others. held_out: the accuracy,
    if there was no validation."""
    last = next((row for row in reversed(rows) if "accuracy" in row), None)
    measured = next(
        (row["validation_accuracy"] for row in reversed(rows) if "validation_accuracy" in row), held_out
    )
    if last and measured is not None and last["accuracy"] - measured > GAP:
        yield from finding(
            "overfitting",
            training=last["accuracy"],
            held_out=measured,
            validation=measured is not held_out,
            severity="warning",
        )


def bad_file_findings(run: Path) -> Iterator[Finding]:
    """Yield what bad_files.txt lists."""
    listed = run / "bad_files.txt"
    rows: list[tuple[str, str]] = []
    for line in read_text(listed).splitlines() if listed.is_file() else []:
        name, _, reason = line.partition("\t")
        rows.append((name, reason))
    damaged = [name for name, reason in rows if reason.startswith(DAMAGED)]
    yield from finding("damaged", damaged, severity="warning")
    # What was decided from the headers, or a sample, when the data were opened, beside all that was read.
    colored = [name for name, reason in rows if reason == f"{LOST}colors"]
    yield from finding("colors lost", colored, severity="warning")
    beyond = [name for name, reason in rows if reason == f"{LOST}range"]
    yield from finding("beyond range", beyond, severity="warning")
    if unread := [row for row in rows if not row[1].startswith((DAMAGED, LOST))]:
        name, reason = unread[0]
        yield from finding(
            "bad files", found=len(unread), name=name, reason=reason, file=listed, severity="warning"
        )
