"""What candidates of a task are compared by, on the same images: a score, its interval, and a loss."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from vitreous.evaluation.scores import (
    Interval,
    average_precision,
    precision_interval,
    quantile_interval,
    r2,
    wilson_interval,
)
from vitreous.languages import phrase

Outputs = Float[Tensor, "N outputs"]  # logits, or numbers
Truth = Tensor  # class numbers (N,), shares of labels (N, classes), or numbers (N,)
RESAMPLES = 1000  # of the bootstrap


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
    return 0.0 if math.isnan(score) else round(score, 12) + 0.0  # without a last digit below 0, or -0


def r2_interval(outputs: Outputs, truth: Truth) -> Interval:
    rows = torch.from_numpy(np.random.default_rng(0).integers(0, len(truth), (RESAMPLES, len(truth))))
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


def candidate_title(row: Mapping[str, Any]) -> str:
    """Return the name of a candidate in the language that is spoken."""
    if not row.get("words"):
        return str(row["name"])
    names = [phrase(words, init=init) for words, init in zip(row["words"], row["init"], strict=True)]
    for place, short in enumerate(row.get("short", ())):
        if short:
            names[place] = phrase("candidates.short", name=names[place])
    return names[0] if len(names) == 1 else phrase("candidates.mean", first=names[0], second=names[1])
