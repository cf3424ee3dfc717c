"""How the images of a source are split into parts for training, validation and testing.

An image is held out by a hash of its name: where images are added or removed, no other image moves to another
part. Only a class of which the hashes hold out less than half of what they should gives those with the lowest
hashes as well.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vitreous.data.config import DataConfig, SplitByTime
from vitreous.data.dataset import (
    ImageDataset,
    Parts,
    Subset,
    hashes_of,
    image_times,
    members_of_classes,
    members_of_few,
    name_hashes,
    slices,
)
from vitreous.data.split_file import as_recorded, without_excluded
from vitreous.data.targets import ClassTargets
from vitreous.errors import InputError
from vitreous.whole_files import made_by_one, whole

VALIDATED = 300  # images of an automatic validation part
ENOUGH_TO_VALIDATE = 200, 10  # images, in all and of a class; of fewer each is needed for training
MOST_HELD_OUT = 2000  # texts: writing them takes long
# The names that parts may have, and what they are called here.
PARTS = {"train": "train", "test": "test", **dict.fromkeys(("val", "valid", "validation", "dev"), "val")}
STORED = ("numbers", "targets")  # the arrays of a part that is stored


def split(images: ImageDataset, config: DataConfig) -> Parts:
    """(train, validation, test) of a source that has no split of its own."""
    return with_own_parts(images, {}, config, where=images.name(0))


def with_own_parts(
    train: ImageDataset, held_out: Mapping[str, ImageDataset], config: DataConfig, *, where: str
) -> Parts:
    """Return (train, validation, test) of a source that may have held-out parts of its own.

    A single held-out part, whatever its name, is the test set: nothing is selected on it. With both, the
    first one is for validation. Without any, the training images are split.

    Args:
        held_out: by name, the test part as "test".

    Raises:
        InputError: a part is to be split off that the source has already.
    """
    if config.exclude:
        train, held_out = without_excluded(train, held_out, Path(config.exclude))
    own = {"train": train}
    if len(held_out) == 1:
        [own["test"]] = held_out.values()
    elif held_out:
        own["test"] = held_out["test"]
        [own["validation"]] = [part for name, part in held_out.items() if name != "test"]
        if config.validation_fraction not in ("auto", 0):
            raise InputError(
                f"{where} has a validation part, so data.validation_fraction={config.validation_fraction} "
                "has no effect: leave it out"
            )
    fraction = 0.0 if "validation" in own else validation_fraction(config, len(train), len(train.classes))
    if held_out and not fraction:
        asked = f"group_by={config.group_by!r}" if config.group_by else ""
        if isinstance(config.split, SplitByTime):
            asked = "kind=time"
        if asked:
            raise InputError(
                f"{where} has parts of its own, so data.split.{asked} has no effect: leave it out"
            )
    if config.recorded_file:
        new = partial(part_of_new, own, config) if config.new_images else None
        return as_recorded(own, config.recorded_file, new)
    test = own.get("test")
    if test is None:
        train, test = held_out_of(train, config.test_fraction, config, "test")
    validation = own.get("validation")
    if fraction:
        train, validation = held_out_of(train, fraction, config, "validation")
        if validation is None and config.validation_fraction != "auto":
            raise InputError(
                f"data.validation_fraction={fraction} leaves no image to validate on: "
                "every class has a single image"
            )
    return train, validation, test


def by_name(images: ImageDataset, names: Sequence[str], config: DataConfig, *, where: str) -> Parts:
    """(train, validation, test) as each image's split says. A single held-out part is the test set."""
    part = np.array([PARTS.get(name.lower(), name.lower()) for name in names])
    if unknown := sorted(set(part.tolist()) - {"train", "val", "test"}):
        raise InputError(f"{where} has a split {unknown[0]!r}: write train, val or test")
    parts = dict[str, ImageDataset]()
    for name in ("train", "val", "test"):
        if name in part:
            parts[name] = images.subset(np.flatnonzero(part == name))
    if "train" not in parts:
        raise InputError(f"{where} has no image in the split 'train': name some")
    return with_own_parts(parts.pop("train"), parts, config, where=where)


def validation_fraction(config: DataConfig, images: int, classes: int) -> float:
    """Return the part of so many training images, or more, that is for validation."""
    if config.validation_fraction != "auto":
        return config.validation_fraction
    least, each = ENOUGH_TO_VALIDATE
    return max(0.01, min(0.1, VALIDATED / images)) if images >= max(least, each * classes) else 0.0


def held_out_of(
    images: ImageDataset, fraction: float, config: DataConfig, part: str
) -> tuple[ImageDataset, ImageDataset | None]:
    """Return (the images that are kept, those that are held out as `part`; None where none are)."""
    if isinstance(config.split, SplitByTime):
        held = newest(images, fraction, config.split.time)
    elif images.cache and config.group_by is None and fraction and isinstance(images.targets, ClassTargets):
        return stored_parts(images, images.targets, fraction, config, part)
    else:
        held = lowest_hashes(images, fraction, config, part)
    if not held.any():
        return images, None
    kept = images.subset(np.flatnonzero(~held))
    return kept, images.subset(np.flatnonzero(held))


def stored_parts(
    images: ImageDataset, targets: ClassTargets, fraction: float, config: DataConfig, part: str
) -> tuple[ImageDataset, ImageDataset | None]:
    """Return what `held_out_of` does, by hashes, of a large index: computed once and stored beside it, so
    that all processes of a machine share it."""
    assert images.cache
    folder = images.cache / f"{part}-{config.split_seed}-{fraction!r}"
    held = None
    with made_by_one(folder):
        if not folder.is_dir():
            held = lowest_hashes(images, fraction, config, part)
            with suppress(OSError), whole(folder) as beside:
                beside.mkdir(parents=True)
                write_part(targets, ~held, beside / "kept")
                write_part(targets, held, beside / "held_out")
    parts = []
    for name in ("kept", "held_out"):
        try:
            numbers = np.load(folder / name / f"{STORED[0]}.npy", mmap_mode="r")
            found = np.load(folder / name / f"{STORED[1]}.npy", mmap_mode="r")
            parts.append(Subset(images, numbers, ClassTargets(found, targets.classes)))
            parts[-1].cache = folder / name
        except (OSError, ValueError):  # the cache cannot be written
            held = lowest_hashes(images, fraction, config, part) if held is None else held
            parts.append(Subset(images, np.flatnonzero(held if name == "held_out" else ~held)))
    kept, held_out = parts
    return (kept, held_out) if len(held_out) else (images, None)


def write_part(targets: ClassTargets, chosen: NDArray[np.bool_], folder: Path) -> None:
    """Write the numbers of some images and their targets, a part at a time."""
    folder.mkdir()
    count, place = int(chosen.sum()), 0
    memory = partial(np.lib.format.open_memmap, mode="w+", shape=(count,))
    numbers = memory(folder / f"{STORED[0]}.npy", dtype=np.uint32)
    classes = memory(folder / f"{STORED[1]}.npy", dtype=targets.numbers.dtype)
    for rows in slices(len(chosen)):
        found = np.flatnonzero(chosen[rows]) + rows.start
        numbers[place : place + len(found)] = found
        classes[place : place + len(found)] = targets.numbers[found]
        place += len(found)


def lowest_hashes(images: ImageDataset, fraction: float, config: DataConfig, part: str) -> NDArray[np.bool_]:
    """Return which images have a hash below `fraction`. Where these are less than half as many of a class as
    they should be, those with the lowest hashes are added; and those with the highest are always kept. Images
    of one group have one hash."""
    purpose = f"{part} {config.split_seed}"
    held = np.zeros(len(images), dtype=bool)
    if not fraction:
        return held
    together, names = config.group_by is not None, None
    if together or images.hashes_at(slice(0)) is None:
        names = name_hashes(group_names(images, config), purpose)
    for rows in slices(len(held)):
        held[rows] = hashes_of(images, names, purpose, rows) < fraction
    if together:
        groups = [np.arange(len(images))]
    else:  # most classes of many images are right already
        strata, found = members_of_few(images.targets, held, fraction)
        groups = [found[each] for each in members_of_classes(strata)] if len(found) else []
    for members in groups:
        hashes = hashes_of(images, names, purpose, members)
        ascending = np.sort(hashes)
        held[members] |= hashes <= ascending[math.ceil(fraction * len(members) / 2) - 1]
        held[members] &= hashes < ascending[-1]
    if together and not held.any():
        raise InputError(
            f"data.split.group_by={config.group_by!r} puts all images into one group: give another"
        )
    return held


def newest(images: ImageDataset, fraction: float, time: str) -> NDArray[np.bool_]:
    """Return which images are the newest `fraction`; those of one moment are in one part. Raises InputError:
    it is not known when an image was taken, or all are of one moment."""
    if not fraction:
        return np.zeros(len(images), dtype=bool)
    times = image_times(images, time)
    moments, counts = np.unique(times, return_counts=True)
    if len(moments) == 1:
        raise InputError(
            f"all {len(images)} images have the same time, so none is newer: use another data.split.time, "
            "or leave out data.split.kind=time"
        )
    newer = np.cumsum(counts[::-1])[::-1]  # images from each moment on
    closest = 1 + np.abs(newer[1:] - fraction * len(images)).argmin()
    held: NDArray[np.bool_] = times >= moments[closest]
    return held


def group_names(images: ImageDataset, config: DataConfig) -> list[str]:
    """Return what each image is held out by: its own name, or that of its group."""
    keys = images.all_keys()
    if config.group_by is None:
        return keys
    if images.groups is not None:
        return [str(group) for group in images.groups]
    try:
        pattern = re.compile(config.group_by)
    except re.error as error:
        raise InputError(f"data.split.group_by={config.group_by!r} is not a pattern: {error}") from None
    groups: list[str] = []
    for key in keys:
        match = pattern.search(key)
        if match is None:
            raise InputError(
                f"data.split.group_by={config.group_by!r} is not a column, and matches nothing in the name "
                f"{key!r}: give a column of the manifest, or a pattern of names such as '([^/_]*)_' for what "
                "is before the first _"
            )
        groups.append(match[1] or "" if pattern.groups else match[0])
    return groups


def part_of_new(own: Mapping[str, ImageDataset], config: DataConfig, home: str, index: int) -> str:
    """Return the part of a new image in a source's own part. Where the newest are held out, new ones are."""
    if isinstance(config.split, SplitByTime):
        return "test" if home == "train" and "test" not in own else home
    [name] = group_names(own[home].subset(np.array([index])), config)
    validated = validation_fraction(config, len(own["train"]), len(own["train"].classes))
    for part, fraction in (("test", config.test_fraction), ("validation", validated)):
        free = home == "train" and part not in own
        if free and name_hashes([name], f"{part} {config.split_seed}")[0] < fraction:
            return part
    return home


def held_out_names(names: Sequence[str], fraction: float, seed: int, *, most: int) -> NDArray[np.bool_]:
    """Return which examples are held out by the hashes of their names: `fraction` of them, halved until that
    is at most `most`; at least one, and never all. Examples of one name are in one part."""
    while fraction * len(names) > most:
        fraction /= 2
    hashes = name_hashes(names, f"test {seed}")
    held = (hashes < max(fraction, hashes.min() + 2.0**-53)) & (hashes < hashes.max())
    if not held.any():  # all have one name
        held[0] = True
    return held
