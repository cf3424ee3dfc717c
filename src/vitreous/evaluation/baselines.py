"""Classical baselines: a kernel SVM and nearest neighbors on raw pixels, on the same split."""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from vitreous.data.dataset import ImageDataset, Splits
from vitreous.errors import InputError
from vitreous.evaluation.scores import Interval, wilson_interval

# Around scikit-learn's own gamma, 1 / (features * variance). Three folds of 1,437 digits: two seconds.
SVM_GRID = {"C": (1.0, 10.0), "gamma": (1.0, 2.0, 4.0)}
NEIGHBORS = (1, 3, 5)
FOLDS = 3


class Baseline(NamedTuple):
    """What a classical method gets on the held-out part."""

    name: str
    accuracy: float
    interval: Interval
    settings: str
    seconds: float


def digits_baselines(splits: Splits) -> tuple[Baseline, ...]:
    """A tuned SVM and k-NN for images that are small and all of one size.

    What is tuned is chosen by cross-validation inside the training part (with the validation part, where one
    was split from it); the held-out part is used once, at the end.

    Raises:
        InputError: there is no held-out part.
    """
    from sklearn.model_selection import GridSearchCV, StratifiedKFold
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.svm import SVC

    if splits.test is None:
        raise InputError(f"{splits.name} has no held-out part to compare on")
    parts = [pixels_of(part) for part in (splits.train, splits.validation) if part]
    pixels, targets = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    held_out, truth = pixels_of(splits.test)
    scale = 1 / (pixels.shape[1] * pixels.var())
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=0)
    searches = {
        "tuned kernel SVM": GridSearchCV(
            SVC(), {"C": SVM_GRID["C"], "gamma": [scale * factor for factor in SVM_GRID["gamma"]]}, cv=folds
        ),
        "k nearest neighbors": GridSearchCV(KNeighborsClassifier(), {"n_neighbors": NEIGHBORS}, cv=folds),
    }
    results = []
    for name, search in searches.items():
        started = time.perf_counter()
        search.fit(pixels, targets)
        hits = int((search.predict(held_out) == truth).sum())
        results.append(
            Baseline(
                name,
                hits / len(truth),
                wilson_interval(hits, len(truth)),
                ", ".join(f"{key} {value:.3g}" for key, value in sorted(search.best_params_.items())),
                time.perf_counter() - started,
            )
        )
    return tuple(results)


def pixels_of(images: ImageDataset) -> tuple[Float[np.ndarray, "N pixels"], Int[np.ndarray, " N"]]:
    """Each image as one flat row of numbers in 0 ... 1, and the classes."""
    rows = [np.asarray(images.image(index)).ravel() for index in range(len(images))]
    return np.stack(rows).astype(np.float32) / 255, images.targets
