"""Probes of frozen features: few-shot linear, nearest neighbors and logistic regression.

Nearest neighbors vote as in DINO (arXiv 2104.14294, appendix E).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor

from vitreous.data.dataset import Splits
from vitreous.errors import InputError, require_packages
from vitreous.evaluation.features import Features, cached_features
from vitreous.evaluation.fewshot import SHOTS, FewShot, fewshot
from vitreous.evaluation.outputs import Batching
from vitreous.evaluation.scores import Interval, wilson_interval
from vitreous.models.names import Model
from vitreous.results import Result

NEIGHBORS = 20
TEMPERATURE = 0.07
CHUNK = 1024  # images whose similarities are computed at once
PENALTIES = (1e-4, 1e-3, 1e-2, 1e-1)  # of the mean loss, on standardized features
ITERATIONS = 200
TUNING_FRACTION = 0.2  # of the training images, to choose the penalty by


@dataclass(frozen=True)
class Probe(Result):
    """Accuracy of classifiers of frozen features, on images that they were not fitted to.

    Attributes:
        data: the name of the data.
        fewshot: closed-form linear accuracy, by the number of images of each class.
        knn: accuracy of weighted nearest neighbors among all training images.
        linear: accuracy of logistic regression on all training images.
        extracting: seconds for the features; next to nothing when they were cached.
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
        """95 %, Wilson's, over the evaluated images."""
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
            *(
                (f"linear, {number} of each class", few.mean, few.interval)
                for number, few in self.fewshot.items()
            ),
            (f"{NEIGHBORS} nearest neighbors", self.knn, self.interval(self.knn)),
            ("logistic regression", self.linear, self.interval(self.linear)),
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
    precision: str = "fp32",
    **batching: Unpack[Batching],
) -> Probe:
    """Evaluate a model's features by three probes.

    Args:
        seed, draws: shots are sampled with seed, seed + 1, ...: as many times as `draws`.
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
        cached_features(model, part, precision=precision, **batching) for part in (splits.train, held_out)
    )
    extracted = time.perf_counter()
    few = fewshot(train, test, classes=classes, shots=shots, seeds=range(seed, seed + draws))
    neighbors = knn_hits(train, test, classes=classes)
    linear = linear_hits(train, test, classes=classes, seed=seed)
    count = len(test.targets)
    return Probe(
        data=splits.name,
        fewshot=few,
        knn=neighbors / count,
        linear=linear / count,
        train_count=len(train.targets),
        test_count=count,
        width=train.values.shape[1],
        extracting=extracted - started,
        fitting=time.perf_counter() - extracted,
    )


def knn_hits(train: Features, test: Features, *, classes: int, neighbors: int = NEIGHBORS) -> int:
    """Return how many of `test` are classified correctly by their nearest images.

    They vote with weight exp(cosine similarity / temperature). Of a train set with fewer images all vote.
    """
    bank = F.normalize(torch.from_numpy(train.values), dim=1)
    queries = F.normalize(torch.from_numpy(test.values), dim=1)
    labels, targets = torch.from_numpy(train.targets), torch.from_numpy(test.targets)
    hits = 0
    for first in range(0, len(queries), CHUNK):
        similarity, nearest = (queries[first : first + CHUNK] @ bank.T).topk(min(neighbors, len(bank)))
        # Minus the largest, so that exp cannot overflow; votes are compared, so a factor does not matter.
        weights = ((similarity - similarity[:, :1]) / TEMPERATURE).exp()
        votes = torch.zeros(len(weights), classes).scatter_add_(1, labels[nearest], weights)
        hits += int((votes.argmax(dim=1) == targets[first : first + CHUNK]).sum())
    return hits


def linear_hits(train: Features, test: Features, *, classes: int, seed: int = 0) -> int:
    """Return how many of `test` are classified correctly by logistic regression with an l2 penalty.

    The penalty is chosen on a fifth of the training images, then all of them are fitted.
    """
    mean, std = train.values.mean(axis=0), train.values.std(axis=0) + 1e-6
    x, unseen = (torch.from_numpy((part.values - mean) / std) for part in (train, test))
    y = torch.from_numpy(train.targets)
    order = torch.from_numpy(np.random.default_rng(seed).permutation(len(x)))
    count = round(TUNING_FRACTION * len(x))
    tuning, fitting = order[:count], order[count:]

    def tuning_hits(penalty: float) -> int:
        weights = fit_linear(x[fitting], y[fitting], classes, penalty)
        return int((linear_logits(weights, x[tuning]).argmax(dim=1) == y[tuning]).sum())

    weights = fit_linear(x, y, classes, max(PENALTIES, key=tuning_hits))
    return int((linear_logits(weights, unseen).argmax(dim=1) == torch.from_numpy(test.targets)).sum())


def fit_linear(
    x: Float[Tensor, "n D"], y: Int64[Tensor, " n"], classes: int, penalty: float
) -> Float[Tensor, "D_and_1 classes"]:
    """Return the weights that minimize cross-entropy + penalty / 2 * |W|^2; the last row, the bias, is not
    penalized."""
    weights = torch.zeros(x.shape[1] + 1, classes, requires_grad=True)
    optimizer = torch.optim.LBFGS(
        [weights], max_iter=ITERATIONS, history_size=10, tolerance_grad=1e-5, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(linear_logits(weights, x), y) + penalty / 2 * weights[:-1].square().sum()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    optimizer.step(closure)  # type: ignore[no-untyped-call]
    return weights.detach()


def linear_logits(
    weights: Float[Tensor, "D_and_1 classes"], x: Float[Tensor, "n D"]
) -> Float[Tensor, "n classes"]:
    return x @ weights[:-1] + weights[-1]


def check_draws(shots: Sequence[int], draws: int) -> None:
    """Raise InputError for numbers that mean nothing."""
    if not shots or min(shots) < 1:
        raise InputError(f"--shots {' '.join(map(str, shots))}: give one number or more, each at least 1")
    if draws < 1:
        raise InputError(f"--draws {draws} draws nothing: use 1 or more, 3 for an interval")
