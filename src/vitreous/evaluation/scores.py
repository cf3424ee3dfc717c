"""What answers amount to: of classified images rates with their uncertainty, a matrix and a calibration; and
by what the candidates of a task are compared on the same images: a score, its interval and a loss
(`MEASURES`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from vitreous.languages import phrase
from vitreous.whole_files import whole

Z_95 = 1.959963984540054  # 95% of a normal distribution is within this many standard deviations
TOP_CONFUSIONS = 50  # pairs of classes
OVER_CLASSES, OVER_IMAGES = 200, 1000  # resamples of a bootstrap
LEVELS, PER_LOGIT = 512, 16  # of logits, where there are very many classes
CALIBRATION_BINS = 15  # Guo et al., arXiv 1706.04599
Outputs = Float[Tensor, "N outputs"]  # logits, or numbers
Truth = Tensor  # class numbers (N,), shares of labels (N, classes), or numbers (N,)


class ExampleScores(NamedTuple):
    """How good the answer to each example is, for paired comparisons."""

    name: str  # of the score, in the catalog of the pages
    values: Float[np.ndarray, " N"]  # one for each example; NaN where nothing can be said
    rate: bool = True  # whether they are shares, written in percent
    lower: bool = False  # whether a lower one is better

    @property
    def right(self) -> Bool[np.ndarray, " N"] | None:
        """Which answers are right, where each is right or wrong."""
        return self.values == 1 if np.isin(self.values, (0, 1)).all() else None


def is_better(after: Bool[np.ndarray, " N"], before: Bool[np.ndarray, " N"]) -> bool:
    """Return whether more is right than before, by more than two standard errors of the difference (McNemar):
    a smaller one may be chance."""
    won, lost = int((after & ~before).sum()), int((before & ~after).sum())
    return won - lost > 2 * (won + lost) ** 0.5


def r2(targets: Float[np.ndarray, " N"], predictions: Float[np.ndarray, " N"]) -> float:
    """Return R2 = 1 - sum (t - p)^2 / sum (t - mean t)^2; NaN where all targets are equal."""
    # The mean of equal numbers can differ from them by a rounding.
    if not np.ptp(targets):
        return float("nan")
    targets, predictions = targets.astype(float), predictions.astype(float)
    return 1 - float(((targets - predictions) ** 2).sum() / ((targets - targets.mean()) ** 2).sum())


class Interval(NamedTuple):
    """A 95% confidence interval."""

    low: float
    high: float


def resamples(count: int, times: int = 1000) -> Float[np.ndarray, "times count"]:
    """Return how often each of `count` examples is in each sample of as many, with replacement; in float64,
    whose products BLAS computes."""
    rng = np.random.default_rng(0)
    return rng.multinomial(count, np.full(count, 1 / max(count, 1)), size=times).astype(float)


def quantile_interval(resampled: Sequence[float] | Float[np.ndarray, " N"]) -> Interval:
    """Return the 95% interval of a score from its values in bootstrap samples, of which some may be NaN."""
    if np.isnan(resampled).all():
        return Interval(math.nan, math.nan)
    low, high = np.nanquantile(resampled, (0.025, 0.975))
    return Interval(float(low), float(high))


def half_width(values: Sequence[float], overlap: float = 0.0) -> float:
    """Return half of Student's 95% interval of a mean; infinite for a single value.

    Values of models whose training images overlap are not independent: the variance of their mean is not
    s² / k, but (1 / k + overlap) s² (Nadeau and Bengio 2003, Inference for the generalization error, eq. 9).

    Args:
        overlap: test images for each image that is learned from; 0 for values that share none.
    """
    count = len(values)
    if count < 2:
        return math.inf
    from scipy.stats import t

    spread = float(np.std(values, ddof=1))
    return float(t.ppf(0.975, count - 1)) * math.sqrt(1 / count + overlap) * spread


class ClassScore(NamedTuple):
    """One class against all others. NaN where nothing can be said: precision of a class that was never
    predicted, recall of one that has no images."""

    label: str
    precision: float
    recall: float
    f1: float
    support: int


@dataclass(frozen=True)
class Bin:
    """The images whose largest probability lies in (low, high]; NaN where there are none."""

    low: float
    high: float
    count: int
    confidence: float
    accuracy: float


class Calibration(NamedTuple):
    """Expected calibration error and what it is made of."""

    ece: float
    bins: tuple[Bin, ...]


def wilson_interval(successes: int, trials: int) -> Interval:
    """Return the 95% interval of a rate by Wilson's score (1927): honest for few trials and for rates near 1,
    where the usual rate +- 1.96 standard errors is not."""
    if not trials:
        return Interval(0.0, 1.0)
    rate, z2 = successes / trials, Z_95**2
    center = (rate + z2 / (2 * trials)) / (1 + z2 / trials)
    half = Z_95 / (1 + z2 / trials) * math.sqrt(rate * (1 - rate) / trials + z2 / (4 * trials**2))
    return Interval(min(max(center - half, 0.0), rate), max(min(center + half, 1.0), rate))


def confusion_matrix(
    targets: Int[np.ndarray, " N"], predictions: Int[np.ndarray, " N"], classes: int
) -> Int[np.ndarray, "classes classes"]:
    """Return how often an image of class [row] was called [column]."""
    flat = np.bincount(targets * classes + predictions, minlength=classes**2)
    return flat.reshape(classes, classes)


def sparse_confusion(
    targets: Int[np.ndarray, " N"], predictions: Int[np.ndarray, " N"], classes: int
) -> tuple[Int[np.ndarray, " pairs"], Int[np.ndarray, " pairs"], Int[np.ndarray, " pairs"]]:
    """Return (class, what it was called, how often) of the pairs that occur, the most frequent ones first."""
    pairs, counts = np.unique(targets.astype(np.int64) * classes + predictions, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    return pairs[order] // classes, pairs[order] % classes, counts[order]


def top_confusions(
    targets: Int[np.ndarray, " N"], predictions: Int[np.ndarray, " N"], labels: Sequence[str]
) -> list[dict[str, object]]:
    """Return the most frequent mistakes: what an image is, what it was called, and how often."""
    wrong = targets != predictions
    found = sparse_confusion(targets[wrong], predictions[wrong], len(labels))
    rows = zip(*(column[:TOP_CONFUSIONS].tolist() for column in found), strict=True)
    return [{"actual": labels[is_], "predicted": labels[said], "count": count} for is_, said, count in rows]


def save_confusion(
    file: Path, targets: Int[np.ndarray, " N"], predictions: Int[np.ndarray, " N"], labels: Sequence[str]
) -> None:
    """Write the pairs of classes that occur, as arrays: actual, predicted, count, classes (.npz)."""
    actual, predicted, count = sparse_confusion(targets, predictions, len(labels))
    with whole(file) as temporary, temporary.open("wb") as opened:
        np.savez_compressed(opened, actual=actual, predicted=predicted, count=count, classes=np.array(labels))


def class_scores(
    targets: Int[np.ndarray, " N"], predictions: Int[np.ndarray, " N"], labels: tuple[str, ...]
) -> tuple[ClassScore, ...]:
    """Return precision, recall and F1 of every class."""
    hits = np.bincount(targets[targets == predictions], minlength=len(labels))
    support = np.bincount(targets, minlength=len(labels))
    called = np.bincount(predictions, minlength=len(labels))
    with np.errstate(invalid="ignore"):  # 0 / 0 is NaN
        columns = hits / called, hits / support, 2 * hits / (called + support), support
    return tuple(map(ClassScore, labels, *(column.tolist() for column in columns)))


def calibration_of(
    confidence: Float[np.ndarray, " N"],
    correct: np.ndarray,
    bins: int = CALIBRATION_BINS,
    times: Int[np.ndarray, " N"] | None = None,
) -> Calibration:
    """Return the mean distance between confidence and accuracy in bins of equal width, weighted by their
    images (arXiv 1706.04599, Eq. 3): is a probability of 0.8 correct in 80% of the cases? Of an answer that
    is given several `times`, `correct` is how often it was."""
    edges = np.linspace(0, 1, bins + 1)
    # NaN is in the first bin, whose means are NaN then.
    with np.errstate(invalid="ignore"):
        place = np.clip(np.ceil(confidence * bins).astype(int) - 1, 0, bins - 1)
    summed = confidence if times is None else times * confidence
    counts = np.bincount(place, times, bins)
    sums = np.bincount(place, summed, bins)
    hits = np.bincount(place, correct, bins)
    with np.errstate(invalid="ignore"):  # 0 / 0 is NaN
        columns = edges[:-1], edges[1:], counts.astype(np.int64), sums / counts, hits / counts
    error = float(np.abs(sums - hits).sum()) / max(int(counts.sum()), 1)
    return Calibration(error, tuple(map(Bin, *(column.tolist() for column in columns))))


class LabelLevels:
    """Of very many classes that an image may have: how often the logit of each is at each level, which is
    1/16 of a logit wide, between -16 and 16, for images without and with it. All logits would be too many.
    columns: of each class of the images among all `classes`, on the device of the logits."""

    def __init__(self, columns: Int[Tensor, " classes"], classes: int) -> None:
        self.columns = columns
        self.counts = torch.zeros(2, classes, LEVELS, dtype=torch.int32, device=columns.device)

    def add(self, logits: Float[Tensor, "B all"], targets: Float[Tensor, "B classes"]) -> None:
        shown = torch.zeros_like(logits, dtype=torch.bool)
        shown[:, self.columns] = targets.to(logits.device) > 0
        level = (logits.nan_to_num() * PER_LOGIT + LEVELS / 2).round().clamp(0, LEVELS - 1).long()
        rows = shown.long() * logits.shape[1] + torch.arange(logits.shape[1], device=logits.device)
        place = (rows * LEVELS + level).flatten()
        self.counts.view(-1).scatter_add_(0, place, torch.ones_like(place, dtype=torch.int32))

    def precision(self, images: int) -> list[float]:
        """Return what `average_precision` gives for each class, of rounded logits; NaN for other images."""
        found = self.counts[1].flip(-1).cumsum(-1)
        seen = self.counts.sum(dim=0).flip(-1).cumsum(-1)
        steps = found.diff(dim=-1, prepend=found.new_zeros(len(found), 1))
        precision = ((steps * found).double() / seen.clamp(min=1)).sum(dim=-1) / found[:, -1]
        return torch.where(seen[:, -1] == images, precision, math.nan).tolist()

    def calibration(self, temperature: float = 1.0) -> Calibration:
        """Return that of every yes and no, with logits multiplied by a temperature."""
        logits = temperature * (np.arange(LEVELS) - LEVELS / 2) / PER_LOGIT
        without, having = self.counts.sum(dim=1).numpy()
        return calibration_of(1 / (1 + np.exp(-logits)), having, times=without + having)


def average_precision(relevant: np.ndarray, scores: Float[np.ndarray, " N"]) -> float:
    """Return the area under precision against recall, as the mean of the precision at every relevant image,
    best score first; images with equal scores count as one step. NaN where no image is relevant."""
    order = np.argsort(-scores, kind="stable")
    hits = np.cumsum(relevant[order] > 0)
    if not len(hits) or not hits[-1]:
        return math.nan
    last_of_ties = np.append(np.flatnonzero(np.diff(scores[order])), len(order) - 1)
    found = hits[last_of_ties]
    precision = found / (last_of_ties + 1)
    return float(np.sum(np.diff(found, prepend=0) * precision) / hits[-1])


def precision_interval(relevant: np.ndarray, scores: Float[np.ndarray, "N classes"]) -> Interval:
    """Return the 95% interval of the mean average precision of the classes by a bootstrap of the images."""
    found = []
    sampled = resamples(len(scores), OVER_CLASSES)
    sampled = np.ascontiguousarray(sampled.T, dtype=np.int32)  # (N, resamples): rows are read in any order
    for known, column in zip(relevant.T > 0, scores.T, strict=True):
        order = np.argsort(-column, kind="stable")
        places = np.flatnonzero(known[order])
        ranked = -column[order]
        last = np.searchsorted(ranked, ranked[places], "right") - 1  # of those with the same score
        hits, again = sampled[order[places]], sampled[order].cumsum(axis=0, dtype=np.int32)[last]
        right = hits.cumsum(axis=0)[np.searchsorted(places, last, "right") - 1]
        precision = right / np.maximum(again, 1)
        # The value of a class that is not sampled is NaN.
        with np.errstate(invalid="ignore"):
            found.append((hits * precision).sum(axis=0) / hits.sum(axis=0))
    values = np.array(found)
    means = values[:, ~np.isnan(values).all(axis=0)]  # without samples that have no class
    return quantile_interval(np.nanmean(means, axis=0))


def best_threshold(relevant: np.ndarray, scores: Float[np.ndarray, " N"]) -> float:
    """Return the threshold with the largest F1, halfway between two scores; 0.5 where nothing is relevant."""
    order = np.argsort(-scores, kind="stable")
    hits, ranked = np.cumsum(relevant[order] > 0), np.append(scores[order], 0.0)
    if not len(hits) or not hits[-1]:
        return 0.5
    f1 = 2 * hits / (np.arange(len(hits)) + 1 + hits[-1])
    place = int(np.argmax(np.where(np.append(np.diff(ranked[:-1]), 1), f1, -1.0)))  # the last of equal scores
    return float(ranked[place] + ranked[place + 1]) / 2


class Measures(NamedTuple):
    """How answers are measured.

    Attributes:
        score: its name, as in the evaluation of the task.
        rate: whether it is a share, written in percent.
        of: returns the score; the higher, the better.
        interval: its 95% interval.
        loss: the mean loss; of equal scores the lower one is better.
    """

    score: str
    rate: bool
    of: Callable[[Outputs, Truth], float]
    interval: Callable[[Outputs, Truth], Interval]
    loss: Callable[[Outputs, Truth], float]


def accuracy(outputs: Outputs, truth: Truth) -> float:
    return float((outputs.argmax(dim=1) == truth).double().mean())


def accuracy_interval(outputs: Outputs, truth: Truth) -> Interval:
    return wilson_interval(int((outputs.argmax(dim=1) == truth).sum()), len(truth))


def cross_entropy(outputs: Outputs, truth: Truth) -> float:
    return float(F.cross_entropy(outputs.double(), truth))


def mean_precision(outputs: Outputs, truth: Truth) -> float:
    """Return the mean average precision of the labels that some image has."""
    relevant, scores = truth.numpy() > 0.5, outputs.numpy()
    shown = np.flatnonzero(relevant.any(axis=0))
    found = [average_precision(relevant[:, column], scores[:, column]) for column in shown]
    return float(np.mean(found)) if found else float("nan")


def mean_precision_interval(outputs: Outputs, truth: Truth) -> Interval:
    return precision_interval(truth.numpy() > 0.5, outputs.double().numpy())


def binary_cross_entropy(outputs: Outputs, truth: Truth) -> float:
    return float(F.binary_cross_entropy_with_logits(outputs.double(), truth.double()))


def defined_r2(outputs: Outputs, truth: Truth) -> float:
    """Return R2; 0 where it is undefined, as candidates are ranked by it."""
    score = r2(truth.double().numpy(), outputs.double().flatten().numpy())
    # The rounding leaves no last digit below 0, and the sum no -0.
    return 0.0 if math.isnan(score) else round(score, 12) + 0.0


def r2_interval(outputs: Outputs, truth: Truth) -> Interval:
    rows = torch.from_numpy(np.random.default_rng(0).integers(0, len(truth), (OVER_IMAGES, len(truth))))
    return quantile_interval([defined_r2(outputs[each], truth[each]) for each in rows])


def squared_error(outputs: Outputs, truth: Truth) -> float:
    return float((outputs.double().flatten() - truth.double()).square().mean())


MEASURES: dict[str, Measures] = {  # by what the outputs of a task are
    "softmax": Measures("accuracy", True, accuracy, accuracy_interval, cross_entropy),
    "sigmoid": Measures(
        "mean_average_precision", True, mean_precision, mean_precision_interval, binary_cross_entropy
    ),
    "number": Measures("r2", False, defined_r2, r2_interval, squared_error),
}


CONSTANT_NAMES = {  # of the answer that knows no image, by the same
    "softmax": "majority class",
    "sigmoid": "label frequencies",
    "number": "mean of the training numbers",
}


def is_constant(candidates: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether the answer that knows no image is the best of candidates, the best first."""
    return bool(candidates) and candidates[0]["name"] in CONSTANT_NAMES.values()


def is_network(candidates: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether the network of the training answers alone, of candidates the best first; not that of a
    short trial, and not an answer that is fitted on the validation set as well."""
    return not candidates or (candidates[0]["speed"] > 0 and not any(candidates[0].get("short", ())))


def answering_count(candidates: Sequence[Mapping[str, Any]]) -> int:
    """Return how many candidates are compared, without those that were passed over."""
    return sum(not row.get("passed_over") for row in candidates)


def candidate_title(row: Mapping[str, Any]) -> str:
    """Return the name of a candidate in the language that is spoken, and why it cannot answer, where it is
    ahead of the one that does."""
    if row.get("passed_over"):
        return phrase("candidates.passed-over", name=candidate_title({**row, "passed_over": False}))
    if not row.get("words"):
        return str(row["name"])
    names = [phrase(words, init=init) for words, init in zip(row["words"], row["init"], strict=True)]
    for place, short in enumerate(row.get("short", ())):
        if short:
            names[place] = phrase("candidates.short", name=names[place])
    return names[0] if len(names) == 1 else phrase("candidates.mean", first=names[0], second=names[1])
