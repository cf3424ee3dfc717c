"""How good are a model's features, without training it? Three probes that need a few seconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from vitreous.data.dataset import Splits
from vitreous.errors import InputError, require_packages
from vitreous.evaluation.features import cached_features
from vitreous.evaluation.fewshot import SHOTS, FewShot, fewshot
from vitreous.evaluation.knn import NEIGHBORS, knn_hits
from vitreous.evaluation.linear import linear_probe
from vitreous.evaluation.scores import Interval, wilson_interval
from vitreous.models.names import Model
from vitreous.results import Result


@dataclass(frozen=True)
class Probe(Result):
    """Accuracy of classifiers that stand on frozen features, on images that they were not fitted to.

    Attributes:
        data: the name of the data.
        fewshot: closed-form linear accuracy, by the number of images of each class.
        knn: accuracy of weighted nearest neighbors among all training images.
        linear: accuracy of logistic regression on all training images.
        extracting: seconds for the features; next to nothing when they were kept.
        fitting: seconds for the three probes.
    """

    data: str
    fewshot: dict[int, FewShot]
    knn: float
    linear: float
    train_count: int
    test_count: int
    width: int
    extracting: float
    fitting: float

    def interval(self, accuracy: float) -> Interval:
        """95 %, Wilson's, over the images that were judged."""
        return wilson_interval(round(accuracy * self.test_count), self.test_count)

    def to_json(self) -> dict[str, Any]:
        return {
            "data": self.data,
            "fewshot": {
                str(number): {"mean": result.mean, "interval": list(result.interval)}
                for number, result in self.fewshot.items()
            },
            "knn": self.knn,
            "knn_interval": list(self.interval(self.knn)),
            "knn_neighbors": NEIGHBORS,
            "linear": self.linear,
            "linear_interval": list(self.interval(self.linear)),
            "train_count": self.train_count,
            "test_count": self.test_count,
            "feature_width": self.width,
            "seconds": self.extracting + self.fitting,
            "seconds_extracting": self.extracting,
            "seconds_fitting": self.fitting,
        }

    def table(self) -> list[dict[str, Any]]:
        """Return one row for each probe: its accuracy and the interval of it."""
        measured = [
            (f"linear, {number} of each class", few.mean, few.interval)
            for number, few in self.fewshot.items()
        ]
        measured += [
            (name, accuracy, self.interval(accuracy))
            for name, accuracy in (
                (f"{NEIGHBORS} nearest neighbors", self.knn),
                ("logistic regression", self.linear),
            )
        ]
        return [
            {"probe": name, "accuracy": accuracy, "low": interval[0], "high": interval[1]}
            for name, accuracy, interval in measured
        ]


def probe(
    model: Model,
    splits: Splits,
    *,
    shots: Sequence[int] = SHOTS,
    seed: int = 0,
    draws: int = 3,
    device: str | torch.device = "cpu",
    precision: str = "fp32",
    batch_size: int = 64,
    workers: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Probe:
    """Few-shot linear, nearest neighbors and logistic regression on a model's features.

    Args:
        seed, draws: shots are drawn with seed, seed + 1, ...: as many times as `draws`.
        precision: of the features: fp32, bf16, or auto for the faster one.

    Raises:
        InputError: no held-out part, several labels for an image, or too few images of a class.
    """
    require_packages("scipy", extra="train", what="probe")
    held_out = splits.test or splits.validation
    if held_out is None:
        raise InputError(f"{splits.name} has no held-out part to evaluate on: set data.test_fraction")
    classes = len(splits.train.classes)
    started = time.perf_counter()
    train, test = (
        cached_features(
            model,
            part,
            device=device,
            precision=precision,
            batch_size=batch_size,
            workers=workers,
            progress=progress,
        )
        for part in (splits.train, held_out)
    )
    extracted = time.perf_counter()
    few = fewshot(train, test, classes=classes, shots=shots, seeds=range(seed, seed + draws))
    neighbors = knn_hits(train, test, classes=classes)
    linear = linear_probe(train, test, classes=classes, seed=seed)
    count = len(test.targets)
    return Probe(
        data=splits.name,
        fewshot=few,
        knn=neighbors / count,
        linear=linear.hits / count,
        train_count=len(train.targets),
        test_count=count,
        width=train.values.shape[1],
        extracting=extracted - started,
        fitting=time.perf_counter() - extracted,
    )


def check_draws(shots: Sequence[int], draws: int) -> None:
    """Raises InputError for numbers that mean nothing."""
    if not shots or min(shots) < 1:
        raise InputError(f"--shots {' '.join(map(str, shots))}: give one number or more, each at least 1")
    if draws < 1:
        raise InputError(f"--draws {draws} draws nothing: use 1 or more, 3 for an interval")
