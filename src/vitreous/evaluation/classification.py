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


@dataclass(frozen=True)
class Mistake:
    """An image that was called `predicted`, with what probability, and is `actual`."""

    index: int
    name: str
    predicted: str
    actual: str
    probability: float


@dataclass(frozen=True)
class Evaluation:
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
        """The right class among the five likeliest; None where there are no more than five."""
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

    def to_json(self) -> dict[str, Any]:
        """Everything but the images' own probabilities."""
        return {
            "test_accuracy": self.accuracy,
            "test_accuracy_interval": list(self.interval),
            "test_count": self.count,
            "test_top5_accuracy": self.top5_accuracy,
            "seconds": self.seconds,
            "per_class": [score._asdict() for score in self.per_class],
            "confusion": self.confusion.tolist(),
            "calibration": {
                "ece": self.calibration.ece,
                "bins": [asdict(each) for each in self.calibration.bins],
            },
            "mistakes": [asdict(mistake) for mistake in self.surest_mistakes()],
            "failed": [{"path": path, "reason": reason} for path, reason in self.failed.items()],
        }


def evaluate(
    model: Model,
    images: ImageDataset,
    *,
    device: str | torch.device = "cpu",
    batch_size: int = 64,
    workers: int = 0,
    progress: Progress | None = None,
) -> Evaluation:
    """Classify every one of `images` once and compare with its class.

    Args:
        progress: called behind each batch with the images done and the images in all.

    Raises:
        InputError: the model does not know the classes, or no image could be decoded.
    """
    labels = class_labels(model, images)
    place = np.array([labels.index(label) for label in images.classes])
    answers = ask(model, images, device=device, batch_size=batch_size, workers=workers, progress=progress)
    return Evaluation(
        classes=labels,
        indices=answers.indices,
        names=answers.names,
        targets=place[images.targets[answers.indices]],
        probabilities=answers.logits.softmax(dim=-1).numpy(),
        failed=answers.failed,
        seconds=answers.seconds,
    )
