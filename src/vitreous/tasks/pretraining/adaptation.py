"""Adapting a pre-trained encoder to images of one's own: whether its features are better than before, by
images that have labels, which the training does not see, or without any.

With labels: of how many images the class is that of their nearest neighbors. Without: of how many images a
changed view (a part of the image, paler) is nearer to the image itself than to every other image.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Unpack

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from vitreous.data.dataset import ImageDataset, Splits
from vitreous.data.image_samples import Batch
from vitreous.data.targets import ClassTargets
from vitreous.evaluation.features import extract
from vitreous.evaluation.outputs import Batching, compute_outputs
from vitreous.evaluation.probes import knn_answers
from vitreous.models.names import Model

LARGEST = 2000  # images that are asked about, and that vote
FEWEST = 100  # validation images; of fewer, training images are asked about, each without itself
CUT = 0.7  # of both sides, which a changed view shows
PALER = 0.6  # its contrast

Right = Bool[np.ndarray, " N"]


class FeatureMeasure(NamedTuple):
    """How features are compared.

    Attributes:
        name: what is counted, in words.
        right: takes a model and a `Batching`, and returns of each image whether it was right.
    """

    name: str
    right: Callable[..., Right]

    def score(self, model: nn.Module, **batching: Unpack[Batching]) -> dict[str, float]:
        """Return the share that is right, as a validation gives it."""
        return {"validation_features": float(self.right(encoder_of(model), **batching).mean())}


def feature_measure(data: Splits) -> FeatureMeasure:
    """Return what compares features on the images of these data, never on their test part."""
    train, validation = data.train, data.validation
    asked = validation if validation is not None and len(validation) >= FEWEST else None
    if isinstance(train.targets, ClassTargets) and len(train.classes) > 1:
        return by_neighbors(some(train), None if asked is None else some(asked))
    return by_views(some(train if asked is None else asked))


def some(images: ImageDataset) -> ImageDataset:
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
    return FeatureMeasure(f"of {count} images the class is that of their nearest neighbors", right)


def by_views(images: ImageDataset) -> FeatureMeasure:
    """Compare by which of the images a changed view of one is nearest to."""

    def right(encoder: Model, **batching: Unpack[Batching]) -> Right:
        def both(batch: Batch) -> Tensor:
            pairs = (batch.images, changed(batch.images))
            return torch.stack([encoder.features(each).flatten(1).float() for each in pairs], dim=1)

        values = compute_outputs(encoder, images, both, **batching).values
        whole, views = F.normalize(values - values.mean(dim=0), dim=-1).unbind(dim=1)
        with torch.autocast("cpu", enabled=False):
            nearest = (views @ whole.T).argmax(dim=1)
        found: Right = (nearest == torch.arange(len(nearest))).numpy()
        return found

    return FeatureMeasure(f"of {len(images)} images a changed view is nearest to the image itself", right)


def changed(images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B C H W"]:
    """Return the lower right part of images, enlarged and paler."""
    height, width = images.shape[-2:]
    part = images[..., height - round(CUT * height) :, width - round(CUT * width) :]
    return PALER * F.interpolate(part, (height, width), mode="bilinear", antialias=True)


def is_better(after: Right, before: Right) -> bool:
    """Return whether more is right than before, by more than two standard errors of the difference (McNemar):
    a smaller one may be chance, and an encoder that is known is kept then."""
    won, lost = int((after & ~before).sum()), int((before & ~after).sum())
    return bool(won - lost > 2 * (won + lost) ** 0.5)
