"""Images that may show several things at once: one yes-or-no question for each class."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int

from vitreous.data.dataset import ImageDataset
from vitreous.evaluation.answers import Progress, ask, class_labels
from vitreous.evaluation.result import Evaluation, Metric, TextTable, percent
from vitreous.evaluation.scores import average_precision
from vitreous.models.names import Model


@dataclass(frozen=True)
class MultiLabelEvaluation(Evaluation):
    """What a classifier said about each image. Attributes as those of `Evaluation`, but `targets` has a
    column of 0 and 1 for each class, and the probabilities of an image need not sum to one."""

    task = "multilabel"

    classes: tuple[str, ...]
    indices: Int[np.ndarray, " N"]
    names: tuple[str, ...]
    targets: Float[np.ndarray, "N classes"]
    probabilities: Float[np.ndarray, "N classes"]
    failed: Mapping[str, str]
    seconds: float

    @property
    def count(self) -> int:
        return len(self.targets)

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
        return {"mean_average_precision": Metric(self.mean_average_precision, "mean average precision")}

    def details(self) -> dict[str, Any]:
        columns = zip(self.classes, self.average_precision, self.targets.sum(axis=0), strict=True)
        return {
            "per_class": [
                {"label": label, "average_precision": value, "support": int(support)}
                for label, value, support in columns
            ]
        }

    def tables(self) -> list[TextTable]:
        precisions = zip(self.classes, self.average_precision, strict=True)
        rows = [(name, percent(value)) for name, value in precisions]
        return [TextTable("", ("class", "average precision"), rows)]


def evaluate_multilabel(
    model: Model,
    images: ImageDataset,
    *,
    device: str | torch.device = "cpu",
    batch_size: int = 64,
    workers: int = 0,
    progress: Progress | None = None,
) -> MultiLabelEvaluation:
    """`evaluate` for targets that are a row of 0 and 1 for each image."""
    labels = class_labels(model, images)
    answers = ask(model, images, device=device, batch_size=batch_size, workers=workers, progress=progress)
    targets = np.zeros((len(answers.indices), len(labels)), dtype=np.float32)
    targets[:, [labels.index(label) for label in images.classes]] = images.targets[answers.indices]
    return MultiLabelEvaluation(
        classes=labels,
        indices=answers.indices,
        names=answers.names,
        targets=targets,
        probabilities=answers.logits.sigmoid().numpy(),
        failed=answers.failed,
        seconds=answers.seconds,
    )
