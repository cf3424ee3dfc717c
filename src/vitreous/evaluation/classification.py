"""A model against images whose class is known: every image exactly once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int

from vitreous.data.dataset import ImageDataset
from vitreous.evaluation.answers import Progress, ask, class_labels
from vitreous.evaluation.result import Evaluation, Metric, TextTable, percent
from vitreous.evaluation.scores import (
    Calibration,
    ClassScore,
    Interval,
    calibrate,
    class_scores,
    confusion_matrix,
    wilson_interval,
)
from vitreous.models.names import Model

MOST_CLASSES = 1000  # whose confusion matrix goes into the JSON: it grows with their square
SHOWN_CLASSES = 30  # whose confusion matrix is printed


@dataclass(frozen=True)
class Mistake:
    """An image that was called `predicted`, with what probability, and is `actual`."""

    index: int
    name: str
    predicted: str
    actual: str
    probability: float


@dataclass(frozen=True)
class ClassificationEvaluation(Evaluation):
    """What a classifier said about each image, and what follows from it.

    Attributes:
        classes: the label of each class, in the model's order.
        indices: where each judged image stands in its source; images that could not be decoded lack.
        names: its name there.
        targets: its class.
        probabilities: what the model gives each class.
        failed: images that could not be decoded, and why.
        seconds: from the first image to the last.
    """

    task = "classification"

    classes: tuple[str, ...]
    indices: Int[np.ndarray, " N"]
    names: tuple[str, ...]
    targets: Int[np.ndarray, " N"]
    probabilities: Float[np.ndarray, "N classes"]
    failed: Mapping[str, str]
    seconds: float

    @cached_property
    def predictions(self) -> Int[np.ndarray, " N"]:
        return self.probabilities.argmax(axis=1)

    @cached_property
    def correct(self) -> np.ndarray:
        return self.predictions == self.targets

    @property
    def count(self) -> int:
        return len(self.targets)

    @property
    def accuracy(self) -> float:
        return float(self.correct.mean())

    @property
    def interval(self) -> Interval:
        """95 %, Wilson's."""
        return wilson_interval(int(self.correct.sum()), self.count)

    @property
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
        return class_scores(self.confusion, self.classes)

    @cached_property
    def calibration(self) -> Calibration:
        return calibrate(self.probabilities.max(axis=1), self.correct)

    def surest_mistakes(self, count: int = 12) -> list[Mistake]:
        """The wrong answers of which the model was surest, surest first."""
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
        return found | {"calibration_error": Metric(self.calibration.ece, "calibration (ECE)")}

    def details(self) -> dict[str, Any]:
        return {
            "per_class": [score._asdict() for score in self.per_class],
            **({"confusion": self.confusion.tolist()} if len(self.classes) <= MOST_CLASSES else {}),
            "calibration": {
                "ece": self.calibration.ece,
                "bins": [asdict(each) for each in self.calibration.bins],
            },
            "mistakes": [asdict(mistake) for mistake in self.surest_mistakes()],
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
        if mistakes := self.surest_mistakes(5):
            rows = [(m.name, m.predicted, m.actual, f"{m.probability:.1%}") for m in mistakes]
            headers = ("image", "predicted", "true class", "probability")
            found.append(TextTable("most confident mistakes", headers, rows, words=3))
        return found


def evaluate(
    model: Model,
    images: ImageDataset,
    *,
    device: str | torch.device = "cpu",
    batch_size: int = 64,
    workers: int = 0,
    progress: Progress | None = None,
) -> ClassificationEvaluation:
    """Classify every one of `images` once and compare with its class.

    Args:
        progress: called after each batch with the images done and the images in all.

    Raises:
        InputError: the model does not know the classes, or no image could be decoded.
    """
    labels = class_labels(model, images)
    place = np.array([labels.index(label) for label in images.classes])
    answers = ask(model, images, device=device, batch_size=batch_size, workers=workers, progress=progress)
    return ClassificationEvaluation(
        classes=labels,
        indices=answers.indices,
        names=answers.names,
        targets=place[images.targets[answers.indices]],
        probabilities=answers.logits.softmax(dim=-1).numpy(),
        failed=answers.failed,
        seconds=answers.seconds,
    )
