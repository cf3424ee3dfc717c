"""Held-out parts, drawn class by class with a fixed seed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vitreous.data.config import DataConfig
from vitreous.data.dataset import ImageDataset, Indices, Subset
from vitreous.errors import InputError


def strata(targets: NDArray[Any]) -> NDArray[np.int64]:
    """A class number for each image; of several labels, the strongest one counts."""
    return targets.astype(np.int64) if targets.ndim == 1 else targets.argmax(axis=1).astype(np.int64)


def stratified(targets: NDArray[Any], fraction: float, seed: int) -> tuple[Indices, Indices]:
    """(kept, held out), both rising. Each class gives its part, at least one image if it has two, and
    always keeps one."""
    generator = np.random.default_rng(seed)
    groups = strata(targets)
    held: list[Indices] = []
    by_class = np.argsort(groups, kind="stable")
    for members in np.split(by_class, np.flatnonzero(np.diff(groups[by_class])) + 1):
        count = min(max(round(len(members) * fraction), 1), len(members) - 1) if fraction else 0
        held.append(generator.permutation(members)[:count])
    out = np.sort(np.concatenate(held))
    kept = np.setdiff1d(np.arange(len(targets)), out)
    return kept, out


def split(
    images: ImageDataset, config: DataConfig
) -> tuple[ImageDataset, ImageDataset | None, ImageDataset | None]:
    """(train, validation, test) of a source that has no split of its own."""
    kept, held = stratified(images.targets, config.test_fraction, config.split_seed)
    train, validation = carve(Subset(images, kept), config)
    return train, validation, Subset(images, held) if len(held) else None


VALIDATION = ("val", "valid", "validation", "dev")


def by_name(
    images: ImageDataset, names: Sequence[str], config: DataConfig, *, where: str
) -> tuple[ImageDataset, ImageDataset | None, ImageDataset | None]:
    """(train, validation, test) as each image's split says. A single held-out part is the test set."""
    part = np.array([dict.fromkeys(VALIDATION, "val").get(name.lower(), name.lower()) for name in names])
    if unknown := sorted(set(part.tolist()) - {"train", "val", "test"}):
        raise InputError(f"{where} has a split {unknown[0]!r}: write train, val or test")
    train, validation, test = (
        Subset(images, np.flatnonzero(part == name)) for name in ("train", "val", "test")
    )
    if not len(train):
        raise InputError(f"{where} has no image in the split 'train': name some")
    if len(validation) and len(test):
        return train, validation, test
    held = validation if len(validation) else test
    if not len(held):
        return split(train, config)
    return *carve(train, config), held


def carve(train: ImageDataset, config: DataConfig) -> tuple[ImageDataset, ImageDataset | None]:
    """(train, validation): the validation images taken from those for training."""
    if not config.validation_fraction:
        return train, None
    kept, held = stratified(train.targets, config.validation_fraction, config.split_seed)
    if not len(held):
        raise InputError(
            f"data.validation_fraction={config.validation_fraction} leaves no image to validate on: every "
            "class has a single image"
        )
    return Subset(train, kept), Subset(train, held)
