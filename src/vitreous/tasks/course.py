"""What the numbers of a training say at its end, whatever its task: why it has not learned."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from vitreous.checkpoints.runs import is_finished
from vitreous.data.dataset import ImageDataset, Splits
from vitreous.data.findings import Finding, finding
from vitreous.evaluation.classification import ClassificationEvaluation
from vitreous.evaluation.result import FEWEST, Evaluation, Metric
from vitreous.evaluation.scores import candidate_title, is_constant, is_network, wilson_interval
from vitreous.tasks import task_named
from vitreous.tasks.task import read_candidates
from vitreous.training.config import CommandConfig, TrainingConfig
from vitreous.training.diagnosis import ENOUGH_STEPS, GAP, bad_file_findings, course_findings, overfitting
from vitreous.training.run import RunDirectory

AnyRun = RunDirectory[CommandConfig]
Baselines = Sequence[Mapping[str, Any]]  # as the report of the training has them
FINDINGS = "findings.json"  # in a run: what was found at its end
SHIFT = 0.05  # between the intervals of two accuracies, from which on their images differ
SAMPLE = 32  # images that are looked at


def run_findings(
    run: AnyRun, classes: int | None = None, usual: TrainingConfig | None = None
) -> Iterator[Finding]:
    """Yield what a run's numbers say. usual: the training as its recipe has it."""
    finished, data, rows = is_finished(run.path), getattr(run.config, "data", None), run.metrics()
    task = task_named(run.config.task)
    yield from course_findings(
        run.config.training,
        rows,
        kept=finished,
        ended=(run.path / "report.html").is_file(),
        classes=classes,
        data=data,
        usual=usual,
        moving_target=task.info.moving_target,
    )
    for alarm in task.info.alarms:
        yield from alarm(rows)


def course_of(
    run: AnyRun,
    data: Any,
    evaluation: Evaluation | None,
    baselines: Baselines = (),
) -> list[Finding]:
    """Return what takes no time to find at the end of a run: in its numbers, files that were left out, and
    where it is not better than the classical methods."""
    classes = len(data.train.classes) if run.config.task == "classification" else None
    candidates = read_candidates(run.path)
    found: list[Finding] = []
    if nothing := is_constant(candidates):
        found += finding("nothing learned", name=candidate_title(candidates[0]), severity="warning")
    # This comes first, so that a score below that of a simpler method is not read alone.
    if evaluation and baselines:
        metric = next(iter(evaluation.metrics.values()))
        found += below_baseline(metric, baselines, by_chance=not nothing)
    found += [*bad_file_findings(run.path), *run_findings(run, classes)]
    if isinstance(evaluation, ClassificationEvaluation):
        low, count = evaluation.interval.low, evaluation.count
        if count >= FEWEST and low <= evaluation.most_frequent:
            best = max((each["interval"][0] for each in baselines), default=0.0)
            fit = best > evaluation.most_frequent
            found += at_chance(
                run, data, evaluation.accuracy, evaluation.most_frequent, count, labels_fit=fit
            )
        elif not data.validation:
            found += overfitting(run.metrics(), evaluation.accuracy)
        missed = evaluation.classes_not_found().rare
        if missed and run.config.training.loss == "softmax":
            most = int(np.bincount(evaluation.targets).max())
            found += finding("rare classes", missed, most=most, severity="warning")
    if evaluation:
        found += evaluation.findings()
    shares = [row["validation_accuracy"] for row in run.metrics() if "validation_accuracy" in row]
    if classes and shares and is_network(candidates) and data.validation and data.test and evaluation:
        best = run.config.training.records_config.early_stopping is not None
        share = max(shares) if best else shares[-1]  # of the tested model
        count = len(data.validation)
        found += other_looks((round(share * count), count), (int(evaluation.correct.sum()), evaluation.count))
    return found


def without_what_was_tried(run: AnyRun, findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings of a run; where candidates were compared, they do not advise to try these, nor
    another loss where what answers has none."""
    candidates = read_candidates(run.path)
    if not candidates:
        return list(findings)
    known = {"compared": True, "has_loss": is_network(candidates)}
    return [replace(each, values={**each.values, **known}) for each in findings]


def with_others(findings: list[Finding], others: Sequence[Finding]) -> list[Finding]:
    """Return findings, and those of others whose kind is not among them."""
    kinds = {each.kind for each in findings}
    return [*findings, *(each for each in others if each.kind not in kinds)]


def other_looks(validation: tuple[int, int], test: tuple[int, int]) -> Iterator[Finding]:
    """Test images are answered worse than those of the validation, and not by chance. Of both: how many
    answers are right, and how many images there are."""
    if wilson_interval(*validation)[0] - wilson_interval(*test)[1] > SHIFT:
        yield from finding(
            "other looks",
            validation=validation[0] / validation[1],
            test=test[0] / test[1],
            severity="warning",
        )


def below_baseline(metric: Metric, baselines: Baselines, *, by_chance: bool = True) -> Iterator[Finding]:
    """Yield a finding where the model is below the best method without a network on the same held-out images.
    by_chance: also where the interval of that method has the model's score."""
    best = max(baselines, key=lambda each: each["accuracy"])
    low, high = best["interval"]
    if metric.value < (best["accuracy"] if by_chance else low):
        yield from finding(
            "below baseline",
            metric=metric.label,
            score=metric.text(),
            name=best["name"],
            best=metric.text(best["accuracy"]),
            interval=f"{metric.text(low)} … {metric.text(high)}",
            reached=metric.value,
            low=low,
            severity="warning",
        )


def at_chance(
    run: AnyRun, splits: Splits, accuracy: float, majority: float, count: int, *, labels_fit: bool
) -> Iterator[Finding]:
    """Yield why nothing was learned that holds for other images, where the training itself is as usual. The
    labels are to blame where the model has learned its images by heart, or where the accuracy on `count`
    others is within its standard error of guessing; it may be too early to tell where that is higher.
    labels_fit: a classical method is better than guessing, so that the labels are not to blame."""
    rows = [row for row in run.metrics() if "accuracy" in row]
    candidates = read_candidates(run.path)
    if candidates and not rows and not is_constant(candidates):
        yield from finding(
            "nothing learned.chance", accuracy=accuracy, majority=majority, count=count, severity="warning"
        )
        return
    memorized = bool(rows) and rows[-1]["accuracy"] - accuracy > GAP
    if is_noise(splits.train):
        if not any("validation_accuracy" in row for row in rows):
            yield from overfitting(rows, accuracy)
        return
    if rows and rows[-1]["step"] >= ENOUGH_STEPS:
        learned = rows[-1]["accuracy"]
        guessing = accuracy - majority < math.sqrt(majority * (1 - majority) / count)
        if memorized and labels_fit:
            yield from overfitting(rows, accuracy)
        elif (memorized or guessing) and not labels_fit:
            yield from finding(
                "labels at random",
                memorized=memorized,
                training=learned,
                accuracy=accuracy,
                majority=majority,
            )
        else:
            yield from finding(
                "not learning.early",
                count=count,
                steps=rows[-1]["step"],
                training=learned,
                accuracy=accuracy,
                majority=majority,
                severity="warning",
            )


def is_noise(images: ImageDataset) -> bool:
    """Return whether pixels tell nothing of their neighbors, as in noise."""
    alike = []
    for _, image in images.readable(images.sample(SAMPLE)):
        pixels = np.asarray(image.preview().convert("L"), dtype=np.float64)
        if pixels.shape[1] > 1 and pixels.std() > 0:
            alike.append(np.corrcoef(pixels[:, 1:].ravel(), pixels[:, :-1].ravel())[0, 1])
    return bool(alike) and float(np.median(alike)) < 0.2
