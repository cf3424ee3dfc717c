"""Adapting a pre-trained encoder to images of one's own: whether its features are better than before, by
images that have labels, which the training does not see, or without any.

With labels: of how many images the class is that of their nearest neighbors. Without: of how many images the
nearest one is also near by gradients and colors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Unpack

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool
from torch import nn

from vitreous.data.dataset import ClassTargets, ImageDataset, Splits
from vitreous.evaluation.classical import classical_images, seen_by_classical, squashed
from vitreous.evaluation.features import extract, feature_outputs
from vitreous.evaluation.outputs import Batching
from vitreous.evaluation.probes import knn_answers
from vitreous.languages.terminal import said
from vitreous.models.ensemble import squared_distances
from vitreous.models.model import Model

LARGEST = 2000  # images that are asked about, and that vote
FEWEST = 100  # validation images; of fewer, training images are asked about, each without itself
NEIGHBORS = 20  # by gradients and colors; of few images a tenth of them

Right = Bool[np.ndarray, " N"]


class FeatureMeasure(NamedTuple):
    """How features are compared.

    Attributes:
        name: what is counted, in words of the terminal's language.
        right: takes a model and a `Batching`, and returns of each image whether it was right.
    """

    name: str
    right: Callable[..., Right]

    def score(self, model: nn.Module, **batching: Unpack[Batching]) -> dict[str, float]:
        """Return the share that is right, as a validation gives it."""
        return {"validation_features": float(self.right(encoder_of(model), **batching).mean())}


def feature_measure(data: Splits) -> FeatureMeasure:
    """Return what compares features on the images of these data, never on their test set."""
    train, validation = data.train, data.validation
    asked = validation if validation is not None and len(validation) >= FEWEST else None
    if isinstance(train.targets, ClassTargets) and len(train.classes) > 1:
        return by_neighbors(sample_of(train), None if asked is None else sample_of(asked))
    return by_gradients_and_colors(sample_of(train if asked is None else asked))


def sample_of(images: ImageDataset) -> ImageDataset:
    """Return always the same of many images."""
    return images.subset(np.array(images.sample(min(LARGEST, len(images)))))


def encoder_of(model: nn.Module) -> Model:
    """Return the encoder of an objective, or a model itself."""
    encoder = getattr(model, "encoder", model)
    assert isinstance(encoder, Model)
    return encoder


def by_neighbors(train: ImageDataset, asked: ImageDataset | None) -> FeatureMeasure:
    """Compare by the classes of the nearest training images. asked: None for the training images, each of
    which is not its own neighbor."""

    def right(encoder: Model, **batching: Unpack[Batching]) -> Right:
        bank = extract(encoder, train, **batching)
        queries = bank if asked is None else extract(encoder, asked, **batching)
        with torch.autocast("cpu", enabled=False):
            answers = knn_answers(bank, queries, classes=len(train.classes), among_them=asked is None)
        return answers == queries.targets

    count = len(train if asked is None else asked)
    name = said("share of {count} images whose class is that of their nearest neighbors", count=count)
    return FeatureMeasure(name, right)


def by_gradients_and_colors(images: ImageDataset) -> FeatureMeasure:
    """Compare by whether the nearest image is also near by gradients and colors, which know something of the
    classes and do not learn. How well a changed view finds its image is not asked: that grows with every
    training on views, also where the classes become harder to tell apart.

    Args:
        images: some of one's own; each is compared with all others.
    """
    pixels, rows = classical_images(images, squashed(3))
    values = seen_by_classical(pixels, "gradients")
    apart = squared_distances(values, values)
    apart.fill_diagonal_(torch.inf)
    count = min(NEIGHBORS, max(1, len(rows) // 10))
    near = apart.topk(min(count, len(rows) - 1), largest=False).indices

    def right(encoder: Model, **batching: Unpack[Batching]) -> Right:
        outputs = feature_outputs(encoder, images.subset(rows), **batching)
        found = F.normalize(outputs.values - outputs.values.mean(dim=0), dim=1)
        with torch.autocast("cpu", enabled=False):
            alike = found @ found.T
        alike.fill_diagonal_(-torch.inf)
        both: Right = (alike.argmax(dim=1)[:, None] == near).any(dim=1).numpy()
        return both

    name = said(
        "share of {count} images whose nearest neighbor is also among the {near} nearest by gradients and "
        "colors",
        count=len(rows),
        near=count,
    )
    return FeatureMeasure(name, right)
