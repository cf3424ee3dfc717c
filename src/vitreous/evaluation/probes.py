"""Probes of frozen features: few-shot linear, nearest neighbors and logistic regression.

Few-shot linear accuracy (ViT paper, section 4.1 and D.4) is ridge regression on a few images of each class in
closed form, equal to big_vision's `fewshot_lsr`. Nearest neighbors vote as in DINO (2104.14294, appendix E).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Unpack

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn

from vitreous.data.dataset import ImageDataset, Splits, Subset
from vitreous.data.held_out import folds_of
from vitreous.errors import InputError, Param, require_packages
from vitreous.evaluation.features import Features, cached_features, extract
from vitreous.evaluation.outputs import Batching
from vitreous.evaluation.scores import Interval, half_width, wilson_interval
from vitreous.models.bit import BiT
from vitreous.models.model import Runnable, build_model
from vitreous.models.preprocessing import Preprocessing
from vitreous.models.vit import ViT
from vitreous.results import Result
from vitreous.training.distributed import ALONE

SHOTS = (1, 5, 10, 25)
MONITORED = (1, 5, 10)  # shots that are measured while a model learns
SEEDS = (0, 1, 2)
L2 = 2.0**10
BIAS = 100.0  # a constant feature, regularized like the others
EPS = 1e-5  # added to the standard deviation
NEIGHBORS = 20
TEMPERATURE = 0.07
BANK = 2000  # images of each part that are measured while a model learns
CHUNK = 1024  # images whose similarities are computed at once
PENALTIES = (1e-4, 1e-3, 1e-2, 1e-1)  # of the mean loss, on standardized features
ITERATIONS = 200
TUNING_FOLDS = 5  # of the training images, one of which chooses the penalty


class FewShot(NamedTuple):
    """Accuracy over several draws of the shots, and a 95% interval of their mean."""

    mean: float
    interval: Interval


@dataclass(frozen=True)
class Probe(Result):
    """Accuracy of classifiers of frozen features, on images that they were not fitted to.

    Attributes:
        data: the name of the data.
        fewshot: closed-form linear accuracy, by the number of images of each class.
        knn: accuracy of weighted nearest neighbors among all training images.
        linear: accuracy of logistic regression on all training images.
        baselines: the same probes of raw pixels and of the untrained encoder, by these names.
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
    baselines: Mapping[str, Probe] = field(default_factory=dict)

    def interval(self, accuracy: float) -> Interval:
        """Return the 95% interval, Wilson's, over the evaluated images."""
        return wilson_interval(round(accuracy * self.test_count), self.test_count)

    def to_json(self) -> dict[str, object]:
        fewshot = dict[str, object]()
        for number, few in self.fewshot.items():
            fewshot[str(number)] = {"mean": few.mean, "interval": list(few.interval)}
        baselines = dict[str, object]()
        for name, each in self.baselines.items():
            means = {str(number): few.mean for number, few in each.fewshot.items()}
            baselines[name] = {"fewshot": means, "knn": each.knn, "linear": each.linear}
        return {
            "data": self.data,
            "fewshot": fewshot,
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
            "baselines": baselines,
        }

    def table(self) -> list[dict[str, Any]]:
        """Return one row for each probe: its accuracy and the interval of it; and that of each baseline."""
        measured: list[tuple[str, float, Interval]] = []
        for number, few in self.fewshot.items():
            measured.append((f"linear, {number} of each class", few.mean, few.interval))
        measured.append((f"{NEIGHBORS} nearest neighbors", self.knn, self.interval(self.knn)))
        measured.append(("logistic regression", self.linear, self.interval(self.linear)))
        rows: list[dict[str, Any]] = []
        for place, (name, accuracy, interval) in enumerate(measured):
            row = {"probe": name, "accuracy": accuracy, "low": interval.low, "high": interval.high}
            for other, probe in self.baselines.items():
                row[other] = probe.accuracies[place]
            rows.append(row)
        return rows

    @property
    def accuracies(self) -> list[float]:
        """The accuracy of each probe, in the order of the table."""
        return [*(few.mean for few in self.fewshot.values()), self.knn, self.linear]


def probe(
    model: Runnable | nn.Module,
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
    require_packages("scipy", "sklearn", extra="train", what="probe")
    held_out = splits.test or splits.validation
    if held_out is None:
        raise InputError(f"{splits.name} has no held-out images to evaluate on: set data.test_fraction")
    classes = len(splits.train.classes)
    started = time.perf_counter()
    train = cached_features(model, splits.train, precision=precision, **batching)
    test = cached_features(model, held_out, precision=precision, **batching)
    extracted = time.perf_counter()
    few = fewshot(train, test, classes=classes, shots=shots, seeds=range(seed, seed + draws))
    neighbors = knn_hits(train, test, classes=classes)
    linear = linear_hits(train, test)
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


def knn_hits(train: Features, test: Features, *, classes: int) -> int:
    """Return how many of `test` are classified correctly by `knn_answers`."""
    return int((knn_answers(train, test, classes=classes) == test.targets).sum())


def knn_answers(
    train: Features, test: Features, *, classes: int, among_them: bool = False
) -> Int[np.ndarray, " N"]:
    """Return the class of each of `test` by its 20 nearest images, or all where there are fewer, with votes
    exp(cosine similarity / temperature). among_them: both are the same images, and none votes on itself."""
    bank = F.normalize(torch.from_numpy(train.values), dim=1)
    queries = F.normalize(torch.from_numpy(test.values), dim=1)
    labels = torch.from_numpy(train.targets)
    found = []
    for first in range(0, len(queries), CHUNK):
        similar = queries[first : first + CHUNK] @ bank.T
        if among_them:
            similar.diagonal(first).fill_(-1.0)
        similarity, nearest = similar.topk(min(NEIGHBORS, len(bank)))
        # Minus the largest, so that exp cannot overflow; votes are compared, so a factor does not matter.
        weights = ((similarity - similarity[:, :1]) / TEMPERATURE).exp()
        votes = torch.zeros(len(weights), classes).scatter_add_(1, labels[nearest], weights)
        found.append(votes.argmax(dim=1).numpy())
    return np.concatenate(found)


def linear_hits(train: Features, test: Features) -> int:
    """Return how many of `test` are classified correctly by logistic regression with an l2 penalty, which is
    chosen on a fifth of the training images, a fold of `folds_of`."""
    if len(np.unique(train.targets)) == 1:
        return int((test.targets == train.targets[0]).sum())
    from sklearn.linear_model import LogisticRegression

    mean, std = train.values.mean(axis=0), train.values.std(axis=0) + 1e-6
    x, y, unseen = (train.values - mean) / std, train.targets, (test.values - mean) / std
    folds = folds_of(y, train.groups, TUNING_FOLDS)
    fitting, tuning = folds[0] if folds else (np.arange(len(y)), np.arange(0))

    def hits(
        penalty: float, rows: NDArray[np.int64], values: NDArray[np.float32], targets: NDArray[np.int64]
    ) -> int:
        classifier = LogisticRegression(C=1 / (penalty * len(rows)), max_iter=ITERATIONS)
        return int((classifier.fit(x[rows], y[rows]).predict(values) == targets).sum())

    best = PENALTIES[0]
    # Classes of one or two images have none to spare for the choice.
    if len(tuning):
        best = max(PENALTIES, key=lambda penalty: hits(penalty, fitting, x[tuning], y[tuning]))
    return hits(best, np.arange(len(y)), unseen, test.targets)


def fewshot(
    train: Features,
    test: Features,
    *,
    classes: int,
    shots: Sequence[int] = SHOTS,
    seeds: Sequence[int] = SEEDS,
) -> dict[int, FewShot]:
    """Return the accuracy on all of `test` after 1, 5, ... images of each class; numbers of shots that not
    every class has are left out. Raises InputError: a class has fewer images than the fewest shots."""
    smallest = int(np.bincount(train.targets, minlength=classes).min())
    possible = [number for number in shots if number <= smallest]
    if not possible:
        raise InputError(
            f"the smallest class has {smallest} training images, too few for {min(shots)} shots: "
            "give more images, or fewer shots"
        )
    accuracies: Mapping[int, list[float]] = {number: [] for number in possible}
    for seed in seeds:
        order = draw_order(train.targets, classes, seed)
        for number in possible:
            rows = np.concatenate([indices[:number] for indices in order])
            scores = ridge_scores(train.values[rows], train.targets[rows], test.values, classes, L2)
            answers = scores.argmax(axis=1)
            accuracies[number].append(float((answers == test.targets).mean()))
    return {number: summary(values) for number, values in accuracies.items()}


def draw_order(targets: Int[np.ndarray, " N"], classes: int, seed: int) -> list[Int[np.ndarray, " n"]]:
    """Return the images of every class in the order in which shots are sampled, as big_vision does it."""
    generator = np.random.default_rng(seed)
    return [generator.permutation(np.flatnonzero(targets == number)) for number in range(classes)]


def ridge_scores(
    values: Float[np.ndarray, "n D"],
    targets: Int[np.ndarray, " n"],
    asked: Float[np.ndarray, "N D"],
    classes: int,
    l2: float,
) -> Float[np.ndarray, "N classes"]:
    """Return one number for each class by ridge regression on a few images; the largest wins.

    Features are whitened by the mean and standard deviation of the shots, a constant feature is appended, and
    targets are -1 and +1. With fewer images than features the dual form is decomposed: the same answer.
    """
    shown, unseen = torch.from_numpy(values).double(), torch.from_numpy(asked).double()
    mean, std = shown.mean(dim=0), shown.std(dim=0, correction=0) + EPS
    x, z = (F.pad((each - mean) / std, (0, 1), value=BIAS) for each in (shown, unseen))
    y = 2.0 * F.one_hot(torch.from_numpy(targets).long(), classes).double() - 1
    if x.shape[0] >= x.shape[1]:
        eigenvalues, vectors = torch.linalg.eigh(x.T @ x)
        left, right = vectors, vectors.T @ (x.T @ y)
    else:
        eigenvalues, vectors = torch.linalg.eigh(x @ x.T)
        left, right = x.T @ vectors, vectors.T @ y
    return (z @ (left @ (right / (eigenvalues + l2)[:, None]))).numpy()


def summary(accuracies: Sequence[float]) -> FewShot:
    """Return the mean, and Student's 95% interval of it over the draws."""
    mean, half = float(np.mean(accuracies)), half_width(accuracies)
    return FewShot(mean, Interval(max(mean - half, 0.0), min(mean + half, 1.0)))


def fewshot_measure(splits: Splits) -> Callable[..., Mapping[str, float]]:
    """Return what measures the closed-form accuracy on the validation set while a model learns, from the
    same few training images, given the model and a `Batching`; of several processes the first one has the
    result. Raises InputError: there is no validation set, or an image may have several labels."""
    validating = splits.validation
    if validating is None:
        raise InputError("evaluation.fewshot needs held-out images: set data.validation_fraction=0.1")
    if splits.summary.multi_label:
        raise InputError("evaluation.fewshot needs one class for each image: leave it out for several labels")
    classes = len(splits.train.classes)
    order = draw_order(splits.train.targets.strata(), classes, seed=0)
    shown = Subset(splits.train, np.concatenate([indices[: max(MONITORED)] for indices in order]))

    def measure(model: nn.Module, **batching: Unpack[Batching]) -> Mapping[str, float]:
        encoder: nn.Module = getattr(model, "encoder", model)  # of an objective of pre-training
        train, test = extract(encoder, shown, **batching), extract(encoder, validating, **batching)
        if not batching.get("world", ALONE).first:
            return {}
        results = fewshot(train, test, classes=classes, shots=MONITORED, seeds=(0,))
        return {f"validation_fewshot_{shots}": result.mean for shots, result in results.items()}

    return measure


def knn_measure(train: ImageDataset, held_out: ImageDataset) -> Callable[..., Mapping[str, float]]:
    """Return what measures, as that of `fewshot_measure`, the accuracy of nearest neighbors: always of the
    same images, at most `BANK` of the training set, which vote, and as many held-out ones."""
    voting = Subset(train, np.array(train.sample(min(BANK, len(train)))))
    asked = Subset(held_out, np.array(held_out.sample(min(BANK, len(held_out)))))

    def measure(model: nn.Module, **batching: Unpack[Batching]) -> Mapping[str, float]:
        encoder: nn.Module = getattr(model, "encoder", model)  # of an objective of pre-training
        world = batching.get("world", ALONE)
        bank, queries = extract(encoder, voting, **batching), extract(encoder, asked, **batching)
        mine = slice(world.rank, None, world.size)
        queries_here = Features(queries.values[mine], queries.targets[mine])
        with torch.autocast("cpu", enabled=False):
            hits = sum(world.gather(knn_hits(bank, queries_here, classes=len(train.classes))))
        return {"validation_knn": hits / len(queries.targets)}

    return measure


def check_draws(shots: Sequence[int], draws: int, seed: int) -> None:
    """Raise InputError for numbers that mean nothing."""
    if seed < 0:
        raise InputError(f"{Param('seed')} {seed} is too low: use 0 or more")
    if not shots or min(shots) < 1:
        raise InputError(
            f"{Param('shots')} {' '.join(map(str, shots))}: pass one number or more, each at least 1"
        )
    if draws < 1:
        raise InputError(f"{Param('draws')} {draws} draws nothing: use 1 or more, 3 for an interval")


RAW = 16  # pixels of a side of the images whose pixels are probed


class RawPixels(nn.Module):
    """A model whose features are the pixels themselves, of images at most 16 pixels high and wide."""

    def __init__(self, preprocessing: Preprocessing) -> None:
        super().__init__()
        self.preprocessing, self.config = preprocessing, "raw pixels"
        self.weight = nn.Parameter(torch.zeros(1))  # says where the images are computed

    def features(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B D"]:
        height, width = (min(side, RAW) for side in images.shape[-2:])
        return F.adaptive_avg_pool2d(images.float(), (height, width)).flatten(1)


def with_baselines(found: Probe, model: Runnable, splits: Splits, **options: Any) -> Probe:
    """Return a probe with those of raw pixels and of the same encoder with fresh weights beside it: what is
    below them has learned nothing of use."""
    baselines: dict[str, Runnable | nn.Module] = {"raw pixels": RawPixels(model.preprocessing)}
    if isinstance(model, ViT | BiT):
        fresh = build_model(model.config, preprocessing=model.preprocessing, labels=model.labels)
        baselines["untrained"] = fresh.eval()
    return replace(
        found, baselines={name: probe(each, splits, **options) for name, each in baselines.items()}
    )
