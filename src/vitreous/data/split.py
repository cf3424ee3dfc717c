"""The parts of a source: its own or split off, and split.csv, which a run writes when it begins and
which gives the same parts again."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from sys import intern
from typing import Any, NamedTuple

import numpy as np

from vitreous.checkpoints.whole_files import whole
from vitreous.data.config import DataConfig
from vitreous.data.dataset import ImageDataset, Indices, Parts, name_hashes
from vitreous.data.decoding import BadImage
from vitreous.data.findings import Finding, finding
from vitreous.data.splitting import (
    VALIDATION,
    group_names,
    held_out_of,
    validation_fraction,
    without_excluded,
)
from vitreous.data.workers import in_threads
from vitreous.errors import InputError
from vitreous.languages import speaking

SPLIT = "split.csv"
COLUMNS = ("path", "label", "part", "digest")
MOST_DIGESTS = 20_000  # of a part: those whose names have the lowest hashes, so that large data begin as soon
MOST_LISTED = 20_000_000  # images
EXCLUDED = "excluded"  # the part of images that the user has left out
TOGETHER = 64  # images whose digests a thread takes at a time
LISTERS = 16  # threads, which wait for the disk or the network


class SplitRow(NamedTuple):
    """An image as a run has recorded it. part: train, validation, test or excluded. digest: "" where there
    is none."""

    path: str
    label: str
    part: str
    digest: str


def digests_of(images: ImageDataset) -> list[str]:
    """Return the digest of each image; of more than 20,000 those of a part of them, "" for the others."""
    found = [""] * len(images)
    wanted = np.arange(len(images))
    if len(images) > MOST_DIGESTS:
        hashes = name_hashes([images.key(index) for index in range(len(images))], "digest")
        wanted = np.sort(np.argsort(hashes)[:MOST_DIGESTS])

    def some(indices: Indices) -> list[str]:
        return [digest_or_nothing(images, int(index)) for index in indices]

    groups = [wanted[first : first + TOGETHER] for first in range(0, len(wanted), TOGETHER)]
    for indices, digests in zip(groups, in_threads(some, groups, workers=LISTERS), strict=True):
        for index, digest in zip(indices.tolist(), digests, strict=True):
            found[index] = digest
    return found


def digest_or_nothing(images: ImageDataset, index: int) -> str:
    try:
        return images.digest(index)
    except BadImage:
        return ""  # counted and named when it is loaded


def rows_of_parts(parts: Mapping[str, ImageDataset]) -> Iterator[SplitRow]:
    """Yield a row for each image, also for those that are left out."""
    excluded = [(EXCLUDED, images) for images in parts["train"].excluded]
    for part, images in (*parts.items(), *excluded):
        for index, digest in enumerate(digests_of(images)):
            yield SplitRow(images.key(index), images.label(index), part, digest)


def write_split(file: Path, parts: Mapping[str, ImageDataset]) -> None:
    """Write split.csv, as a whole. Nothing where images are composed when they are asked for, or too many to
    be listed; their names say which part they are in, too."""
    if not parts or not all(images.listed for images in parts.values()):
        return
    if sum(map(len, parts.values())) > MOST_LISTED:
        return
    with (
        whole(file) as beside,
        beside.open("w", newline="", encoding="utf-8", errors="surrogateescape") as text,
    ):
        table = csv.writer(text)
        table.writerow(COLUMNS)
        table.writerows(rows_of_parts(parts))


def read_split(file: Path) -> dict[str, SplitRow]:
    """Return the rows of a split.csv by path. Raises InputError."""
    try:
        with file.open(newline="", encoding="utf-8", errors="surrogateescape") as text:
            table = csv.reader(text)
            if tuple(next(table, ())) != COLUMNS:
                raise InputError(f"{file} does not begin with the columns {', '.join(COLUMNS)}")
            rows = (SplitRow(*row) for row in table)
            return {row.path: row._replace(label=intern(row.label), part=intern(row.part)) for row in rows}
    except (OSError, TypeError, csv.Error) as error:
        raise InputError(f"cannot read {file}: {error}; give a split.csv as a run wrote it") from None


def as_recorded(own: Mapping[str, ImageDataset], file: Path, config: DataConfig) -> Parts:
    """Return (train, validation, test) as a run has recorded them. An image with a new name is recognized by
    its digest; one that is new, of an unknown class, or now in a part of the source that is not the recorded
    one, is left out.

    Args:
        own: the source's own parts; a part that is not among them is taken from "train".
    """
    rows = read_split(file)
    keys = {part: [images.key(index) for index in range(len(images))] for part, images in own.items()}
    gone = {path: rows[path] for path in rows.keys() - {key for each in keys.values() for key in each}}
    renamed = {row.digest: row for row in gone.values() if row.digest}
    renamed |= {row.digest: row for row in gone.values() if row.digest and row.part == "train"}
    classes = recorded_classes(own["train"], rows)
    seen: dict[str, list[str]] = {kind: [] for kind in ("new", "changed", "relabeled", "moved", "gone")}
    chosen: dict[str, list[int]] = {"train": [], "validation": [], "test": []}
    for home, images in own.items():
        for index, (key, digest) in enumerate(zip(keys[home], digests_of(images), strict=True)):
            row, label = rows.get(key) or renamed.get(digest), images.label(index)
            if row is not None and row.part == EXCLUDED:
                gone.pop(row.path, None)
                continue
            if row is None or not classes_in(label, images) <= set(classes):
                seen["new"].append(key)
                if config.new_images and classes_in(label, images) <= set(classes):
                    [group] = group_names(images.subset(np.array([index])), config)
                    chosen[part_by_name(group, home, own, config)].append(index)
                continue
            gone.pop(row.path, None)
            if home_of(row.part, own) != home:
                seen["moved"].append(key)
                continue
            if row.path == key and row.digest and digest and row.digest != digest:
                seen["changed"].append(key)
            if row.label != label:
                seen["relabeled"].append(key)
            chosen[row.part].append(index)
    seen["gone"] = sorted(gone)
    if not chosen["train"]:
        raise InputError(f"no image that {file} lists for training is in the data: are these the run's own?")
    parts = []
    for part, indices in chosen.items():
        images = own[home_of(part, own)].subset(np.array(indices, dtype=np.int64))
        reclassify(images, classes)
        parts.append(images if indices else None)
    train, validation, test = parts
    assert train is not None
    if config.new_images:
        seen["added"] = seen.pop("new")
    for kind, names in seen.items():
        train.findings += tuple(finding(f"{kind} images", names))
    return train, validation, test


def home_of(part: str, own: Mapping[str, ImageDataset]) -> str:
    """Return which of a source's own parts the images of a recorded part are in."""
    return part if part in own else "train"


def part_by_name(name: str, home: str, own: Mapping[str, ImageDataset], config: DataConfig) -> str:
    """Return the part of a new image. name: its own, or its group's. Where the newest are held out, new ones
    are."""
    if config.split_by == "time":
        return "test" if home == "train" and "test" not in own else home
    validated = validation_fraction(config, len(own["train"]), len(own["train"].classes))
    for part, fraction in (("test", config.test_fraction), ("validation", validated)):
        free = home == "train" and part not in own
        if free and name_hashes([name], f"{part} {config.split_seed}")[0] < fraction:
            return part
    return home


def classes_in(label: str, images: ImageDataset) -> set[str]:
    """Return the classes that a recorded label names."""
    if not label or not images.classes:
        return set()
    if images.targets.ndim == 1:
        return {label}
    parts = label.split("|")
    return {part if part in images.classes else part.rpartition(":")[0] or part for part in parts}


def recorded_classes(images: ImageDataset, rows: Mapping[str, SplitRow]) -> tuple[str, ...]:
    """Return the classes of a run: those of its data now, without new ones, and those that are gone."""
    names = {name for label in {row.label for row in rows.values()} for name in classes_in(label, images)}
    if not names:
        return images.classes
    shown = images.targets if images.targets.ndim == 1 else np.flatnonzero(images.targets.any(axis=0))
    new = {images.classes[number] for number in np.unique(shown)} - names
    classes = [name for name in images.classes if name not in new]
    missing = sorted(names - set(classes))
    return tuple(sorted([*classes, *missing]) if classes == sorted(classes) else [*classes, *missing])


def reclassify(images: ImageDataset, classes: tuple[str, ...]) -> None:
    """Number the targets of images by other classes, among which theirs are."""
    if images.classes == classes:
        return
    place = {name: number for number, name in enumerate(classes)}
    numbers = np.array([place.get(name, -1) for name in images.classes])
    if images.targets.ndim == 1:
        images.targets = numbers[images.targets]
    else:
        rows = np.zeros((len(images), len(classes)), dtype=images.targets.dtype)
        rows[:, numbers[numbers >= 0]] = images.targets[:, numbers >= 0]
        images.targets = rows
    images.classes = classes


def unseen_images(images: ImageDataset, file: Path) -> ImageDataset:
    """Return the images that a run did not train on, by its split.csv: they are recognized by their digests,
    and, where the digests of some say that these are the run's data, others by their names."""
    rows = [row for row in read_split(file).values() if row.part == "train"]
    digests, names = {row.digest for row in rows} - {""}, {row.path for row in rows if not row.digest}
    trained = np.array([digest in digests for digest in digests_of(images)], dtype=bool)
    if trained.any():
        trained |= np.array([images.key(index) in names for index in range(len(images))], dtype=bool)
    return images.subset(np.flatnonzero(~trained)) if trained.any() else images


def findings_of(parts: Any) -> list[Finding]:
    """Return what was seen when data were opened. parts: begins with train, validation and test."""
    found = {each.kind: each for part in parts[:3] for each in getattr(part, "findings", ())}
    return list(found.values())


def data_notes(parts: Any) -> list[str]:
    """Return what was seen when data were opened, in sentences."""
    with speaking("en"):
        return [f"data: {each.sentence}" for each in findings_of(parts)]


def by_name(images: ImageDataset, names: Sequence[str], config: DataConfig, *, where: str) -> Parts:
    """(train, validation, test) as each image's split says. A single held-out part is the test set."""
    part = np.array([dict.fromkeys(VALIDATION, "val").get(name.lower(), name.lower()) for name in names])
    if unknown := sorted(set(part.tolist()) - {"train", "val", "test"}):
        raise InputError(f"{where} has a split {unknown[0]!r}: write train, val or test")
    parts = {
        name: images.subset(np.flatnonzero(part == name)) for name in ("train", "val", "test") if name in part
    }
    if "train" not in parts:
        raise InputError(f"{where} has no image in the split 'train': name some")
    return with_own_parts(parts.pop("train"), parts, config, where=where)


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
        own["test"] = next(iter(held_out.values()))
    elif held_out:
        own["validation"] = next(part for name, part in held_out.items() if name != "test")
        own["test"] = held_out["test"]
        if config.validation_fraction not in ("auto", 0):
            raise InputError(
                f"{where} has a validation part, so data.validation_fraction={config.validation_fraction} "
                "has no effect: leave it out"
            )
    fraction = 0.0 if "validation" in own else validation_fraction(config, len(train), len(train.classes))
    if held_out and not fraction:
        by_time = "time" if config.split_by == "time" else None
        for name, value in (("group_by", config.group_by), ("split_by", by_time)):
            if value:
                raise InputError(
                    f"{where} has parts of its own, so data.{name}={value!r} has no effect: leave it out"
                )
    if held_out and config.folds:
        raise InputError(
            f"{where} has parts of its own, which are not those of {config.folds} folds: name the images of "
            "its training part alone"
        )
    if config.split_file:
        return as_recorded(own, Path(config.split_file), config)
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


def split(images: ImageDataset, config: DataConfig) -> Parts:
    """(train, validation, test) of a source that has no split of its own."""
    return with_own_parts(images, {}, config, where=images.name(0))
