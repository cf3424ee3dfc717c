"""What the model sees in training: augmented images with their labels, for the report."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import NamedTuple

import torch
from jaxtyping import UInt8
from torch import Tensor

from vitreous.data.image_samples import Batch
from vitreous.data.loading import DevicePrefetcher
from vitreous.models.preprocessing import Preprocessing
from vitreous.results import percent

LEAST = 0.05  # weight of a label that is worth naming


class ContactSheet(NamedTuple):
    """images: bytes that can be shown, (N, C, H, W). labels: a line for each."""

    images: UInt8[Tensor, "N C H W"]
    labels: tuple[str, ...]

    @classmethod
    def of(
        cls, loader: DevicePrefetcher[Batch], preprocessing: Preprocessing, classes: Sequence[str], count: int
    ) -> ContactSheet:
        """Return the first images of an epoch, exactly as they are trained on, normalization undone."""
        images: list[Tensor] = []
        labels: list[str] = []
        with closing(loader.epoch(0)) as batches:
            for batch in batches:
                images.append(preprocessing.denormalize(batch.images).cpu())
                labels += (target_in_words(target, classes) for target in batch.targets.cpu())
                if len(labels) >= count:
                    break
        return cls(torch.cat(images)[:count], tuple(labels[:count]))


def target_in_words(target: Tensor, classes: Sequence[str]) -> str:
    """ "cat", "cat 70.0 % + dog 30.0 %", or "none"."""
    if target.ndim == 0:
        return classes[int(target)]
    weights = sorted(zip(target.tolist(), classes, strict=True), key=lambda pair: -pair[0])
    named = [(weight, name) for weight, name in weights if weight >= LEAST]
    # Of images of one class that were mixed, rounding leaves a little less than all.
    if all(round(weight, 2) == 1 for weight, _ in named):
        return " + ".join(name for _, name in named) or "none"
    return " + ".join(f"{name} {percent(weight)}" for weight, name in named)
