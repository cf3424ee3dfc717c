"""A model against images whose classes are known: one class for each image, or several."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import NamedTuple, Unpack

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from vitreous.data.dataset import ImageDataset, LabelTargets
from vitreous.data.findings import Finding, finding
from vitreous.data.image_samples import Batch
from vitreous.evaluation.outputs import (
    MOST_KEPT,
    Batching,
    ImageAnswerer,
    ModelOutputs,
    class_columns,
    class_labels,
    compute_outputs,
    summaries,
)
from vitreous.evaluation.result import FEWEST, Answers, LabelEvaluation, Metric, Mistake, TextTable
from vitreous.evaluation.scores import (
    Calibration,
    ClassScore,
    ExampleScores,
    Interval,
    LabelLevels,
    average_precision,
    calibration_of,
    class_scores,
    confusion_matrix,
    precision_interval,
    top_confusions,
    wilson_interval,
)
from vitreous.languages.terminal import said, word
from vitreous.results import percent
from vitreous.training.distributed import ALONE

MOST_CLASSES = 100  # whose confusion matrix goes into the JSON: it grows with their square
SAME = 0.98  # of the images that get the very same labels
SUMMARIZED = 1024  # images whose logits are summarized together
SMALLEST = 1e-12  # probability, whose logarithm is finite
SHOWN_CLASSES = 30  # whose confusion matrix is printed
RARE = 0.5  # of the images of others, and of the accuracy, below which a class is rare, and not found
LOST = 0.2  # of the accuracy, below which a class with as many images as others is not found


class NotFound(NamedTuple):
    """Classes that are hardly ever found: those with a fraction of the images of the others; and those that
    are as common, in words."""

    rare: list[str]
    common: list[str]


@dataclass(frozen=True, kw_only=True)
class ClassificationEvaluation(LabelEvaluation):
    """What a classifier predicts for images of one class each, and what follows from it.

    Attributes:
        predictions: the most probable class of each image.
        confidence: its probability.
        true_probability: that of the true class.
        in_top5: whether the true class is among the five most probable.
        probabilities: those of all classes; None for more than 1,000.
        real_labels: numbers of classes of which any is right for an image, and none says nothing of it; None
            where such labels were not given.
    """

    task = "classification"
    gap = ("gap", "accuracy", "accuracy")
    per_example = (
        "targets",
        "predictions",
        "confidence",
        "true_probability",
        "in_top5",
        "probabilities",
        "real_labels",
    )

    predictions: Int[np.ndarray, " N"]
    confidence: Float[np.ndarray, " N"]
    true_probability: Float[np.ndarray, " N"]
    in_top5: Bool[np.ndarray, " N"]
    probabilities: Float[np.ndarray, "N classes"] | None = None
    real_labels: tuple[frozenset[int], ...] | None = None

    @cached_property
    def calibration(self) -> Calibration:
        return calibration_of(self.confidence, self.correct)

    @cached_property
    def correct(self) -> np.ndarray:
        return self.predictions == self.targets

    @property
    def accuracy(self) -> float:
        return float(self.correct.mean())

    @property
    def interval(self) -> Interval:
        """95%, Wilson's."""
        return wilson_interval(int(self.correct.sum()), self.count)

    @property
    def top5_accuracy(self) -> float | None:
        """The right class among the five most probable; None where there are no more than five."""
        return float(self.in_top5.mean()) if len(self.classes) > 5 else None

    @cached_property
    def confusion(self) -> Int[np.ndarray, "classes classes"]:
        """Rows: what an image is; columns: what it was called."""
        return confusion_matrix(self.targets, self.predictions, len(self.classes))

    @cached_property
    def per_class(self) -> tuple[ClassScore, ...]:
        return class_scores(self.targets, self.predictions, self.classes)

    def scores(self) -> ExampleScores:
        return ExampleScores("accuracy", self.correct.astype(float))

    def by_class(self) -> dict[str, float]:
        return {each.label: each.recall for each in self.per_class if each.support}

    def answers(self) -> Answers:
        true, given = self.targets.tolist(), self.predictions.tolist()
        loss = -np.log(np.maximum(self.true_probability, SMALLEST))
        return Answers(self.classes, true, given, loss, self.confidence, self.correct)

    @property
    def without_learning(self) -> tuple[str, Mapping[str, float]]:
        return "chance", {"most_frequent": self.most_frequent, "chance": 1 / len(self.classes)}

    @property
    def most_frequent(self) -> float:
        """The share of the most frequent class."""
        return float(np.bincount(self.targets).max() / self.count)

    def classes_not_found(self) -> NotFound:
        """Return the classes that are hardly ever found."""
        counts = np.bincount(self.targets, minlength=len(self.classes))
        usual = float(np.median(counts[counts > 0]))
        few = RARE * max(usual, float(counts.max()) / 2)
        rare, common = [], []
        for name, count, each in zip(self.classes, counts, self.per_class, strict=True):
            recall = 1.0 if each.recall is None else each.recall
            if 3 <= count < few and recall < RARE * self.accuracy:
                rare.append(name)
            elif count >= max(few, FEWEST) and recall < LOST * self.accuracy:
                common.append(f"{name}: {round(recall * count)} of {count}")
        return NotFound(rare, common)

    def findings(self) -> Iterator[Finding]:
        """Yield a finding where classes are not found although they are as common as others."""
        common = self.classes_not_found().common
        yield from finding("class not found", common, classes="; ".join(common[:5]), severity="warning")

    def confident_mistakes(self, count: int = 12) -> list[Mistake]:
        """Return the most confident wrong predictions, in descending order."""
        wrong = np.flatnonzero(~self.correct)
        surest = wrong[np.argsort(-self.confidence[wrong], kind="stable")][:count]
        mistakes: list[Mistake] = []
        for row in surest.tolist():
            predicted, actual = self.classes[self.predictions[row]], self.classes[self.targets[row]]
            confidence = float(self.confidence[row])
            mistakes.append(Mistake(int(self.indices[row]), self.names[row], predicted, actual, confidence))
        return mistakes

    @property
    def metrics(self) -> dict[str, Metric]:
        found = {"accuracy": Metric(self.accuracy, "accuracy", self.interval)}
        if self.top5_accuracy is not None:
            found["top5_accuracy"] = Metric(self.top5_accuracy, "top-5 accuracy")
        if self.real_labels is not None:
            pairs = zip(self.predictions.tolist(), self.real_labels, strict=True)
            right = [predicted in labels for predicted, labels in pairs if labels]
            if right:  # some of the images may have none
                interval = wilson_interval(sum(right), len(right))
                found["real_accuracy"] = Metric(sum(right) / len(right), "ReaL accuracy", interval)
        return found | self.calibration_metrics

    def details(self) -> dict[str, object]:
        confusion = {}
        if len(self.classes) <= MOST_CLASSES:
            confusion["confusion"] = self.confusion.tolist()
        return {
            "per_class": [score._asdict() for score in self.per_class],
            **confusion,
            "top_confusions": top_confusions(self.targets, self.predictions, self.classes),
            "calibration": {
                "ece": self.calibration.ece,
                "bins": [asdict(each) for each in self.calibration.bins],
            },
            "mistakes": [asdict(mistake) for mistake in self.confident_mistakes()],
        }

    def tables(self) -> list[TextTable]:
        scores: list[tuple[str, ...]] = []
        for each in self.per_class:
            rates = percent(each.precision), percent(each.recall), percent(each.f1)
            scores.append((each.label, *rates, str(each.support)))
        headers = tuple(map(word, ("class", "precision", "recall", "F1", "images")))
        found = [TextTable("", headers, scores)]
        if len(self.classes) <= SHOWN_CLASSES:
            confusion = zip(self.classes, self.confusion.tolist(), strict=True)
            title = said("confusion matrix: rows are true classes, columns are predicted classes")
            counts = [(label, *map(str, row)) for label, row in confusion]
            found.append(TextTable(title, ("", *self.classes), counts))
        if mistakes := self.confident_mistakes(5):
            rows = [(m.name, m.predicted, m.actual, percent(m.probability)) for m in mistakes]
            headers = tuple(map(word, ("image", "predicted", "true class", "probability")))
            found.append(TextTable(said("most confident mistakes"), headers, rows, words=3))
        return found


@dataclass(frozen=True, kw_only=True)
class MultiLabelEvaluation(LabelEvaluation):
    """What a classifier predicts for images that may have several classes: the probability of each.

    Attributes:
        probabilities, levels: of more than 1,000 classes levels of all logits alone, and sparse targets.
    """

    task = "multilabel"
    per_example = ("targets", "probabilities")

    probabilities: Float[np.ndarray, "N classes"] | None
    levels: LabelLevels | None = None

    @cached_property
    def calibration(self) -> Calibration:
        if self.levels:
            return self.levels.calibration()
        return calibration_of(self.known_probabilities.ravel(), self.targets.ravel())

    @property
    def known_probabilities(self) -> Float[np.ndarray, "N classes"]:
        """The probabilities where there are no levels in their place."""
        assert self.probabilities is not None
        return self.probabilities

    @cached_property
    def average_precision(self) -> tuple[float, ...]:
        """Of each class; NaN for a class that no image shows, and of a part of what was counted."""
        if self.levels:
            return tuple(self.levels.precision(self.count))
        columns = zip(self.targets.T, self.known_probabilities.T, strict=True)
        return tuple(average_precision(target, score) for target, score in columns)

    @property
    def mean_average_precision(self) -> float:
        """Over the classes that some image shows."""
        known = [value for value in self.average_precision if value == value]
        return float(np.mean(known)) if known else math.nan

    @cached_property
    def metrics(self) -> dict[str, Metric]:
        interval = None if self.levels else precision_interval(self.targets, self.known_probabilities)
        precision = Metric(self.mean_average_precision, "mean average precision", interval)
        return {"mean_average_precision": precision, **self.calibration_metrics}

    def findings(self) -> Iterator[Finding]:
        """Yield a finding where every image gets the same labels, or labels are ranked no better than by
        their frequency."""
        if self.probabilities is None or self.count < FEWEST:
            return
        probabilities, targets = np.asarray(self.probabilities), np.asarray(self.targets)
        answers = probabilities >= 0.5
        chance = float(targets.mean(axis=0).mean())
        value = self.mean_average_precision
        interval = self.metrics["mean_average_precision"].interval
        most = float(np.unique(answers, axis=0, return_counts=True)[1].max() / len(answers))
        several = len(np.unique(targets, axis=0)) > 1
        if several and (most > SAME or (interval is not None and interval.low <= chance)):
            yield from finding(
                "constant answers.labels", precision=value, chance=chance, share=most, count=self.count
            )

    def scores(self) -> ExampleScores | None:
        """Return how well the labels of each image are ranked before the others: its average precision."""
        if self.levels:
            return None
        rows = zip(self.targets, self.known_probabilities, strict=True)
        return ExampleScores("ranking", np.array([average_precision(*row) for row in rows]))

    def by_class(self) -> dict[str, float]:
        columns = zip(self.classes, self.average_precision, strict=True)
        return {label: value for label, value in columns if value == value}

    def answers(self) -> Answers | None:
        if self.probabilities is None:
            return None
        true, given = self.targets > 0, self.probabilities >= 0.5
        surprise = np.where(true, self.probabilities, 1 - self.probabilities)
        return Answers(
            self.classes,
            [np.flatnonzero(row).tolist() for row in true],
            [np.flatnonzero(row).tolist() for row in given],
            -np.log(np.maximum(surprise, SMALLEST)).mean(axis=1),
            right=(true == given).all(axis=1),
        )

    @property
    def without_learning(self) -> tuple[str, Mapping[str, float]]:
        """A random ranking has, of each class, the share of images that show it as its average precision."""
        shares = (self.targets > 0).mean(axis=0)
        return "prevalence", {"chance": float(shares[shares > 0].mean())}

    def details(self) -> dict[str, object]:
        support = self.targets.sum(axis=0).astype(int).tolist()
        rows = []
        for label, precision, count in zip(self.classes, self.average_precision, support, strict=True):
            rows.append({"label": label, "average_precision": precision, "support": count})
        return {"per_class": rows}

    def tables(self) -> list[TextTable]:
        columns = zip(self.classes, self.average_precision, strict=True)
        rows = [(label, percent(precision)) for label, precision in columns]
        return [TextTable("", (word("class"), word("average precision")), rows)]


def evaluate_classification(
    model: ImageAnswerer, images: ImageDataset, **batching: Unpack[Batching]
) -> ClassificationEvaluation | MultiLabelEvaluation:
    """Classify every one of `images` once and compare with its class, or its classes. Raises InputError: the
    model does not know the classes, or no image could be decoded."""
    labels, targets = class_labels(model, images), images.targets
    columns = class_columns(labels, images).to(batching.get("device", "cpu"))
    temperature = model.temperature
    if not isinstance(targets, LabelTargets):

        def summarize(batch: Batch) -> Tensor:
            logits = model(batch.images).float()
            return summaries(logits, columns[batch.targets].to(logits.device), temperature)

        return from_summaries(
            labels, images, compute_outputs(model, images, summarize, **batching), temperature
        )
    if len(labels) <= MOST_KEPT:
        return label_evaluation(labels, images, compute_outputs(model, images, **batching), temperature)
    levels = LabelLevels(columns, len(labels))

    def count(batch: Batch) -> Tensor:
        levels.add(model(batch.images).float(), batch.targets)
        return batch.indices  # there is nothing to keep of an image

    found = compute_outputs(model, images, count, **batching)
    levels.counts = batching.get("world", ALONE).add_up(levels.counts)
    return MultiLabelEvaluation(
        classes=labels,
        targets=targets.at(found.indices).with_classes(labels, columns.cpu().numpy()).matrix,
        probabilities=None,
        levels=levels,
        uncalibrated_error=None if temperature == 1 else levels.calibration(temperature).ece,
        **found.evaluation_fields,
    )


def label_evaluation(
    labels: tuple[str, ...], images: ImageDataset, outputs: ModelOutputs, temperature: float
) -> ClassificationEvaluation | MultiLabelEvaluation:
    """Compare the logits of images with their classes.

    Args:
        labels: of the logits, as `class_labels` gives them.
        temperature: that the logits are already divided by.
    """
    columns, targets = class_columns(labels, images), images.targets.at(outputs.indices)
    if not isinstance(targets, LabelTargets):
        known = columns[targets.tensor()]
        found: list[Tensor] = []
        for some, true in zip(
            torch.split(outputs.values, SUMMARIZED), torch.split(known, SUMMARIZED), strict=True
        ):
            found.append(summaries(some, true, temperature))
        outputs = outputs._replace(values=torch.cat(found))
        return from_summaries(labels, images, outputs, temperature)
    evaluation = MultiLabelEvaluation(
        classes=labels,
        targets=targets.with_classes(labels, columns.numpy()).tensor().numpy(),
        probabilities=outputs.values.sigmoid().numpy(),
        **outputs.evaluation_fields,
    )
    if temperature == 1:
        return evaluation
    before = replace(evaluation, probabilities=(outputs.values * temperature).sigmoid().numpy())
    return replace(evaluation, uncalibrated_error=before.calibration.ece)


def from_summaries(
    labels: tuple[str, ...], images: ImageDataset, outputs: ModelOutputs, temperature: float
) -> ClassificationEvaluation:
    """Return the evaluation of images of which `outputs` has the summaries."""
    predictions, confidence, true, in_top5, before = outputs.values[:, :5].numpy().T.copy()
    targets = class_columns(labels, images).numpy()[images.targets.strata(outputs.indices)]
    return ClassificationEvaluation(
        classes=labels,
        targets=targets,
        predictions=predictions.astype(np.int64),
        confidence=confidence,
        true_probability=true,
        in_top5=in_top5 > 0,
        probabilities=outputs.values[:, 5:].numpy() if len(labels) <= MOST_KEPT else None,
        uncalibrated_error=None if temperature == 1 else calibration_of(before, predictions == targets).ece,
        **outputs.evaluation_fields,
    )
