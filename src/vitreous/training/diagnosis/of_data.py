"""Checks of a data set: labels, splits, images that stand on both sides."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float

from vitreous.data.checking import IMBALANCE, looks_masked
from vitreous.data.dataset import BadImage, ImageDataset, Splits
from vitreous.training.diagnosis import Finding

OTHER_CLASSES = 0.4  # of the held-out part, in classes that the training part shows less often
LEAKED = 0.005  # of the held-out images
LOOKED_AT = 20_000  # images of a part, for the leak


def empty_classes(folders: Sequence[Path]) -> Iterator[Finding]:
    """Class folders without an image."""
    if folders:
        names = ", ".join(map(str, folders[:5]))
        yield Finding(
            "empty class",
            f"{len(folders)} class folders hold no image: {names}",
            "add some, or remove the folders: nothing can be trained with them",
        )


def data_findings(splits: Splits, *, empty: Collection[str] = ()) -> Iterator[Finding]:
    """All checks that need no model.

    Args:
        empty: classes of which it has been said that they have no image.
    """
    if splits.train.targets.ndim == 1:
        yield from labels(splits)
        yield from other_tasks(splits.train)
        yield from imbalance(splits.train, empty)
        for part, name in held_out(splits):
            yield from sorted_split(splits.train, part, name)
    for part, name in held_out(splits):
        yield from leak(splits.train, part, name)


def held_out(splits: Splits) -> Iterator[tuple[ImageDataset, str]]:
    for part, name in ((splits.validation, "validation"), (splits.test, "test")):
        if part is not None and len(part):
            yield part, name


def labels(splits: Splits) -> Iterator[Finding]:
    """Class numbers must lie in 0 ... classes - 1, in every part."""
    classes = len(splits.train.classes)
    for part, name in ((splits.train, "training"), *held_out(splits)):
        low, high = int(part.targets.min()), int(part.targets.max())
        if low < 0 or high >= classes:
            yield Finding(
                "labels",
                f"the {name} part has labels from {low} to {high}, but there are {classes} classes",
                f"number the classes from 0 to {classes - 1}",
            )


def other_tasks(train: ImageDataset) -> Iterator[Finding]:
    """A manifest of texts, or a folder of images and masks, taken for classes."""
    counts = np.bincount(train.targets.clip(0), minlength=len(train.classes))
    if 2 * int((counts == 1).sum()) > len(counts):
        yield Finding(
            "classes",
            f"{int((counts == 1).sum())} of {len(train.classes)} classes have a single image to train on",
            "where the labels are texts, train with --task captioning; where they are classes, add images",
        )
    if looks_masked(train.classes):
        yield Finding(
            "classes",
            f"the classes are called {' and '.join(train.classes)}",
            "where these are images and their masks, train with --task segmentation",
        )


def imbalance(train: ImageDataset, empty: Collection[str]) -> Iterator[Finding]:
    """A class that is hardly ever shown is hardly ever learned."""
    counts = np.bincount(train.targets.clip(0), minlength=len(train.classes))
    most = int(counts.argmax())
    shown = [number for number, name in enumerate(train.classes) if name not in empty]
    least = min(shown, key=lambda number: int(counts[number]))
    if counts[least] * IMBALANCE < counts[most]:
        yield Finding(
            "imbalance",
            f"{counts[most]} images of {train.classes[most]!r} but {counts[least]} of "
            f"{train.classes[least]!r} to train on",
            "set data.class_balance=true, or add images",
        )


def sorted_split(train: ImageDataset, part: ImageDataset, name: str) -> Iterator[Finding]:
    """A split of a list that was sorted by class leaves whole classes on one side."""
    ours, theirs = shares(train), shares(part)
    distance = float(np.abs(ours - theirs).sum()) / 2
    unseen = [train.classes[c] for c in np.flatnonzero((theirs > 0) & (ours == 0))]
    if unseen or distance > OTHER_CLASSES:
        missing = f"; never trained on: {', '.join(unseen[:5])}" if unseen else ""
        yield Finding(
            "split",
            f"{distance:.0%} of the {name} part lie in classes that the training part shows less often"
            f"{missing}: the list was probably sorted by class when it was cut",
            "draw the split at random: leave it to data.test_fraction, or shuffle the list first",
        )


def shares(images: ImageDataset) -> Float[np.ndarray, " classes"]:
    counts = np.bincount(images.targets.clip(0), minlength=len(images.classes))
    return counts[: len(images.classes)] / max(counts.sum(), 1)


def leak(train: ImageDataset, part: ImageDataset, name: str) -> Iterator[Finding]:
    """The same bytes to learn from and to be judged on."""
    known = {digest for _, digest in digests(train)}
    twice = [index for index, digest in digests(part) if digest in known]
    if len(twice) > LEAKED * min(len(part), LOOKED_AT):
        yield Finding(
            "leak",
            f"{len(twice)} of {len(part)} {name} images are also in the training part, such as "
            f"{part.name(twice[0])}: the accuracy is too good to be true",
            "remove them from one side; `vitreous data check` lists them",
        )


def digests(images: ImageDataset) -> Iterator[tuple[int, bytes]]:
    """A fingerprint of each image's file, or of its pixels where there is no file."""
    for index in range(min(len(images), LOOKED_AT)):
        try:
            content = images.encoded(index)
            if content is None:
                image = images.image(index)
                content = repr(image.size).encode() + image.tobytes()
        except BadImage:
            continue  # counted and named by the loader
        yield index, hashlib.blake2b(content, digest_size=16).digest()
