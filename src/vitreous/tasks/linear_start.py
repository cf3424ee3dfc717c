"""The head that fine-tuning begins with: logistic regression on the frozen features of the encoder."""

from __future__ import annotations

import warnings

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import nn

from vitreous.data.dataset import ImageDataset
from vitreous.data.workers import loading_workers
from vitreous.evaluation.classical import folds_of
from vitreous.evaluation.features import cached_features
from vitreous.models.names import Model

PENALTIES = (1e-4, 1e-3, 1e-2, 1e-1)  # of the mean loss, on standardized features
ITERATIONS = 200
MOST_FITTED = 20_000  # images
UNSEEN = -20.0  # the bias of a class without an image

Values = Float[np.ndarray, "N D"]
Rows = Int[np.ndarray, " N"]


def begin_with_linear(model: Model, images: ImageDataset, *, workers: int | None = None) -> bool:
    """Fit the head of a model on the features of its encoder, which stays as it is. Return whether it could
    be: its head is linear, and there are two classes to tell apart."""
    head: object = model.head
    if not isinstance(head, nn.Linear) or len(np.unique(images.targets.strata())) < 2:
        return False
    if len(images) > MOST_FITTED:
        images = images.subset(np.array(images.sample(MOST_FITTED)))
    found = cached_features(model, images, workers=loading_workers(workers))
    weight, bias = fit_linear(found.values, found.targets, head.out_features)
    with torch.no_grad():
        head.weight.copy_(torch.from_numpy(weight))
        head.bias.copy_(torch.from_numpy(bias))
    return True


def fit_linear(
    values: Values, targets: Rows, classes: int
) -> tuple[Float[np.ndarray, "classes D"], Float[np.ndarray, " classes"]]:
    """Return the weight and the bias of logistic regression on features. The penalty is chosen by
    cross-fitting; the standardization is folded into both."""
    mean, std = values.mean(axis=0), values.std(axis=0) + 1e-6
    scaled = (values - mean) / std
    best = PENALTIES[0]
    folds = folds_of(targets) if np.bincount(targets).max() > 1 else []
    if folds:
        losses = {each: cross_fitted_loss(each, scaled, targets, classes, folds) for each in PENALTIES}
        best = min(losses, key=losses.__getitem__)
    weight, bias = fit_penalized(best, scaled, targets, classes)
    weight = weight / std
    return weight.astype(np.float32), (bias - weight @ mean).astype(np.float32)


def cross_fitted_loss(
    penalty: float, values: Values, targets: Rows, classes: int, folds: list[tuple[Rows, Rows]]
) -> float:
    """Return the mean cross-entropy of images that the weights were not fitted on."""
    losses = []
    for rows, others in folds:
        weight, bias = fit_penalized(penalty, values[rows], targets[rows], classes)
        logits = torch.from_numpy(values[others] @ weight.T + bias).float()
        truth = torch.from_numpy(targets[others])
        losses.append(nn.functional.cross_entropy(logits, truth, reduction="none"))
    return float(torch.cat(losses).mean())


def fit_penalized(
    penalty: float, values: Values, targets: Rows, classes: int
) -> tuple[Float[np.ndarray, "classes D"], Float[np.ndarray, " classes"]]:
    """Fit logistic regression with an l2 penalty; of two classes each gets half of the difference."""
    from sklearn.linear_model import LogisticRegression

    weight = np.zeros((classes, values.shape[1]), values.dtype)
    bias = np.full(classes, UNSEEN, values.dtype)
    with warnings.catch_warnings(action="ignore"):  # that the last digits have not settled
        fitted = LogisticRegression(C=1 / (penalty * len(values)), max_iter=ITERATIONS).fit(values, targets)
    rows, shifts = fitted.coef_, fitted.intercept_
    if len(fitted.classes_) == 2:
        rows, shifts = np.concatenate([-rows, rows]) / 2, np.concatenate([-shifts, shifts]) / 2
    weight[fitted.classes_], bias[fitted.classes_] = rows, shifts
    return weight, bias
