"""Few-shot linear accuracy in closed form (paper, section 4.1 and D.4): ridge regression on a few images of
each class, without a step of training. Equal to big_vision's `fewshot_lsr`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from vitreous.data.dataset import Splits, Subset
from vitreous.errors import InputError
from vitreous.evaluation.features import Features, extract
from vitreous.evaluation.scores import Interval

SHOTS = (1, 5, 10, 25)
MONITORED = (1, 5, 10)  # shots that are measured while a model learns
SEEDS = (0, 1, 2)
L2 = 2.0**10
BIAS = 100.0  # a constant feature, regularized like the others
EPS = 1e-5  # added to the standard deviation


class FewShot(NamedTuple):
    """Accuracy over several draws of the shots, and a 95 % interval of their mean."""

    mean: float
    interval: Interval


def fewshot(
    train: Features,
    test: Features,
    *,
    classes: int,
    shots: Sequence[int] = SHOTS,
    seeds: Sequence[int] = SEEDS,
    l2: float = L2,
) -> dict[int, FewShot]:
    """Accuracy on all of `test` after 1, 5, ... images of each class; numbers of shots that not every class
    has are left out.

    Raises:
        InputError: a class has fewer images than the fewest shots.
    """
    smallest = int(np.bincount(train.targets, minlength=classes).min())
    possible = [number for number in shots if number <= smallest]
    if not possible:
        raise InputError(
            f"the smallest class has {smallest} images for training, too few for {min(shots)} shots: "
            "give more images, or fewer shots"
        )
    accuracies: Mapping[int, list[float]] = {number: [] for number in possible}
    for seed in seeds:
        order = draw_order(train.targets, classes, seed)
        for number in possible:
            rows = np.concatenate([indices[:number] for indices in order])
            classifier = RidgeClassifier(train.values[rows], train.targets[rows], classes)
            accuracies[number].append(accuracy(classifier.scores(test.values, l2), test.targets))
    return {number: summary(values) for number, values in accuracies.items()}


def draw_order(targets: Int[np.ndarray, " N"], classes: int, seed: int) -> list[Int[np.ndarray, " n"]]:
    """The images of every class in the order in which shots are sampled, as big_vision does it."""
    generator = np.random.default_rng(seed)
    return [generator.permutation(np.flatnonzero(targets == number)) for number in range(classes)]


class RidgeClassifier:
    """One eigen-decomposition, then any l2 for next to nothing.

    Features are whitened by the mean and standard deviation of the shots, a constant feature is appended, and
    targets are -1 and +1. With fewer images than features the dual form is decomposed: the same answer.
    """

    def __init__(
        self, values: Float[np.ndarray, "n D"], targets: Int[np.ndarray, " n"], classes: int
    ) -> None:
        x = torch.from_numpy(values).double()
        self.mean = x.mean(dim=0, keepdim=True)
        self.std = x.std(dim=0, keepdim=True, correction=0) + EPS
        x = self.whiten(x)
        y = 2.0 * torch.nn.functional.one_hot(torch.from_numpy(targets).long(), classes) - 1
        y = y.double()
        if x.shape[0] >= x.shape[1]:
            self.eigenvalues, vectors = torch.linalg.eigh(x.T @ x)
            self.left, self.right = vectors, vectors.T @ (x.T @ y)
        else:
            self.eigenvalues, vectors = torch.linalg.eigh(x @ x.T)
            self.left, self.right = x.T @ vectors, vectors.T @ y

    def whiten(self, x: Float[Tensor, "n D"]) -> Float[Tensor, "n D_and_1"]:
        return torch.nn.functional.pad((x - self.mean) / self.std, (0, 1), value=BIAS)

    def scores(self, values: Float[np.ndarray, "N D"], l2: float) -> Float[np.ndarray, "N classes"]:
        """One number for each class; the largest wins."""
        weights = self.left @ (self.right / (self.eigenvalues + l2)[:, None])
        scores: np.ndarray = (self.whiten(torch.from_numpy(values).double()) @ weights).numpy()
        return scores


def accuracy(scores: Float[np.ndarray, "N classes"], targets: Int[np.ndarray, " N"]) -> float:
    return float((scores.argmax(axis=1) == targets).mean())


def summary(accuracies: Sequence[float]) -> FewShot:
    """The mean, and Student's 95 % interval of it over the draws."""
    mean, count = float(np.mean(accuracies)), len(accuracies)
    if count < 2:
        return FewShot(mean, Interval(0.0, 1.0))
    from scipy.stats import t

    half = float(t.ppf(0.975, count - 1)) * float(np.std(accuracies, ddof=1)) / math.sqrt(count)
    return FewShot(mean, Interval(max(mean - half, 0.0), min(mean + half, 1.0)))


def fewshot_measure(splits: Splits, *, batch_size: int) -> Callable[[nn.Module], Mapping[str, float]]:
    """Return what measures the closed-form accuracy on the validation part while a model learns, always from
    the same few training images.

    Raises:
        InputError: there is no validation part, or an image may have several labels.
    """
    validating = splits.validation
    if validating is None:
        raise InputError("evaluation.fewshot needs held-out images: set data.validation_fraction=0.1")
    if splits.summary.multi_label:
        raise InputError("evaluation.fewshot needs one class for each image: leave it out for several labels")
    classes = len(splits.train.classes)
    order = draw_order(splits.train.targets, classes, seed=0)
    shown = Subset(splits.train, np.concatenate([indices[: max(MONITORED)] for indices in order]))

    def measure(model: nn.Module) -> Mapping[str, float]:
        encoder: Any = getattr(model, "encoder", model)  # of an objective of pre-training
        device = next(model.parameters()).device
        train, test = (
            extract(encoder, part, device=device, batch_size=batch_size) for part in (shown, validating)
        )
        results = fewshot(train, test, classes=classes, shots=MONITORED, seeds=(0,))
        return {f"validation_fewshot_{shots}": result.mean for shots, result in results.items()}

    return measure
