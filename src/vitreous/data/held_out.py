"""How the images of a source are split into parts for training, validation and testing.

An image is held out by a hash of its name: where images are added or removed, no other image moves to another
part. Only a class of which the hashes hold out less than half of what they should gives those with the lowest
hashes as well. A run records the parts of its images in a file, split.csv.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from os.path import normpath
from pathlib import Path
from sys import intern
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vitreous.data.config import DataConfig, SplitByTime
from vitreous.data.dataset import (
    ClassTargets,
    ImageDataset,
    Indices,
    Parts,
    Subset,
    Targets,
    hashes_of,
    image_times,
    members_of_classes,
    members_of_few,
    name_hashes,
    slices,
)
from vitreous.data.findings import Finding, finding
from vitreous.data.workers import in_threads
from vitreous.errors import InputError
from vitreous.languages import speaking
from vitreous.languages.terminal import said
from vitreous.models.stored import BadImage
from vitreous.outside import read_regular, same_name
from vitreous.whole_files import made_by_one, whole, write_csv

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


SPLIT = "split.csv"
MOST_DIGESTS = 20_000  # of a part: those whose names have the lowest hashes, so that large data begin as soon
MOST_LISTED = 20_000_000  # images
EXCLUDED = "excluded"  # the part of images that the user has left out
EXCLUDE = "exclude"  # the action of a row that names an image to leave out
TOGETHER = 64  # images whose digests a thread takes at a time
LISTERS = 16  # threads, which wait for the disk or the network


class SplitRow(NamedTuple):
    """An image of a run. part: train, validation, test or excluded. digest: "" where there is none."""

    path: str
    label: str
    part: str
    digest: str


def digests_of(images: ImageDataset) -> list[str]:
    """Return the digest of each image; of more than 20,000 those of a part of them, "" for the others."""
    found = [""] * len(images)
    wanted = np.arange(len(images))
    if len(images) > MOST_DIGESTS:
        hashes = name_hashes(images.all_keys(), "digest")
        wanted = np.sort(np.argsort(hashes)[:MOST_DIGESTS])

    def some(indices: Indices) -> list[str]:
        digests = []
        for index in indices.tolist():
            digest = ""
            with suppress(BadImage):  # counted and named when it is loaded
                digest = images.digest(index)
            digests.append(digest)
        return digests

    groups = [wanted[first : first + TOGETHER] for first in range(0, len(wanted), TOGETHER)]
    for indices, digests in zip(groups, in_threads(some, groups, workers=LISTERS), strict=True):
        for index, digest in zip(indices.tolist(), digests, strict=True):
            found[index] = digest
    return found


def write_split(file: Path, parts: Mapping[str, ImageDataset]) -> None:
    """Write split.csv, as a whole. Nothing where images are composed when they are asked for, or too many to
    be listed; their names say which part they are in, too."""
    if not parts or not all(images.listed for images in parts.values()):
        return
    if sum(map(len, parts.values())) > MOST_LISTED:
        return

    def rows() -> Iterator[SplitRow]:
        excluded = [(EXCLUDED, images) for images in parts["train"].excluded]
        for part, images in (*parts.items(), *excluded):
            for index, digest in enumerate(digests_of(images)):
                yield SplitRow(images.key(index), images.label(index), part, digest)

    write_csv(file, SplitRow._fields, rows(), new=True)


def read_split(file: Path) -> dict[str, SplitRow]:
    """Return the rows of a split.csv by path. Raises InputError."""
    try:
        with io.StringIO(read_regular(file).decode("utf-8", "surrogateescape"), newline="") as text:
            table = csv.reader(text)
            if tuple(next(table, ())) != SplitRow._fields:
                raise InputError(f"{file} does not begin with the columns {', '.join(SplitRow._fields)}")
            rows = dict[str, SplitRow]()
            for path, label, part, digest in table:
                rows[path] = SplitRow(path, intern(label), intern(part), digest)  # few labels, many rows
            return rows
    except (OSError, ValueError, csv.Error) as error:
        raise InputError(
            f"cannot read {file}: {getattr(error, 'strerror', error)}; give a split.csv as a run wrote it"
        ) from None


def as_recorded(
    own: Mapping[str, ImageDataset], file: Path, part_of: Callable[[str, int], str] | None
) -> Parts:
    """Return (train, validation, test) as a run has recorded them. An image with a new name is recognized by
    its digest; one that is new, of an unknown class, or now in a part of the source that is not the recorded
    one, is left out.

    Args:
        own: the source's own parts; a part that is not among them is taken from "train".
        part_of: the part of a new image of a known class, by the part of the source that it is in and its
            number there; None to leave new images out.
    """
    rows = read_split(file)
    keys = {home: images.all_keys() for home, images in own.items()}

    # Rows whose names are in the data no more; by the digest of one, an image of a new name is recognized.
    gone = dict(rows)
    for path in chain.from_iterable(keys.values()):
        gone.pop(path, None)
    renamed = dict[str, SplitRow]()
    for row in sorted(gone.values(), key=lambda row: row.part == "train"):  # of equal images to train on
        if row.digest:
            renamed[row.digest] = row

    classes = recorded_classes(own["train"].targets, rows)
    known = set(classes)
    seen: dict[str, list[str]] = {kind: [] for kind in ("new", "changed", "relabeled", "moved", "gone")}
    chosen: dict[str, list[int]] = {"train": [], "validation": [], "test": []}
    for home, images in own.items():
        for index, (key, digest) in enumerate(zip(keys[home], digests_of(images), strict=True)):
            found = rows.get(key) or renamed.get(digest)
            if found is not None and found.part == EXCLUDED:
                gone.pop(found.path, None)
                continue
            label = images.label(index)
            of_known_class = images.targets.classes_in(label) <= known
            if found is None or not of_known_class:
                seen["new"].append(key)
                if part_of and of_known_class:
                    chosen[part_of(home, index)].append(index)
                continue
            gone.pop(found.path, None)
            if home_of(found.part, own) != home:
                seen["moved"].append(key)
                continue
            if found.path == key and found.digest and digest and found.digest != digest:
                seen["changed"].append(key)
            if found.label != label:
                seen["relabeled"].append(key)
            chosen[found.part].append(index)
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
    if part_of:
        seen["added"] = seen.pop("new")
    for kind, names in seen.items():
        train.findings += tuple(finding(f"{kind} images", names, severity="warning"))
    return train, validation, test


def home_of(part: str, own: Mapping[str, ImageDataset]) -> str:
    """Return which of a source's own parts the images of a recorded part are in."""
    return part if part in own else "train"


def recorded_classes(targets: Targets, rows: Mapping[str, SplitRow]) -> tuple[str, ...]:
    """Return the classes of a run: those of its data now, without new ones, and those that are gone."""
    names: set[str] = set()
    for label in {row.label for row in rows.values()}:
        names |= targets.classes_in(label)
    if not names:
        return targets.classes
    new = {targets.classes[number] for number in np.flatnonzero(targets.counts())} - names
    classes = [name for name in targets.classes if name not in new]
    missing = sorted(names - set(classes))
    return tuple(sorted([*classes, *missing]) if classes == sorted(classes) else [*classes, *missing])


def reclassify(images: ImageDataset, classes: tuple[str, ...]) -> None:
    """Number the targets of images by other classes, among which theirs are."""
    if images.classes != classes:
        place = {name: number for number, name in enumerate(classes)}
        columns = np.array([place.get(name, -1) for name in images.classes])
        images.targets = images.targets.with_classes(classes, columns)


def without_excluded(
    train: ImageDataset, held_out: Mapping[str, ImageDataset], file: Path
) -> tuple[ImageDataset, dict[str, ImageDataset]]:
    """Return the parts of a source without the images that a CSV lists by their names. Where it has the
    column action, as that of `vitreous data check --report`, only rows whose action is exclude count. Raises
    InputError: the file cannot be read, or none of its images is in the data."""
    try:
        with io.StringIO(read_regular(file).decode("utf-8-sig", "surrogateescape"), newline="") as text:
            rows = list(csv.DictReader(text))
    except (OSError, csv.Error) as error:
        why = getattr(error, "strerror", error)
        raise InputError(f"cannot read {file}: {why}; give a CSV with the column path") from None
    if any("path" not in row for row in rows):
        raise InputError(f"{file} has no column path: name the images to exclude in it")
    names = {compared(row["path"]) for row in rows if row.get("action", EXCLUDE) == EXCLUDE}

    parts = {"train": train, **held_out}
    left_out: list[ImageDataset] = []
    known: set[str] = set()
    for part, images in parts.items():
        out = np.zeros(len(images), dtype=bool)
        for index in range(len(images)):
            given = names & {compared(images.key(index)), compared(images.name(index))}
            out[index] = bool(given)
            known |= given
        if out.any():
            left_out.append(images.subset(np.flatnonzero(out)))
            parts[part] = images.subset(np.flatnonzero(~out))
    if names and not known:
        raise InputError(
            f"none of the {len(names)} images to exclude in {file} is in the data, such as {min(names)}: "
            "write their paths as data check does, relative to the data"
        )
    rest = parts.pop("train")
    if not len(rest):
        raise InputError(f"{file} excludes every image to train on: keep some")
    rest.excluded = tuple(left_out)
    count = sum(map(len, left_out))
    rest.findings = (*rest.findings, *finding("excluded", (), count, file=file, severity="note"))
    rest.findings += tuple(finding("not excluded", sorted(names - known), file=file, severity="warning"))
    return rest, {part: images for part, images in parts.items() if len(images)}


def compared(path: str) -> str:
    """Return a path in the form in which those of images to exclude are compared."""
    return normpath(same_name(path))


def unseen_images(images: ImageDataset, file: Path) -> ImageDataset:
    """Return the images that a run did not train on, by its split.csv: they are recognized by their digests,
    and, where the digests of some say that these are the run's data, others by their names."""
    digests: set[str] = set()  # of the images that it trained on; of others than these their names
    names: set[str] = set()
    for row in read_split(file).values():
        if row.part == "train" and row.digest:
            digests.add(row.digest)
        elif row.part == "train":
            names.add(row.path)
    trained = np.array([digest in digests for digest in digests_of(images)], dtype=bool)
    if not trained.any():
        return images
    trained |= np.array([key in names for key in images.all_keys()], dtype=bool)
    return images.subset(np.flatnonzero(~trained))


def findings_of(parts: Sequence[object]) -> list[Finding]:
    """Return what was seen when data were opened. parts: begins with train, validation and test."""
    found = dict[str, Finding]()
    for part in parts[:3]:
        for each in getattr(part, "findings", ()):
            found[each.kind] = each
    return list(found.values())


def data_notes(parts: Sequence[object]) -> list[str]:
    """Return what was seen when data were opened, in sentences."""
    with speaking(None):
        return [said("data: {sentence}", sentence=each.sentence) for each in findings_of(parts)]
