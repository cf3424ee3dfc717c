"""A part of the data: some classes, or some images of each class."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from vitreous.data.dataset import ImageDataset, Indices, Splits, Subset
from vitreous.data.sources import summarize
from vitreous.errors import InputError
from vitreous.studies.study import Part


class SomeClasses(Subset):
    """The images of a run of neighboring classes, numbered from 0."""

    def __init__(self, images: ImageDataset, first: int, last: int) -> None:
        targets: NDArray[Any] = images.targets
        super().__init__(images, np.flatnonzero((targets >= first) & (targets < last)))
        self.classes = images.classes[first:last]
        self.targets = self.targets - first


def select(splits: Splits, part: Part, seed: int) -> Splits:
    """The part of the data that a trial is about. Few training images are drawn by the seed, class by
    class; of the held-out part nothing is left out but other classes.

    Raises:
        InputError: half of the classes is less than two.
    """
    if part.classes != "all":
        splits = half_of_classes(splits, first=part.classes == "first half")
    if part.fraction < 1 or part.per_class is not None:
        splits = splits._replace(train=Subset(splits.train, drawn(splits.train, part, seed)))
    return splits._replace(summary=summarize(splits.train))


def half_of_classes(splits: Splits, *, first: bool) -> Splits:
    count = len(splits.train.classes)
    low, high = (0, count // 2) if first else (count // 2, count)
    if high - low < 2:
        raise InputError(f"{splits.name} has {count} classes: this study needs two halves of two or more")
    train, validation, test = (
        SomeClasses(each, low, high) if each is not None else None
        for each in (splits.train, splits.validation, splits.test)
    )
    assert train is not None
    return splits._replace(train=train, validation=validation, test=test)


def drawn(train: ImageDataset, part: Part, seed: int) -> Indices:
    """At least one image of each class."""
    generator = np.random.default_rng(seed)
    chosen = []
    for number in range(len(train.classes)):
        members = generator.permutation(np.flatnonzero(train.targets == number))
        count = max(1, round(part.fraction * len(members)))
        chosen.append(members[: min(count, part.per_class or count)])
    return np.sort(np.concatenate(chosen))
