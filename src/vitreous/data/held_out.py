"""How the images of a source are split into parts for training, validation and testing.

An image is held out by a hash of its name: where images are added or removed, no other image moves to another
part. Images that are equal or look alike (`Likeness`), and those of a group that the user has named, are held
out together, by the name that was there first as far as names tell: the shortest one.

Hashes that depend on nothing else cannot give each class its share. Where a class gets less than half of its
share, those of its images with the lowest hashes are held out as well; where it gets twice as much, those
with the highest hashes are not. Of a small class that is the rule, so that an image that is added to it may
take the place of another; a run records the parts of its images in a file, split.csv, by which none of them
ever moves (`data.recorded`).
"""

from __future__ import annotations

import csv
import hashlib
import io
import math
import os
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import lru_cache, partial
from itertools import chain
from os.path import normpath
from pathlib import Path
from sys import intern
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags

from vitreous.data.config import DataConfig, SplitByTime
from vitreous.data.dataset import (
    ROWS,
    ClassTargets,
    ImageDataset,
    Indices,
    RowSelection,
    SourceParts,
    SplitParts,
    Subset,
    Targets,
    members_of_classes,
    part_called,
)
from vitreous.data.findings import finding
from vitreous.data.likeness import MOST_EQUAL, Likeness
from vitreous.data.workers import in_threads
from vitreous.errors import InputError, Param
from vitreous.models.stored import BadImage
from vitreous.outside import read_regular, same_name
from vitreous.rng import mixed_bits
from vitreous.whole_files import made_by_one, whole, write_csv

VALIDATED = 300  # images of an automatic validation set
ENOUGH_TO_VALIDATE = 200, 10  # images, in all and of a class; of fewer each is needed for training
EXCLUDE = "exclude"  # the action of a row that names an image to leave out


# ---- Train, validation and test


def split(parts: SourceParts, config: DataConfig, *, where: str) -> SplitParts:
    """Return (train, validation, test) of a source that may have held-out parts of its own.

    A single held-out part, whatever its name, is the test set: nothing is selected on it. With both, the
    first one is for validation. Without any, the training images are split.

    Raises:
        InputError: a part is to be split off that the source has already.
    """
    if config.split and config.split.exclude:
        parts = without_excluded(parts, Path(config.split.exclude))
    own = parts_by_use(parts, config, where=where)
    train = own["train"]
    fraction = 0.0 if "validation" in own else validation_fraction(config, len(train), len(train.classes))
    if "test" in own and not fraction:
        asked = f"group_by={config.group_by!r}" if config.group_by else ""
        if isinstance(config.split, SplitByTime):
            asked = "kind=time"
        if asked:
            raise InputError(
                f"{where} comes already split, so data.split.{asked} has no effect: leave it out"
            )
    names: list[str] = []
    if config.group_by is not None:
        for images in own.values():
            names += group_names(images, config)
    likeness = Likeness(own, names)
    starts = dict(zip(own, likeness.images.starts.tolist(), strict=False))
    own = {name: images.with_(likeness=likeness, start=starts[name]) for name, images in own.items()}
    if config.recorded and config.recorded.file:
        new = partial(part_of_new, own, config) if config.recorded.new_images else None
        return as_recorded(own, Path(config.recorded.file), new)
    train, test, validation = own["train"], own.get("test"), own.get("validation")
    if test is None:
        train, test = held_out_of(train, config.test_fraction, config, "test")
    if fraction:
        train, validation = held_out_of(train, fraction, config, "validation")
        if validation is None and config.validation_fraction != "auto":
            raise InputError(
                f"data.validation_fraction={fraction} leaves no image to validate on: "
                "every class has a single image, or copies of one"
            )
    return train, validation, test


def without_excluded(parts: SourceParts, file: Path) -> SourceParts:
    """Return the parts of a source without the images that a CSV lists by their names. Where it has the
    column action, as that of `vitreous data check --report`, only rows whose action is exclude count. Raises
    InputError: the file cannot be read, or none of its images is in the data."""
    try:
        with io.StringIO(read_regular(file).decode("utf-8-sig", "surrogateescape"), newline="") as text:
            rows = list(csv.DictReader(text))
    except (OSError, csv.Error) as error:
        why = getattr(error, "strerror", error)
        raise InputError(f"cannot read {file}: {why}; pass a CSV file with a column path") from None
    if any("path" not in row for row in rows):
        raise InputError(f"{file} has no column path: list the images to exclude in it")
    names = {comparable_path(row["path"]) for row in rows if row.get("action", EXCLUDE) == EXCLUDE}

    left = dict(parts)
    left_out: list[ImageDataset] = []
    known: set[str] = set()
    for part, images in parts.items():
        out = np.zeros(len(images), dtype=bool)
        for index in range(len(images)):
            given = names & {comparable_path(images.key(index)), comparable_path(images.name(index))}
            out[index] = bool(given)
            known |= given
        if out.any():
            left_out.append(images.subset(np.flatnonzero(out)))
            left[part] = images.subset(np.flatnonzero(~out))
    if names and not known:
        raise InputError(
            f"none of the {len(names)} images to exclude in {file} (such as {min(names)}) is in the data: "
            "write paths relative to the data, as data check does"
        )
    rest = left["train"]
    if not len(rest):
        raise InputError(f"{file} excludes every training image: keep some")
    count = sum(map(len, left_out))
    findings = (
        *rest.findings,
        *finding("excluded", (), count, file=file, severity="note"),
        *finding("not excluded", sorted(names - known), file=file, severity="warning"),
    )
    left["train"] = rest.with_(excluded=tuple(left_out), findings=findings)
    return {part: images for part, images in left.items() if len(images)}


def comparable_path(path: str) -> str:
    """Return a path in the form in which those of images to exclude are compared."""
    return normpath(same_name(path))


def parts_by_use(parts: SourceParts, config: DataConfig, *, where: str) -> dict[str, ImageDataset]:
    """Return the parts of a source as "train", "test" and "validation", as `split` uses them. Raises
    InputError: there are others, or a validation set is to be split off besides."""
    held_out = dict(parts)
    train = held_out.pop("train")
    if not held_out:
        return {"train": train}
    if len(held_out) == 1:
        return {"train": train, "test": next(iter(held_out.values()))}
    named = {part_called(name): part for name, part in held_out.items()}
    if named.keys() != {"test", "val"} or len(held_out) > 2:
        raise InputError(
            f"{where} has the splits {', '.join(held_out)} besides train: keep only val and test"
        )
    if config.validation_fraction not in ("auto", 0):
        raise InputError(
            f"{where} has a validation set, so data.validation_fraction={config.validation_fraction} "
            "has no effect: leave it out"
        )
    return {"train": train, "test": named["test"], "validation": named["val"]}


def validation_fraction(config: DataConfig, images: int, classes: int) -> float:
    """Return the part of so many training images, or more, that is for validation."""
    if config.validation_fraction != "auto":
        return config.validation_fraction
    least, each = ENOUGH_TO_VALIDATE
    return max(0.01, min(0.1, VALIDATED / images)) if images >= max(least, each * classes) else 0.0


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
                f"{key!r}: pass a column of the manifest, or a pattern of names such as '([^/_]*)_' for the "
                "part before the first _"
            )
        groups.append(match[1] or "" if pattern.groups else match[0])
    return groups


def held_out_of(
    images: ImageDataset, fraction: float, config: DataConfig, part: str
) -> tuple[ImageDataset, ImageDataset | None]:
    """Return (the images that are kept, those that are held out as `part`; None where none are)."""
    if not fraction:
        return images, None
    if isinstance(config.split, SplitByTime):
        held = newest(images, fraction, config.split.time)
    elif images.cache and config.group_by is None and isinstance(images.targets, ClassTargets):
        return stored_parts(images, images.targets, fraction, config, part)
    else:
        held = lowest_hashes(images, fraction, config, part)
    if not held.any():
        return images, None
    kept = images.subset(np.flatnonzero(~held))
    return kept, images.subset(np.flatnonzero(held))


def newest(images: ImageDataset, fraction: float, time: str) -> NDArray[np.bool_]:
    """Return which images are the newest `fraction`; those of one moment are in one part. Raises InputError:
    it is not known when an image was taken, or all are of one moment."""
    times = image_times(images, time)
    # A copy of an older image is as old as that image.
    if images.grouped:
        _, place = np.unique(images.together(), return_inverse=True)
        oldest = np.full(len(times), np.inf)
        np.minimum.at(oldest, place, times)
        times = oldest[place]
    moments, counts = np.unique(times, return_counts=True)
    if len(moments) == 1:
        raise InputError(
            f"all {len(images)} images have the same time, so none is newer: use another data.split.time, "
            "or leave out data.split.kind=time"
        )
    newer = np.cumsum(counts[::-1])[::-1]  # images from each moment on
    closest = 1 + np.abs(newer[1:] - fraction * len(images)).argmin()
    return times >= moments[closest]


def image_times(images: ImageDataset, time: str) -> NDArray[np.float64]:
    """Return when each image was taken, as `data.split.time` says it. Raises InputError."""
    if images.times is not None:
        return images.times
    if time == "exif":
        found = list(in_threads(partial(camera_time, images), range(len(images))))
        what = "have a time in their EXIF data"
    elif time == "file":
        found = []
        for index in range(len(images)):
            name = images.name(index)
            found.append(os.path.getmtime(name) if os.path.isfile(name) else None)
        what = "are stored as separate files"
    else:
        raise InputError(
            f"data.split.time={time!r} is not a column: it is exif, file, or a column of a manifest (.csv, "
            ".tsv or .parquet)"
        )
    missing = [index for index, when in enumerate(found) if when is None]
    if missing:
        raise InputError(
            f"only {len(found) - len(missing)} of {len(found)} images {what} (not "
            f"{images.name(missing[0])}): "
            f"give a manifest with a column of times, as in {Param('settings')} data.split.time=taken; or, "
            f"if the files were never copied or changed, {Param('settings')} data.split.time=file"
        )
    return np.array(found, dtype=np.float64)


def camera_time(images: ImageDataset, index: int) -> float | None:
    """Return when the camera took an image, in seconds; None where its EXIF data do not say it."""
    try:
        exif = images.opened(index).exif()
        text = exif.get_ifd(ExifTags.IFD.Exif).get(ExifTags.Base.DateTimeOriginal)
        return datetime.strptime(str(text).strip("\0 "), "%Y:%m:%d %H:%M:%S").timestamp() if text else None
    except (BadImage, ValueError, SyntaxError, TypeError):
        return None


def lowest_hashes(images: ImageDataset, fraction: float, config: DataConfig, part: str) -> NDArray[np.bool_]:
    """Return which images have a hash below `fraction`, where a class has not far too few or too many of
    these. Images of one group have one hash. Raises InputError: all are of one group that the user has
    named."""
    held = np.zeros(len(images), dtype=bool)
    purpose = f"{part} {config.split_seed}"
    groups, names = images.together() if images.grouped else None, None
    if groups is not None:
        names = name_hashes(first_names(group_names(images, config), groups), purpose)
    elif images.hashes_at(slice(0)) is None:
        names = name_hashes(images.all_keys(), purpose)
    for rows in slices(len(held)):
        held[rows] = hashes_of(images, names, purpose, rows) < fraction
    least = 3 if part == "validation" else 2  # images of a class, of which one is held out
    # Copies count once, so that a copy which is added changes no share; images of the user's groups are
    # different images.
    counted = np.ones(len(images), dtype=bool)
    if groups is not None and config.group_by is None:
        _, first = np.unique(np.column_stack([images.targets.strata(), groups]), axis=0, return_index=True)
        counted[:] = False
        counted[first] = True
    for members, share in members_out_of_share(images.targets, held, counted, fraction, least):
        hashes = hashes_of(images, names, purpose, members)
        theirs = np.arange(len(members)) if groups is None else groups[members]
        held[members] = within_share(held[members], hashes, theirs, counted[members], share)
    if groups is None:
        return held
    if config.group_by is not None and len(np.unique(groups)) == 1:
        raise InputError(
            f"data.split.group_by={config.group_by!r} puts all images into one group: choose another"
        )
    # A group of several classes is where most of its images are; in training where that is not clear.
    _, place, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    return (2 * np.bincount(place, weights=held) > sizes)[place]


def hashes_of(
    images: ImageDataset, names: NDArray[np.float64] | None, purpose: str, rows: RowSelection
) -> NDArray[np.float64]:
    """Return a number in 0 ... 1 for some images: by their names, or by the hashes that the source has."""
    if names is not None:
        return names[rows]
    hashes = images.hashes_at(rows)
    assert hashes is not None
    salt = int(name_hashes([""], purpose)[0] * 2.0**63)
    return mixed_bits(mixed_bits(hashes + np.uint64(salt))) / 2.0**64


def name_hashes(names: Sequence[str], purpose: str) -> NDArray[np.float64]:
    """Return a number in 0 ... 1 for each name, which depends on nothing else."""
    digests: list[bytes] = []
    for name in names:
        key = f"{purpose}\0{same_name(name)}".encode("utf-8", "surrogateescape")
        digests.append(hashlib.blake2b(key, digest_size=8).digest())
    return np.frombuffer(b"".join(digests), dtype=">u8") / 2.0**64


def slices(count: int) -> Iterator[slice]:
    """Yield the places 0 ... count - 1 in parts."""
    for first in range(0, count, ROWS):
        yield slice(first, min(first + ROWS, count))


def first_names(names: Sequence[str], groups: NDArray[np.int64]) -> list[str]:
    """Return for each image the name by which its group is held out: the shortest of its names, and of
    equally long ones the first, since the name of a copy is seldom shorter than that of its original."""
    first = dict[int, str]()
    for name, group in zip(names, groups.tolist(), strict=True):
        if group not in first or (len(name), name) < (len(first[group]), first[group]):
            first[group] = name
    return [first[group] for group in groups.tolist()]


HeldOutRange = tuple[int, int]  # how many images of a class are held out, at least and at most


def share_of(fraction: float, images: int, least: int) -> HeldOutRange:
    """Return how many of so many images of a class may be held out: at least half of their share, and less
    than twice of it; one of `least` images or more, of fewer none, and never all."""
    if images < least:
        return 0, 0
    low = math.ceil(fraction * images / 2)
    return min(low, images - 1), min(max(low, 1, math.ceil(2 * fraction * images - 1)), images - 1)


def members_out_of_share(
    targets: Targets, held: NDArray[np.bool_], counted: NDArray[np.bool_], fraction: float, least: int
) -> Iterator[tuple[Indices, HeldOutRange]]:
    """Yield the images of each class of which too few or too many are held out, and how many should be."""
    all_images = held_images = np.zeros(len(targets.classes) or 1, dtype=np.int64)
    for rows in slices(len(held)):
        strata = targets.strata(rows)
        all_images = all_images + np.bincount(strata[counted[rows]], minlength=len(all_images))
        some = held[rows] & counted[rows]
        held_images = held_images + np.bincount(strata[some], minlength=len(all_images))
    shares = [share_of(fraction, count, least) for count in all_images.tolist()]
    low, high = np.array(shares, dtype=np.int64).reshape(-1, 2).T
    wrong = (held_images < low) | (held_images > high)
    if not wrong.any():
        return
    parts: list[Indices] = []
    for rows in slices(len(held)):
        parts.append(np.flatnonzero(wrong[targets.strata(rows)]) + rows.start)
    members = np.concatenate(parts)
    strata = targets.strata(members)
    for each in members_of_classes(strata):
        yield members[each], shares[int(strata[each[0]])]


def within_share(
    held: NDArray[np.bool_],
    hashes: NDArray[np.float64],
    groups: NDArray[np.int64],
    counted: NDArray[np.bool_],
    share: HeldOutRange,
) -> NDArray[np.bool_]:
    """Return which images of a class are held out, group by group: too few are filled up with those of the
    lowest hashes, of too many those with the highest are given back."""
    least, most = share
    _, first, place = np.unique(groups, return_index=True, return_inverse=True)
    sizes = np.bincount(place, weights=counted).astype(np.int64)
    chosen, order = held[first].copy(), np.argsort(hashes[first], kind="stable")
    count = int(sizes[chosen].sum())
    for group in order[::-1].tolist():
        if chosen[group] and count > most:
            chosen[group] = False
            count -= int(sizes[group])
    # Large groups are taken only where there is nothing else.
    for limit in (most, int(counted.sum()) // 2):
        for group in order.tolist():
            if not chosen[group] and count < least and count + sizes[group] <= limit:
                chosen[group] = True
                count += int(sizes[group])
    return chosen[place]


def stored_parts(
    images: ImageDataset, targets: ClassTargets, fraction: float, config: DataConfig, part: str
) -> tuple[ImageDataset, ImageDataset | None]:
    """Return what `held_out_of` does, by hashes, of a large index: computed once and stored beside it, so
    that all processes of a machine share it."""
    assert images.cache
    # The name ends with the version of the rule by which images are split.
    folder = images.cache / f"{part}-{config.split_seed}-{fraction!r}-2"
    with made_by_one(folder):
        parts = load_parts(images, targets.classes, folder)
        if parts is None:
            held = lowest_hashes(images, fraction, config, part)
            # A cache that cannot be written stops nothing.
            with suppress(OSError), whole(folder) as temporary:
                temporary.mkdir(parents=True)
                write_part(targets, ~held, temporary / "kept")
                write_part(targets, held, temporary / "held_out")
            parts = load_parts(images, targets.classes, folder)
            parts = parts or [Subset(images, np.flatnonzero(rows)) for rows in (~held, held)]
    kept, held_out = parts
    return (kept, held_out) if len(held_out) else (images, None)


def load_parts(images: ImageDataset, classes: tuple[str, ...], folder: Path) -> list[Subset] | None:
    """Return what is kept and what is held out of some images, memory-mapped; None if it is not stored."""
    parts: list[Subset] = []
    try:
        for part in (folder / "kept", folder / "held_out"):
            numbers = np.load(part / "numbers.npy", mmap_mode="r")
            targets = ClassTargets(np.load(part / "targets.npy", mmap_mode="r"), classes)
            parts.append(Subset(images, numbers, targets).with_(cache=part))
    # An empty file, as after a power cut, is an EOFError.
    except (OSError, ValueError, EOFError):
        return None
    return parts


def write_part(targets: ClassTargets, chosen: NDArray[np.bool_], folder: Path) -> None:
    """Write the numbers of some images and their targets, a part at a time."""
    folder.mkdir()
    count, place = int(chosen.sum()), 0
    memory = partial(np.lib.format.open_memmap, mode="w+", shape=(count,))
    numbers = memory(folder / "numbers.npy", dtype=np.uint32)
    classes = memory(folder / "targets.npy", dtype=targets.numbers.dtype)
    for rows in slices(len(chosen)):
        found = np.flatnonzero(chosen[rows]) + rows.start
        numbers[place : place + len(found)] = found
        classes[place : place + len(found)] = targets.numbers[found]
        place += len(found)


# ---- What a run has recorded of its images

SPLIT = "split.csv"
SOME_DIGESTS = 20_000  # of a larger part: those whose names have the lowest hashes, so that it begins soon
MOST_LISTED = 20_000_000  # images
EXCLUDED = "excluded"  # the part of images that the user has left out


class SplitRow(NamedTuple):
    """An image of a run. part: train, validation, test or excluded. digest: "" where there is none."""

    path: str
    label: str
    part: str
    digest: str


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


def digests_of(images: ImageDataset) -> list[str]:
    """Return the digest of each image; of more than can be compared those of a part of them, "" for the
    others."""
    found = [""] * len(images)
    wanted = np.arange(len(images))
    if len(images) > MOST_EQUAL:
        hashes = name_hashes(images.all_keys(), "digest")
        wanted = np.sort(np.argsort(hashes)[:SOME_DIGESTS])
    for index, digest in zip(wanted.tolist(), images.fingerprints(wanted), strict=True):
        found[index] = digest
    return found


def read_split(file: Path) -> dict[str, SplitRow]:
    """Return the rows of a split.csv by path. Raises InputError."""
    try:
        with io.StringIO(read_regular(file).decode("utf-8", "surrogateescape"), newline="") as text:
            table = csv.reader(text)
            if tuple(next(table, ())) != SplitRow._fields:
                raise InputError(f"{file} does not begin with the columns {', '.join(SplitRow._fields)}")
            rows = dict[str, SplitRow]()
            for path, label, part, digest in table:
                # There are few labels and many rows, so the texts are shared.
                rows[path] = SplitRow(path, intern(label), intern(part), digest)
            return rows
    except (OSError, ValueError, csv.Error) as error:
        raise InputError(
            f"cannot read {file}: {getattr(error, 'strerror', error)}; pass a split.csv as a run wrote it"
        ) from None


def as_recorded(
    own: Mapping[str, ImageDataset], file: Path, part_of: Callable[[str, int], str] | None
) -> SplitParts:
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

    gone = dict(rows)  # rows whose names are in the data no more
    for path in chain.from_iterable(keys.values()):
        gone.pop(path, None)
    # Its digest recognizes an image of a new name; of equal images it is the one to train on.
    training_last = sorted(gone.values(), key=lambda row: row.part == "train")
    renamed = {row.digest: row for row in training_last if row.digest}
    renames = renamed_classes(own, keys, rows, renamed)
    own = {
        home: images.with_(targets=recorded_names(images.targets, renames)) for home, images in own.items()
    }
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
            if home != (found.part if found.part in own else "train"):
                seen["moved"].append(key)
                continue
            if found.path == key and found.digest and digest and found.digest != digest:
                seen["changed"].append(key)
            if found.label != label:
                seen["relabeled"].append(key)
            chosen[found.part].append(index)
    seen["gone"] = sorted(gone)
    names = ", ".join(f"{old}: {new}" for new, old in renames.items())
    if not chosen["train"]:
        raise InputError(f"none of the training images in {file} is in the data: is it this run's data?")
    parts = []
    for part, indices in chosen.items():
        images = own.get(part, own["train"]).subset(np.array(indices, dtype=np.int64))
        parts.append(reclassified(images, classes) if indices else None)
    train, validation, test = parts
    assert train is not None
    if part_of:
        seen["added"] = seen.pop("new")
    findings = list(train.findings)
    for kind, paths in seen.items():
        findings += finding(f"{kind} images", paths, severity="warning")
    findings += finding("renamed class", (), len(renames), names=names, severity="warning")
    return train.with_(findings=tuple(findings)), validation, test


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


def renamed_classes(
    own: Mapping[str, ImageDataset],
    keys: Mapping[str, list[str]],
    rows: Mapping[str, SplitRow],
    by_digest: Mapping[str, SplitRow],
) -> dict[str, str]:
    """Return the recorded names of classes that have another one now, by the name that they have now. The
    digests tell: most images of a class that is gone are recognized, and all of these have one new class.

    Args:
        keys: the names of the images, by part of the source.
        rows, by_digest: what the run has recorded, by name and of names that are gone by digest.
    """
    if not all(isinstance(images.targets, ClassTargets) for images in own.values()):
        return {}
    old_names = {row.label for row in rows.values()}
    now = {
        images.targets.classes[n] for images in own.values() for n in np.flatnonzero(images.targets.counts())
    }
    found: dict[str, Counter[str]] = {}  # of each new name those that its images had
    for home, images in own.items() if now - old_names and old_names - now else ():
        for index, (key, digest) in enumerate(zip(keys[home], digests_of(images), strict=True)):
            label = images.label(index)
            if label not in old_names and key not in rows and digest in by_digest:
                found.setdefault(label, Counter())[by_digest[digest].label] += 1
    counts = Counter(row.label for row in rows.values())
    renames: dict[str, str] = {}
    for new, names in found.items():
        old = min(names)
        if len(names) == 1 and old not in now and 2 * names[old] > counts[old]:
            renames[new] = old
    if len(set(renames.values())) < len(renames):
        return {}  # a class that was divided
    return renames


def recorded_names(targets: Targets, renames: Mapping[str, str]) -> Targets:
    """Return targets whose classes have the names that a run has recorded. renames: these, by the present
    ones."""
    if not renames:
        return targets
    names = [renames.get(name, name) for name in targets.classes]
    classes = tuple(sorted(names))
    return targets.with_classes(classes, np.array([classes.index(name) for name in names]))


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


def reclassified(images: ImageDataset, classes: tuple[str, ...]) -> ImageDataset:
    """Return images whose targets are numbered by other classes, among which theirs are."""
    if images.classes == classes:
        return images
    place = {name: number for number, name in enumerate(classes)}
    columns = np.array([place.get(name, -1) for name in images.classes])
    return images.with_(targets=images.targets.with_classes(classes, columns))


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


# ---- Folds

Folds = list[tuple[Indices, Indices]]  # of each: rows to fit on, and rows to ask about
FOLDS = 3


def folds_of(targets: Indices, groups: Indices | None = None, count: int = FOLDS) -> Folds:
    """Return folds with about as many images of every class; none where no class has two different images.

    Args:
        groups: of each image, as `ImageDataset.together` gives them: those of one group are in one fold.
            None: each is alone.
    """
    groups = np.arange(len(targets)) if groups is None else groups
    found = computed_folds(targets.astype(np.int64).tobytes(), groups.astype(np.int64).tobytes(), count)
    return [(rows.copy(), others.copy()) for rows, others in found]


@lru_cache(maxsize=8)  # several methods in turn are fitted to the same images, and ask for the same folds
def computed_folds(targets_bytes: bytes, groups_bytes: bytes, count: int) -> Folds:
    """Return the folds of `folds_of`: a second for 6,000 images of which few are in groups."""
    from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold

    targets, groups = np.frombuffer(targets_bytes, np.int64), np.frombuffer(groups_bytes, np.int64)
    pairs = np.unique(np.column_stack([targets, groups]), axis=0)  # classes with their groups
    most = int(np.bincount(pairs[:, 0]).max(initial=0))
    if most < 2:
        return []
    kind = StratifiedKFold if len(np.unique(groups)) == len(groups) else StratifiedGroupKFold
    splitter = kind(min(count, most), shuffle=True, random_state=0)
    # scikit-learn warns of a class with fewer images than there are folds.
    with warnings.catch_warnings(action="ignore"):
        found = [(rows, others) for rows, others in splitter.split(targets, targets, groups) if len(others)]
    return [pair for pair in found if len(np.unique(targets[pair[0]])) > 1]


def folds_without_classes(groups: Indices) -> Folds:
    """Return folds of images without classes; those of one group are in one fold. None of a single group."""
    names, place = np.unique(groups, return_inverse=True)
    parts = np.array_split(np.random.default_rng(0).permutation(len(names)), min(FOLDS, len(names)))
    asked = [np.isin(place, part) for part in parts]
    return [(np.flatnonzero(~rows), np.flatnonzero(rows)) for rows in asked if not rows.all()]
