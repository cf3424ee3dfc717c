"""Calibration: a temperature, fitted on the validation set, by which the logits are divided (Guo et al.,
arXiv 1706.04599). It becomes part of the weights of the head; no class changes its rank. The thresholds of
several labels are chosen on the same part, too, and are a file beside the weights."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Unpack

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from vitreous.data.dataset import ImageDataset, LabelTargets
from vitreous.errors import InputError, Param
from vitreous.evaluation.classification import MultiLabelEvaluation, label_evaluation
from vitreous.evaluation.outputs import Batching, class_labels, compute_outputs
from vitreous.evaluation.result import LabelEvaluation
from vitreous.evaluation.scores import best_threshold
from vitreous.models.model import Model
from vitreous.outside import read_text, sha256_of
from vitreous.training.distributed import ALONE
from vitreous.whole_files import write_text

FEWEST = 10  # images that a temperature can be fitted on
# Numbers: of 21,841 classes 3,072 images (768 of several labels), enough for one number.
MOST_LOGITS = 1 << 26
IN_DOUBLE = 1 << 20  # numbers that are handled in double precision together
MOST_LEARNED = 2000  # images of those that the model learned from
FOLDS = 5  # by which a temperature is tested on images that it was not fitted on
SEARCHED = (0.05, 20.0)  # temperatures
THRESHOLDS = "thresholds.json"  # beside the weights

Logits = Float[Tensor, "N classes"]
TargetTensor = Int[Tensor, " N"] | Float[Tensor, "N classes"]


def calibrate_model(
    model: Model,
    images: ImageDataset,
    *,
    learned: ImageDataset | None = None,
    **batching: Unpack[Batching],
) -> tuple[LabelEvaluation, LabelEvaluation]:
    """Fit a temperature on images that the model did not learn from, and change its head by it, unless one
    that is fitted on some of them does not help on the others. Of many images, and many classes, it is fitted
    on some, which are evenly spread.

    Args:
        learned: images that it did learn from; see `fit_temperature`.

    Returns:
        What the model predicted for these images before, and what it predicts now.

    Raises:
        InputError: there are too few images, the model does not know their classes, or it has no head.
    """
    if len(images) < FEWEST:
        raise InputError(
            f"a temperature needs {FEWEST} images that the model was not trained on, but there are "
            f"{len(images)}: hold out more"
        )
    labels, world = class_labels(model, images), batching.get("world", ALONE)
    # Each of several labels tells something of the temperature.
    several = isinstance(images.targets, LabelTargets)
    most = max(MOST_LOGITS // len(labels) // (4 if several else 1), FEWEST)
    if len(images) > most:
        images = images.subset(np.array(images.sample(most)))
    outputs = compute_outputs(model, images, **batching)
    before = label_evaluation(labels, images, outputs, model.temperature)
    other = None
    if learned is not None:
        some = learned.subset(np.array(learned.sample(min(MOST_LEARNED, most))))
        silent: Batching = {**batching, "progress": None}
        seen = compute_outputs(model, some, **silent)
        other = seen.values, some.targets.tensor(seen.indices)
    fitted = 1.0
    if world.first:
        known = torch.from_numpy(before.targets)
        if temperature_helps(outputs.values, known, other):
            fitted = fit_temperature(outputs.values, known, other)
    temperature = world.broadcast(fitted)
    scale_head(model, temperature)
    calibrated = outputs._replace(values=outputs.values / temperature)
    return before, label_evaluation(labels, images, calibrated, model.temperature)


def fit_temperature(
    logits: Logits, targets: TargetTensor, learned: tuple[Tensor, Tensor] | None = None
) -> float:
    """Return the temperature with the least cross-entropy.

    A few images tell it only roughly. So those that the model learned from are taken in, as far as they
    agree: each counts as much as their temperature is likely to the others, relative to the best (a power
    prior; Ibrahim and Chen, 2000). Where a model knows by heart what it has seen, that is next to nothing.

    Args:
        learned: logits and targets of images that the model learned from.
    """
    own = summed_loss(logits, targets)
    scale = least_factor(own)
    if learned is not None:
        other = summed_loss(*learned)
        weight = math.exp(own(scale) - own(least_factor(other)))
        scale = least_factor(lambda each: own(each) + weight * other(each))
    return 1 / scale


def temperature_helps(
    logits: Logits, targets: TargetTensor, learned: tuple[Tensor, Tensor] | None = None
) -> bool:
    """Return whether the cross-entropy of images falls by a temperature that was fitted without them: each
    fifth by one that is fitted on the others."""
    folds = torch.arange(len(logits)) % FOLDS
    gain = 0.0
    for fold in range(FOLDS):
        others = folds != fold
        loss = summed_loss(logits[~others], targets[~others])
        gain += loss(1.0) - loss(1 / fit_temperature(logits[others], targets[others], learned))
    return gain > 0


def summed_loss(logits: Logits, targets: TargetTensor) -> Callable[[float], float]:
    """Return the cross-entropy of all images as a function of a factor of the logits; it is convex.

    As in Platt's method (1999) the targets are not quite 0 and 1, since N images that are all right do not
    mean that no image is ever wrong: 0.5 / (N + 1), Jeffreys' estimate, goes to the other answers.
    """
    count, classes = logits.shape
    doubt = 0.5 / (count + 1)
    rows = max(IN_DOUBLE // classes, 1)
    parts = list(zip(torch.split(logits, rows), torch.split(targets, rows), strict=True))

    def loss(scale: float) -> float:
        total = 0.0
        for some, known in parts:
            scaled = some.double() * scale
            if known.ndim == 2:
                wanted = known.double() * (1 - 2 * doubt) + doubt
                total += float(F.binary_cross_entropy_with_logits(scaled, wanted, reduction="sum"))
            else:
                smoothing = doubt * classes / max(classes - 1, 1)
                total += float(F.cross_entropy(scaled, known, label_smoothing=smoothing, reduction="sum"))
        return total

    return loss


def least_factor(loss: Callable[[float], float]) -> float:
    """Return the factor of the logits with the least loss, by a golden-section search."""
    low, high = 1 / SEARCHED[1], 1 / SEARCHED[0]
    golden = (5**0.5 - 1) / 2
    for _ in range(40):
        left, right = high - golden * (high - low), low + golden * (high - low)
        if loss(left) < loss(right):
            high = right
        else:
            low = left
    return (low + high) / 2


@torch.no_grad()
def scale_head(model: Model, temperature: float) -> None:
    """Divide a model's logits by a temperature; `model.temperature` has the product of all of them."""
    for layer in model.get_submodule("head").modules():
        if isinstance(layer, nn.Linear):
            for parameter in layer.parameters():
                parameter.div_(temperature)
    model.temperature *= temperature


def write_thresholds(folder: Path, found: LabelEvaluation) -> dict[str, float] | None:
    """Write the best threshold of each label beside the weights; none where each image has one label."""
    if not isinstance(found, MultiLabelEvaluation):
        return None
    return write_best_thresholds(folder, found.classes, found.targets, found.known_probabilities)


def write_best_thresholds(
    folder: Path,
    classes: Sequence[str],
    targets: Float[np.ndarray, "N classes"],
    probabilities: Float[np.ndarray, "N classes"],
) -> dict[str, float]:
    """Write the best threshold of each label on some images beside the weights."""
    columns = zip(classes, targets.T, probabilities.T, strict=True)
    chosen = {label: best_threshold(relevant, scores) for label, relevant, scores in columns}
    about = {"weights": sha256_of(folder / "model.safetensors"), "thresholds": chosen}
    write_text(folder / THRESHOLDS, json.dumps(about, ensure_ascii=False, indent=1))
    return chosen


def read_thresholds(folder: Path | None, model: str) -> dict[str, float]:
    """Return the threshold of each label. Raises InputError where none were chosen for these weights."""
    path = (folder or Path("-")) / THRESHOLDS
    with suppress(OSError, ValueError, KeyError):
        found = json.loads(read_text(path))
        if found["weights"] == sha256_of(path.with_name("model.safetensors")):
            return dict(found["thresholds"])
    raise InputError(
        f"no thresholds were chosen for {model}: train a multi-label model "
        f"with a validation set, or use vitreous calibrate; or give a number, as in {Param('threshold')} 0.5"
    )
