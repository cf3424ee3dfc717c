"""A linear probe: logistic regression on frozen features."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor

from vitreous.evaluation.features import Features

PENALTIES = (1e-4, 1e-3, 1e-2, 1e-1)  # of the mean loss, on standardized features
ITERATIONS = 200
TUNING_FRACTION = 0.2  # of the training images, to choose the penalty by


class LinearProbe(NamedTuple):
    """Images of the test part that were classified rightly, and the penalty that was chosen."""

    hits: int
    penalty: float


def linear_probe(train: Features, test: Features, *, classes: int, seed: int = 0) -> LinearProbe:
    """Logistic regression with an l2 penalty, by L-BFGS.

    The penalty is chosen on a fifth of the training images, then all of them are fitted; the test part is
    looked at once.
    """
    mean, std = train.values.mean(axis=0), train.values.std(axis=0) + 1e-6
    x = torch.from_numpy((train.values - mean) / std)
    y = torch.from_numpy(train.targets)
    order = torch.from_numpy(np.random.default_rng(seed).permutation(len(x)))
    count = round(TUNING_FRACTION * len(x))
    tuning, fitting = order[:count], order[count:]

    def tuning_hits(penalty: float) -> int:
        return hits(fit(x[fitting], y[fitting], classes, penalty), x[tuning], y[tuning])

    penalty = max(PENALTIES, key=tuning_hits)
    weights = fit(x, y, classes, penalty)
    unseen = torch.from_numpy((test.values - mean) / std)
    return LinearProbe(hits(weights, unseen, torch.from_numpy(test.targets)), penalty)


def fit(
    x: Float[Tensor, "n D"], y: Int64[Tensor, " n"], classes: int, penalty: float
) -> Float[Tensor, "D_and_1 classes"]:
    """The weights that minimize cross-entropy + penalty / 2 * |W|^2; the last row, the bias, is free."""
    weights = torch.zeros(x.shape[1] + 1, classes, requires_grad=True)
    optimizer = torch.optim.LBFGS(
        [weights], max_iter=ITERATIONS, history_size=10, tolerance_grad=1e-5, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(logits(weights, x), y) + penalty / 2 * weights[:-1].square().sum()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    optimizer.step(closure)  # type: ignore[no-untyped-call]
    return weights.detach()


def logits(weights: Float[Tensor, "D_and_1 classes"], x: Float[Tensor, "n D"]) -> Float[Tensor, "n classes"]:
    return x @ weights[:-1] + weights[-1]


def hits(weights: Float[Tensor, "D_and_1 classes"], x: Float[Tensor, "n D"], y: Int64[Tensor, " n"]) -> int:
    return int((logits(weights, x).argmax(dim=1) == y).sum())
