"""Held-out parts, sampled class by class with a fixed seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vitreous.data.config import DataConfig
from vitreous.data.dataset import ImageDataset, Indices, Subset
from vitreous.errors import InputError


def strata(targets: NDArray[Any]) -> NDArray[np.int64]:
    """Return a class number for each image: of several labels the strongest, of numbers to predict 0."""
    if targets.ndim == 1 and targets.dtype.kind == "f":
        return np.zeros(len(targets), dtype=np.int64)
    return targets.astype(np.int64) if targets.ndim == 1 else targets.argmax(axis=1).astype(np.int64)


def stratified(targets: NDArray[Any], fraction: float, seed: int) -> tuple[Indices, Indices]:
    """(kept, held out), both ascending. Each class gives its part, at least one image if it has two, and
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
    parts: dict[str, ImageDataset] = {
        name: Subset(images, np.flatnonzero(part == name))
        for name in ("train", "val", "test")
        if name in part
    }
    if "train" not in parts:
        raise InputError(f"{where} has no image in the split 'train': name some")
    return with_own_parts(parts.pop("train"), parts, config, where=where)


def with_own_parts(
    train: ImageDataset, held_out: Mapping[str, ImageDataset], config: DataConfig, *, where: str
) -> tuple[ImageDataset, ImageDataset | None, ImageDataset | None]:
    """Return (train, validation, test) of a source that may have held-out parts of its own.

    A single held-out part, whatever its name, is the test set: nothing is selected on it. With both, the
    first one is for validation. Without any, the training images are split.

    Args:
        held_out: by name, the test part as "test".

    Raises:
        InputError: a part is to be split off that the source has already.
    """
    if not held_out:
        return split(train, config)
    if len(held_out) == 1:
        return *carve(train, config), next(iter(held_out.values()))
    if config.validation_fraction:
        raise InputError(
            f"{where} has a validation part, so data.validation_fraction={config.validation_fraction:g} has "
            "no effect: leave it out"
        )
    validation = next(part for name, part in held_out.items() if name != "test")
    return train, validation, held_out["test"]


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
