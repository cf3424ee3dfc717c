"""What a model is compared with on the same split: a kernel SVM and nearest neighbors on raw pixels; for a
probe of its features, those of raw pixels and of the untrained encoder."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from vitreous.data.dataset import ImageDataset, Splits
from vitreous.errors import InputError
from vitreous.evaluation.probing import Probe, probe
from vitreous.evaluation.scores import Interval, wilson_interval
from vitreous.models.bit import BiT
from vitreous.models.names import Runnable, build_model
from vitreous.models.preprocessing import Preprocessing
from vitreous.models.vit import ViT

# Around scikit-learn's own gamma, 1 / (features * variance). Three folds of 1,437 digits: two seconds.
SVM_GRID = {"C": (1.0, 10.0), "gamma": (1.0, 2.0, 4.0)}
NEIGHBORS = (1, 3, 5)
FOLDS = 3
RAW = 16  # pixels of a side of the images whose pixels are probed


class Baseline(NamedTuple):
    """What a classical method gets on the held-out part."""

    name: str
    accuracy: float
    interval: Interval
    settings: str
    seconds: float


def digits_baselines(splits: Splits) -> tuple[Baseline, ...]:
    """A tuned SVM and k-NN for images that are small and all of one size, tuned by cross-validation inside
    the training (and validation) part; the held-out part is used once, at the end. Raises InputError: there
    is none."""
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


class RawPixels(nn.Module):
    """A model whose features are the pixels themselves, of images at most 16 pixels high and wide."""

    def __init__(self, preprocessing: Preprocessing) -> None:
        super().__init__()
        self.preprocessing, self.config = preprocessing, "raw pixels"
        self.weight = nn.Parameter(torch.zeros(1))  # says where the images are computed

    def features(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B D"]:
        height, width = (min(side, RAW) for side in images.shape[-2:])
        return F.adaptive_avg_pool2d(images.float(), (height, width)).flatten(1)


def beside_baselines(found: Probe, model: Runnable, splits: Splits, **options: Any) -> Probe:
    """Return a probe with those of raw pixels and of the same encoder with fresh weights beside it: what is
    below them has learned nothing of use."""
    beside: dict[str, Any] = {"raw pixels": RawPixels(model.preprocessing)}
    if isinstance(model, ViT | BiT):
        fresh = build_model(model.config, preprocessing=model.preprocessing, labels=model.labels)
        beside["untrained"] = fresh.eval()
    return replace(found, baselines={name: probe(each, splits, **options) for name, each in beside.items()})
