"""split.csv, which a run writes when it begins and which gives the same parts again; and images left out."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from os.path import normpath
from pathlib import Path
from sys import intern
from typing import NamedTuple

import numpy as np

from vitreous.data.dataset import ImageDataset, Indices, Parts, name_hashes
from vitreous.data.decoding import BadImage
from vitreous.data.findings import Finding, finding
from vitreous.data.targets import Targets
from vitreous.data.workers import in_threads
from vitreous.errors import InputError
from vitreous.languages import speaking
from vitreous.languages.terminal import said
from vitreous.outside import read_regular, same_name
from vitreous.whole_files import write_csv

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

    def of_image(index: int) -> str:
        with suppress(BadImage):  # counted and named when it is loaded
            return images.digest(index)
        return ""

    def some(indices: Indices) -> list[str]:
        return list(map(of_image, indices.tolist()))

    groups = [wanted[first : first + TOGETHER] for first in range(0, len(wanted), TOGETHER)]
    for indices, digests in zip(groups, in_threads(some, groups, workers=LISTERS), strict=True):
        for index, digest in zip(indices.tolist(), digests, strict=True):
            found[index] = digest
    return found


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
    write_csv(file, SplitRow._fields, rows_of_parts(parts), new=True)


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
