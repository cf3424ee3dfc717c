"""A model against images whose classes are known: one class for each image, or several."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Unpack

import numpy as np
from jaxtyping import Float, Int
from torch import Tensor

from vitreous.data.dataset import ImageDataset
from vitreous.errors import InputError
from vitreous.evaluation.augmented import AveragedViews
from vitreous.evaluation.outputs import Batching, Outputs, compute_outputs
from vitreous.evaluation.paired import ExampleScores
from vitreous.evaluation.result import Answers, Evaluation, Metric, TextTable
from vitreous.evaluation.scores import (
    Calibration,
    ClassScore,
    Interval,
    average_precision,
    calibrate,
    class_scores,
    confusion_matrix,
    top_confusions,
    wilson_interval,
)
from vitreous.models.names import Runnable
from vitreous.results import percent

MOST_CLASSES = 100  # whose confusion matrix goes into the JSON: it grows with their square
SMALLEST = 1e-12  # probability, whose logarithm is finite
SHOWN_CLASSES = 30  # whose confusion matrix is printed


@dataclass(frozen=True)
class Mistake:
    """An image that was called `predicted`, with what probability, and is `actual`."""

    index: int
    name: str
    predicted: str
    actual: str
    probability: float


@dataclass(frozen=True, kw_only=True)
class LabelEvaluation(Evaluation):
    """What a classifier predicts for each image.

    Attributes:
        classes: the label of each class, in the model's order.
        targets: its class; where it may have several, a 0 or 1 for each class.
        probabilities: what the model gives each class; they sum to one where an image has one class.
        uncalibrated_error: the calibration error without the model's temperature; None where it has none.
    """

    per_example = ("targets", "probabilities")

    indices: Int[np.ndarray, " N"]
    classes: tuple[str, ...]
    targets: Int[np.ndarray, " N"] | Float[np.ndarray, "N classes"]
    probabilities: Float[np.ndarray, "N classes"]
    uncalibrated_error: float | None = None

    @cached_property
    def calibration(self) -> Calibration:
        """Whether the probabilities are right: of the predicted class, or of every yes and no."""
        return calibration_of(self.probabilities, self.targets)

    @property
    def calibration_metrics(self) -> dict[str, Metric]:
        found = {"calibration_error": Metric(self.calibration.ece, "calibration (ECE)")}
        if self.uncalibrated_error is not None:
            label = "calibration (ECE) without the temperature"
            found["uncalibrated_error"] = Metric(self.uncalibrated_error, label)
        return found


@dataclass(frozen=True, kw_only=True)
class ClassificationEvaluation(LabelEvaluation):
    """What a classifier predicts for images of one class each, and what follows from it."""

    task = "classification"

    @cached_property
    def predictions(self) -> Int[np.ndarray, " N"]:
        return self.probabilities.argmax(axis=1)

    @cached_property
    def correct(self) -> np.ndarray:
        return self.predictions == self.targets

    @property
    def accuracy(self) -> float:
        return float(self.correct.mean())

    @property
    def interval(self) -> Interval:
        """95 %, Wilson's."""
        return wilson_interval(int(self.correct.sum()), self.count)

    @cached_property
    def top5_accuracy(self) -> float | None:
        """The right class among the five most probable; None where there are no more than five."""
        if len(self.classes) <= 5:
            return None
        five = np.argpartition(-self.probabilities, 5, axis=1)[:, :5]
        return float((five == self.targets[:, None]).any(axis=1).mean())

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
        rows = np.arange(self.count)
        return Answers(
            self.classes,
            self.targets.tolist(),
            self.predictions.tolist(),
            -np.log(np.maximum(self.probabilities[rows, self.targets], SMALLEST)),
            self.probabilities[rows, self.predictions],
            self.correct,
        )

    @property
    def without_learning(self) -> tuple[str, Mapping[str, float]]:
        return "chance", {"most_frequent": self.most_frequent, "chance": 1 / len(self.classes)}

    @property
    def most_frequent(self) -> float:
        """The share of the most frequent class."""
        return float(np.bincount(self.targets).max() / self.count)

    def confident_mistakes(self, count: int = 12) -> list[Mistake]:
        """Return the most confident wrong predictions, in descending order."""
        confidence = self.probabilities.max(axis=1)
        wrong = np.flatnonzero(~self.correct)
        return [
            Mistake(
                int(self.indices[row]),
                self.names[row],
                self.classes[self.predictions[row]],
                self.classes[self.targets[row]],
                float(confidence[row]),
            )
            for row in wrong[np.argsort(-confidence[wrong], kind="stable")][:count]
        ]

    @property
    def metrics(self) -> dict[str, Metric]:
        found = {"accuracy": Metric(self.accuracy, "accuracy", self.interval)}
        if self.top5_accuracy is not None:
            found["top5_accuracy"] = Metric(self.top5_accuracy, "top-5 accuracy")
        return found | self.calibration_metrics

    def details(self) -> dict[str, Any]:
        return {
            "per_class": [score._asdict() for score in self.per_class],
            **({"confusion": self.confusion.tolist()} if len(self.classes) <= MOST_CLASSES else {}),
            "top_confusions": top_confusions(self.targets, self.predictions, self.classes),
            "calibration": {
                "ece": self.calibration.ece,
                "bins": [asdict(each) for each in self.calibration.bins],
            },
            "mistakes": [asdict(mistake) for mistake in self.confident_mistakes()],
        }

    def tables(self) -> list[TextTable]:
        scores = [
            (each.label, percent(each.precision), percent(each.recall), percent(each.f1), str(each.support))
            for each in self.per_class
        ]
        found = [TextTable("", ("class", "precision", "recall", "F1", "images"), scores)]
        if len(self.classes) <= SHOWN_CLASSES:
            confusion = zip(self.classes, self.confusion.tolist(), strict=True)
            title = "confusion matrix: a row for the true class, a column for the predicted class"
            counts = [(label, *map(str, row)) for label, row in confusion]
            found.append(TextTable(title, ("", *self.classes), counts))
        if mistakes := self.confident_mistakes(5):
            rows = [(m.name, m.predicted, m.actual, percent(m.probability)) for m in mistakes]
            headers = ("image", "predicted", "true class", "probability")
            found.append(TextTable("most confident mistakes", headers, rows, words=3))
        return found


@dataclass(frozen=True, kw_only=True)
class MultiLabelEvaluation(LabelEvaluation):
    """What a classifier predicts for images that may have several classes: yes or no for each."""

    task = "multilabel"

    @cached_property
    def average_precision(self) -> tuple[float, ...]:
        """Of each class; NaN for a class that no image shows."""
        columns = zip(self.targets.T, self.probabilities.T, strict=True)
        return tuple(average_precision(target, score) for target, score in columns)

    @property
    def mean_average_precision(self) -> float:
        """Over the classes that some image shows."""
        return float(np.nanmean(self.average_precision))

    @property
    def metrics(self) -> dict[str, Metric]:
        precision = Metric(self.mean_average_precision, "mean average precision")
        return {"mean_average_precision": precision, **self.calibration_metrics}

    def scores(self) -> ExampleScores:
        """How well the labels of each image are ranked before the others: its average precision."""
        rows = zip(self.targets, self.probabilities, strict=True)
        return ExampleScores("ranking", np.array([average_precision(*row) for row in rows]))

    def by_class(self) -> dict[str, float]:
        columns = zip(self.classes, self.average_precision, strict=True)
        return {label: value for label, value in columns if value == value}

    def answers(self) -> Answers:
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

    def details(self) -> dict[str, Any]:
        support = self.targets.sum(axis=0).astype(int).tolist()
        rows = zip(self.classes, self.average_precision, support, strict=True)
        return {"per_class": [{"label": a, "average_precision": b, "support": c} for a, b, c in rows]}

    def tables(self) -> list[TextTable]:
        precisions = zip(self.classes, self.average_precision, strict=True)
        rows = [(name, percent(value)) for name, value in precisions]
        return [TextTable("", ("class", "average precision"), rows)]


def evaluate(
    model: Runnable | AveragedViews, images: ImageDataset, **batching: Unpack[Batching]
) -> ClassificationEvaluation | MultiLabelEvaluation:
    """Classify every one of `images` once and compare with its class, or its classes.

    Raises:
        InputError: the model does not know the classes, or no image could be decoded.
    """
    labels = class_labels(model, images)
    return label_evaluation(labels, images, compute_outputs(model, images, **batching), model.temperature)


def label_evaluation(
    labels: tuple[str, ...], images: ImageDataset, outputs: Outputs, temperature: float
) -> ClassificationEvaluation | MultiLabelEvaluation:
    """Compare the logits of images with their classes.

    Args:
        labels: of the logits, as `class_labels` gives them.
        temperature: that the logits are already divided by.
    """
    columns = np.array([labels.index(label) for label in images.classes])
    targets = images.targets[outputs.indices]
    multilabel = targets.ndim == 2
    if multilabel:
        known = np.zeros((len(targets), len(labels)), dtype=np.float32)
        known[:, columns] = targets
    else:
        known = columns[targets]
    kind = MultiLabelEvaluation if multilabel else ClassificationEvaluation
    uncalibrated = None
    if temperature != 1:
        before = probabilities_of(outputs.values * temperature, multilabel=multilabel).numpy()
        uncalibrated = calibration_of(before, known).ece
    return kind(
        classes=labels,
        indices=outputs.indices,
        names=outputs.names,
        targets=known,
        probabilities=probabilities_of(outputs.values, multilabel=multilabel).numpy(),
        uncalibrated_error=uncalibrated,
        failed=outputs.failed,
        seconds=outputs.seconds,
    )


def probabilities_of(logits: Float[Tensor, "B classes"], *, multilabel: bool) -> Float[Tensor, "B classes"]:
    """Return what logits mean: one distribution for an image, or a yes or no for each class."""
    return logits.sigmoid() if multilabel else logits.softmax(dim=-1)


def calibration_of(
    probabilities: Float[np.ndarray, "N classes"],
    targets: Int[np.ndarray, " N"] | Float[np.ndarray, "N classes"],
) -> Calibration:
    """Compare probabilities with what is true: of the most probable class, or of every class."""
    if targets.ndim == 2:
        return calibrate(probabilities.ravel(), targets.ravel())
    return calibrate(probabilities.max(axis=1), probabilities.argmax(axis=1) == targets)


def class_labels(model: Runnable | AveragedViews, images: ImageDataset) -> tuple[str, ...]:
    """Return the label of each output of the model; every class of `images` is among them.

    The images may show some of the model's classes only. A model without labels takes those of the
    images, when their number is right.
    """
    outputs = model.config.num_classes
    if outputs is None:
        raise InputError("the model has no head, so it cannot classify: train one, or use vitreous probe")
    if model.labels is None:
        if len(images.classes) != outputs:
            raise InputError(
                f"the data has {len(images.classes)} classes, the model {outputs} without names: "
                "evaluate it on data with the same classes"
            )
        return tuple(images.classes)
    unknown = [label for label in images.classes if label not in model.labels]
    if unknown:
        raise InputError(
            f"the model does not know {listing(unknown)}; its classes are {listing(model.labels)}: "
            "name the classes of the data as the model does"
        )
    return tuple(model.labels)


def listing(names: list[str], shown: int = 5) -> str:
    """Return the first few names, and how many more there are."""
    first = ", ".join(repr(name) for name in names[:shown])
    return first if len(names) <= shown else f"{first} and {len(names) - shown} more"
