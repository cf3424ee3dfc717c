"""What is wrong with images and their labels: one examination, of which `train` and `doctor` see what is
known without decoding every image, and `data check` all of it, in one pass over every image
(`survey_images`)."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vitreous.data.dataset import ClassTargets, ImageDataset, Splits, members_of_classes, named_parts
from vitreous.data.findings import DataReport, Finding, Severity, finding, findings_of
from vitreous.data.held_out import EXCLUDE
from vitreous.data.likeness import (
    SIDE,
    THUMB,
    ImageHashes,
    Likeness,
    Numbered,
    Thumbnails,
    equal_groups,
    likeness_of,
)
from vitreous.data.loading import BadFiles
from vitreous.data.workers import in_threads
from vitreous.errors import InputError, Param, writing_to
from vitreous.extensions import task_of_folders
from vitreous.models.stored import BadImage
from vitreous.outside import local_path, looks_of

IMBALANCE = 10  # times as many images in the largest class as in the smallest
FEW = 10  # images of a class
OTHER_CLASSES = 0.4  # of the held-out part, in classes that the training set shows less often
LEAKED = 0.005  # of the held-out images
SMALL = 32  # pixels of the shorter side: smaller images that look alike need not be copies
TINY = 0.25  # of the median shorter side
NEIGHBORS = 10
AGREEING = 9  # of those, of one other class, make a label suspect
MOST_COMPARED = 20_000  # images; all pairs are compared
# Kinds of pairs of equal, or nearly equal, images, and how grave they are; a few leaks are a warning.
OF_PAIRS: dict[str, Severity] = {
    "leak": "error",
    "near-leak": "warning",
    "conflict": "error",
    "duplicate": "note",
    "near-duplicate": "note",
}
ImagePairs = Mapping[str, Sequence[tuple[int, int]]]  # of the numbers of images, by kind of finding


class Suspect(NamedTuple):
    """An image that looks like another class's: that class, and the images it is most like, nearest first."""

    image: int
    answer: int
    neighbors: tuple[int, ...]


class Evidence(NamedTuple):
    """What was seen of every image of a dataset."""

    splits: Splits
    survey: DataSurvey
    pairs: ImagePairs
    suspects: list[Suspect]


class Action(NamedTuple):
    """A row of the CSV that `train --exclude` takes: an image, what is to be done with it, and why."""

    path: str  # its name relative to the data
    action: str  # exclude, or keep where only a person can decide
    kind: str  # of finding
    label: str  # its class; `suggestion` the one that it looks like
    suggestion: str
    other: str  # the image that it equals, or is most like


def collect(splits: Splits, *, workers: int | None = None) -> Evidence:
    """Look at every image."""
    seen = survey_images(named_parts(*splits[:3]), workers=workers)
    pairs = image_pairs(seen.images, seen.likeness, seen.rows, small=is_small(splits))
    return Evidence(splits, seen, pairs, suspects(seen))


def report_of(evidence: Evidence) -> DataReport:
    """Say what is wrong."""
    splits, seen = evidence.splits, evidence.survey
    counts = class_counts(splits.train.classes, seen.images)
    return DataReport(tuple(data_findings(splits, evidence)), seen.counts, counts, tuple(seen.bad.reasons))


def data_findings(splits: Splits, evidence: Evidence | None = None) -> Iterator[Finding]:
    """Yield what is wrong with data: how they were opened, their labels, images that are equal or alike, and,
    where all were looked at, what only their pixels tell."""
    yield from findings_of(splits)
    classes, images = splits.train.classes, Numbered(named_parts(*splits[:3]))
    counts = class_counts(classes, evidence.survey.images if evidence else images)
    if len(classes) == 1:
        yield from finding("single class", name=classes[0])
    of_labels = list(label_findings(splits, counts)) if classes else []
    yield from of_labels
    if evidence:
        yield from image_findings(evidence.survey, "labels", evidence.pairs)
        unlike = [evidence.survey.images.name(each.image) for each in evidence.suspects]
        yield from finding("suspect-label", unlike, severity="note")
    else:
        pairs = image_pairs(images, *likeness_of(images), small=is_small(splits))
        yield from pair_findings(images, pairs, "labels")
    # Where each label is a text of its own, every class has few images.
    if not any(each.kind == "own labels" for each in of_labels):
        few = [f"{name}: {count}" for name, count in counts.items() if 0 < count < FEW]
        yield from finding("few", few, least=FEW, severity="warning")


def is_small(splits: Splits) -> bool:
    """Return whether images are too small to distinguish copies from others."""
    return min(splits.summary.height, splits.summary.width) < SMALL


def class_counts(classes: Sequence[str], images: Numbered) -> dict[str, int]:
    """Return how many images of all parts have each class."""
    counts = np.sum([part.targets.counts() for part in images.parts.values()], axis=0)
    return dict(zip(classes, counts.tolist(), strict=True))


def actions(evidence: Evidence) -> Iterator[Action]:
    """Yield what to do with which image. Of a pair in two parts the one to train on is excluded, of a pair in
    one part the second; of equal images with two labels both, until one is put right."""
    seen, classes = evidence.survey, evidence.splits.train.classes
    images, single = seen.images, isinstance(evidence.splits.train.targets, ClassTargets)

    def label(image: int) -> str:
        _, part, index = images.at(image)
        return part.label(index) if single else ""

    def action(image: int, other: int, what: str, kind: str) -> Action:
        return Action(images.key(image), what, kind, label(image), "", images.key(other))

    for name, reason in seen.bad.reasons.items():
        yield Action(seen.bad_keys.get(name, name), EXCLUDE, "broken", "", "", reason)
    for kind, pairs in evidence.pairs.items():
        for one, two in pairs:
            if kind == "conflict":
                yield action(one, two, EXCLUDE, kind)
                yield action(two, one, EXCLUDE, kind)
            elif "leak" in kind:
                yield action(one, two, EXCLUDE, kind)  # the part to train on comes first
            else:
                yield action(two, one, EXCLUDE if kind == "duplicate" else "keep", kind)
    for each in evidence.suspects:
        names = label(each.image), classes[each.answer]
        yield Action(images.key(each.image), "keep", "suspect-label", *names, images.key(each.neighbors[0]))


def quarantined(report: DataReport, source: object, folder: Path) -> DataReport:
    """Move the files that cannot be read out of a folder of images, to the same places below `folder`. Raises
    InputError: the data are not a folder of files, or `folder` is in it or cannot be written."""
    root = local_path(str(source)).absolute()
    if not root.is_dir() or any(root.glob("*.tar")):
        raise InputError(
            f"{Param('quarantine')} moves files out of a folder, which {source} is not: leave it out"
        )
    folder = local_path(folder).absolute()
    if root.resolve() == folder.resolve() or root.resolve() in folder.resolve().parents:
        raise InputError(
            f"{Param('quarantine')} {folder} is inside {source}, and would become part of the data: name "
            "another folder"
        )
    moves = dict[str, Path]()
    for name in report.unreadable:
        if not os.path.lexists(name):
            continue
        inside = Path(os.path.abspath(name)).relative_to(root)  # they are those that were found below it
        moves[name] = folder / inside
        if os.path.lexists(moves[name]):
            raise InputError(
                f"{moves[name]} is in quarantine already, and nothing is overwritten: name another folder"
            )
    with writing_to(folder, f"name another folder for {Param('quarantine')}"):
        for name, target in moves.items():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(name, target)
    return replace(report, moved=tuple(moves))


def known_findings(data: Iterable[object], *, labels: bool) -> list[Finding]:
    """Return what is known of data before a training begins on them, the gravest first.

    Args:
        data: begins with the images for training, validation and testing.
        labels: whether something is learned of each image, so that equal ones in two parts matter.
    """
    opened = tuple(data)
    found = findings_of(opened)
    named = zip(("train", "validation", "test"), opened, strict=False)
    parts = {name: part for name, part in named if isinstance(part, ImageDataset)}
    if labels and isinstance(data, Splits):
        found = list(data_findings(data))
    elif labels and "train" in parts:
        images = Numbered(parts)
        found += pair_findings(images, image_pairs(images, *likeness_of(images)), "masks")
    return sorted(found, key=lambda each: ("error", "warning", "note").index(each.severity))


LIST = "[]"  # several labels as Python writes a list: ['cat', 'dog']
JOINED = ",", ";", LIST  # how tables write several labels, besides our own |


def labels_in(name: str, separator: str) -> list[str]:
    """Return the labels that a class name is made of, if it is several in one."""
    if separator == LIST:
        inside = re.fullmatch(r"\s*\[(.*)\]\s*", name)
        return re.findall(r"""["']([^"']+)["']""", inside[1]) if inside else [name]
    return [part.strip() for part in name.split(separator)]


def label_findings(splits: Splits, counts: Mapping[str, int]) -> Iterator[Finding]:
    """Yield what the labels alone tell. counts: images of each class."""
    classes = splits.train.classes
    if task := task_of_folders(classes):
        yield from finding("other task", classes, classes=classes, task=task, severity="warning")
    single = [name for name, count in counts.items() if count == 1]
    if 2 * len(single) > len(counts):
        yield from finding("own labels", single, classes=len(counts), severity="warning")
    yield from joined_labels(classes)
    alike = defaultdict[str, list[str]](list)  # names that differ in case, spaces or form alone
    for name in classes:
        alike[looks_of(name)].append(name)
    for group in alike.values():
        if len(group) > 1:
            names = " = ".join(map(repr, group))
            yield from finding("alike", [tuple(group)], len(group), names=names, severity="warning")
    largest, smallest = max(counts, key=counts.__getitem__), min(counts, key=counts.__getitem__)
    most, fewest = counts[largest], counts[smallest]
    # A class that is hardly ever shown is hardly ever learned.
    if most > IMBALANCE * fewest:
        yield from finding(
            "imbalance",
            [largest, smallest],
            round(most / max(fewest, 1)),
            severity="warning",
            most=most,
            fewest=fewest,
            largest=largest,
            smallest=smallest,
        )
    if isinstance(splits.train.targets, ClassTargets):
        yield from classes_of_parts(splits)


def joined_labels(classes: Sequence[str]) -> Iterator[Finding]:
    """Yield class names that are several labels in one: the task may have several labels."""
    for separator in JOINED:
        joined = [name for name in classes if len(labels_in(name, separator)) > 1]
        singles = {part for name in classes for part in labels_in(name, separator) if name not in joined}
        counts_of = Counter(part for name in classes for part in set(labels_in(name, separator)))
        repeated = {part for part, count in counts_of.items() if count > 1}
        several = []
        for name in joined:
            parts = set(labels_in(name, separator))
            # A comma may also be in one name ("salt, sea"); a semicolon seldom is, and a list never.
            if separator == ",":
                is_several = parts <= repeated and not singles.isdisjoint(parts)
            else:
                is_several = separator == LIST or not repeated.isdisjoint(parts)
            if is_several:
                several.append(name)
        if several and separator == LIST:
            yield from finding("joined.list", several, name=several[0], severity="warning")
        elif several:
            yield from finding(
                "joined.separated", several, separator=separator, name=several[0], severity="warning"
            )


def classes_of_parts(splits: Splits) -> Iterator[Finding]:
    """Yield class numbers that there are not, and parts whose classes are others than those of training."""
    classes, shown = splits.train.classes, splits.train.targets.counts()
    for name, part in named_parts(*splits[:3]).items():
        numbers = part.targets.strata()
        low, high = int(numbers.min()), int(numbers.max())
        if low < 0 or high >= len(classes):
            yield from finding("labels", part=name, low=low, high=high, classes=len(classes))
        # Whole classes on one side, as a split of a list that was sorted by class leaves them.
        held = part.targets.counts()
        ours, theirs = shown / max(shown.sum(), 1), held / max(held.sum(), 1)
        distance = float(np.abs(ours - theirs).sum()) / 2
        unseen = [classes[number] for number in np.flatnonzero((theirs > 0) & (ours == 0))]
        if unseen or distance > OTHER_CLASSES:
            yield from finding("split", unseen, 1, share=distance, part=name, unseen=unseen[:5])


def image_pairs(
    images: Numbered, likeness: Likeness, rows: NDArray[np.int64], *, small: bool = False
) -> ImagePairs:
    """Return the pairs of images that are the same, or nearly, by kind of finding. Each image of a group is
    paired with the first one of the group's last part, so that whichever leaks into that part is in a pair.

    Args:
        rows: the numbers of the images in `likeness`.
        small: whether only equal ones can be distinguished from others.
    """
    part_of = np.repeat(np.arange(len(images.parts)), np.diff(images.starts))
    first_of = np.arange(len(images))  # of each image, the one of its equals that is compared with others

    def paired(group: Sequence[int]) -> Iterator[tuple[int, int]]:
        first = max(group, key=lambda image: int(part_of[image]), default=-1)
        for image in group:
            if image != first:
                yield min(first, image), max(first, image)

    def label(image: int) -> object:
        _, part, index = images.at(image)
        targets = part.targets
        if isinstance(targets, ClassTargets):
            return targets.numbers[index]  # which may be that of no class
        return targets.text(index)

    pairs: dict[str, list[tuple[int, int]]] = {kind: [] for kind in OF_PAIRS}
    for group in equal_groups([likeness.contents[row] for row in rows.tolist()]):
        for one, two in paired(group):
            same_part = part_of[one] == part_of[two]
            same_label = label(one) == label(two)
            if not same_part:
                pairs["leak"].append((one, two))
            if not same_label:
                pairs["conflict"].append((one, two))
            if same_part and same_label:
                pairs["duplicate"].append((one, two))
        first_of[group] = max(group, key=lambda image: int(part_of[image]))
    if small:
        return pairs
    alone = np.flatnonzero(first_of == np.arange(len(images)))
    for members in members_of_classes(likeness.copies[rows][alone]):
        for one, two in paired(alone[members].tolist()):
            pairs["near-duplicate" if part_of[one] == part_of[two] else "near-leak"].append((one, two))
    return pairs


def pair_findings(images: Numbered, of_kind: ImagePairs, labels: str) -> Iterator[Finding]:
    """Yield what pairs of equal, or nearly equal, images mean. labels: what an image's label is called."""
    for kind, pairs in of_kind.items():
        of_parts = defaultdict[tuple[str, ...], list[tuple[str, str]]](list)
        for one, two in sorted(pairs):
            between: tuple[str, ...] = ()
            if "leak" in kind:
                between = images.at(one)[0], images.at(two)[0]
            of_parts[between].append((images.name(one), images.name(two)))
        for between, names in of_parts.items():
            few = kind == "leak" and len(names) <= LEAKED * len(images.parts[between[-1]])
            severity = "warning" if few else OF_PAIRS[kind]
            yield from finding(kind, names, severity=severity, labels=labels, between=", ".join(between))


def image_findings(seen: DataSurvey, labels: str, pairs: ImagePairs | None = None) -> Iterator[Finding]:
    """Yield what the images tell: those that are broken, cut off, there twice, much smaller than the others,
    or gray among colored ones.

    Args:
        labels: what an image's label is called.
        pairs: what `image_pairs` has found, if it has looked already.
    """
    yield from finding("broken", [{"path": name, "reason": reason} for name, reason in seen.bad])
    yield from finding("damaged", sorted(seen.bad.damaged), severity="warning")
    if not len(seen.images):
        return
    if pairs is None:
        small = bool(np.median(seen.sizes.min(axis=1)) < SMALL)
        pairs = image_pairs(seen.images, seen.likeness, seen.rows, small=small)
    yield from pair_findings(seen.images, pairs, labels)

    def named(chosen: NDArray[np.bool_]) -> list[str]:
        return [seen.images.name(number) for number in np.flatnonzero(chosen).tolist()]

    shorter = seen.sizes.min(axis=1)
    yield from finding("tiny", named(shorter < TINY * np.median(shorter)), severity="warning")
    if seen.gray.mean() < 0.5:
        yield from finding("gray", named(seen.gray), severity="note")
    else:
        yield from finding("colored", named(~seen.gray), severity="note")


def suspects(seen: DataSurvey) -> list[Suspect]:
    """Return images that look like another class's: of the ten nearest by thumbnail, nine are of one other
    class. Coarse colors and shapes are all that is compared, so right labels are among them."""
    chosen, labels = np.arange(len(seen.images)), seen.images.strata()
    if len(chosen) > MOST_COMPARED:
        chosen = np.sort(np.random.default_rng(0).permutation(chosen)[:MOST_COMPARED])
    pixels = seen.thumbs[chosen].reshape(len(chosen), -1).astype(np.float32)
    pixels -= pixels.mean(axis=1, keepdims=True)  # brightness is not compared
    found: list[Suspect] = []
    for row, answer, neighbors in unlike_neighbors(pixels, labels[chosen], AGREEING):
        nearest = tuple(chosen[neighbors].tolist())
        found.append(Suspect(int(chosen[row]), answer, nearest))
    return found


def unlike_neighbors(
    features: NDArray[np.float32], labels: NDArray[np.int64], agreeing: int
) -> Iterator[tuple[int, int, NDArray[np.int64]]]:
    """Yield the numbers of the images of whose ten neighbors `agreeing` have one other label, that label, and
    the neighbors, nearest first.

    Args:
        features: of which the directions are compared, (N, D).
    """
    if len(labels) <= NEIGHBORS:
        return
    features = features / (np.linalg.norm(features, axis=1, keepdims=True) + 1e-6)
    for first in range(0, len(features), 1024):
        similarity = features[first : first + 1024] @ features.T
        rows = np.arange(len(similarity))
        similarity[rows, first + rows] = -np.inf
        nearest = np.argpartition(-similarity, NEIGHBORS, axis=1)[:, :NEIGHBORS]
        for row, neighbors in zip(rows, nearest, strict=True):
            votes = labels[neighbors]
            most = int(np.bincount(votes).argmax())
            if most != labels[first + row] and (votes == most).sum() >= agreeing:
                order = np.argsort(-similarity[row, neighbors], kind="stable")
                yield int(first + row), most, neighbors[order]


class SurveyedImage(NamedTuple):
    """What one image tells."""

    look: Thumbnails
    digest: str  # of the upright pixels
    size: tuple[int, int]  # (H, W)
    gray: bool
    damage: str | None


class DataSurvey(NamedTuple):
    """What was seen of all images that can be read, in columns of N."""

    images: Numbered
    likeness: Likeness  # which of them are equal or alike
    rows: NDArray[np.int64]  # the numbers that they have there
    thumbs: NDArray[np.uint8]  # (N, THUMB, THUMB, 3)
    sizes: NDArray[np.int64]  # (N, 2)
    gray: NDArray[np.bool_]
    bad: BadFiles  # those that cannot be read; it knows what is damaged, too
    bad_keys: dict[str, str]  # the names of those relative to the source, by name

    @property
    def counts(self) -> dict[str, int]:
        """How many images each part has."""
        return {name: len(part) for name, part in self.images.parts.items()}


def survey_images(parts: Mapping[str, ImageDataset], *, workers: int | None) -> DataSurvey:
    """Decode every image once, in threads. Where images were not compared when they were opened, since they
    would be fetched or are too many, they are now."""
    likeness, rows = likeness_of(images := Numbered(parts))
    bad, bad_keys = BadFiles(), dict[str, str]()
    chosen: list[int] = []
    facts: list[SurveyedImage] = []
    examined = in_threads(partial(examine, images, likeness.complete), range(len(images)), workers=workers)
    for number, seen in enumerate(examined):
        if isinstance(seen, BadImage):
            bad.add(seen)
            bad_keys[seen.name] = images.key(number)
            continue
        if seen.damage is not None:
            bad.damaged[images.name(number)] = seen.damage
        chosen.append(number)
        facts.append(seen)
    good = np.array(chosen, dtype=np.int64)
    readable = dict[str, ImageDataset]()
    for (name, part), start in zip(parts.items(), images.starts.tolist(), strict=False):
        readable[name] = part.subset(good[(good >= start) & (good < start + len(part))] - start)
    thumbs = np.array([each.look.color for each in facts], dtype=np.uint8).reshape(-1, THUMB, THUMB, 3)
    rows = rows[good]
    if not likeness.complete:
        gray = np.array([each.look.gray for each in facts], dtype=np.uint8).reshape(-1, SIDE, SIDE)
        likeness = Likeness(readable, seen=ImageHashes([each.digest for each in facts], gray, thumbs))
        rows = np.arange(len(good))
    return DataSurvey(
        images=Numbered(readable),
        likeness=likeness,
        rows=rows,
        thumbs=thumbs,
        sizes=np.array([each.size for each in facts], dtype=np.int64).reshape(-1, 2),
        gray=np.array([each.gray for each in facts], dtype=bool),
        bad=bad,
        bad_keys=bad_keys,
    )


def examine(images: Numbered, compared: bool, number: int) -> SurveyedImage | BadImage:
    """Return what one image tells, or why it cannot be read. compared: whether its digest is known."""
    _, part, index = images.at(number)
    try:
        encoded = part.opened(index)
        seen = encoded.bands in (1, 3)  # of other bands those that can be seen
        pixels = encoded.array() if seen else np.asarray(encoded.preview().convert("RGB"))
    except BadImage as bad:
        return bad
    red, green, blue = pixels[..., 0], pixels[..., 1], pixels[..., 2]
    content = b"" if compared else pixels.tobytes() + bytes(str(pixels.shape), "ascii")
    return SurveyedImage(
        look=Thumbnails.of(pixels),
        digest=hashlib.blake2b(content, digest_size=8).hexdigest(),
        size=encoded.size,
        gray=bool((red == green).all() and (green == blue).all()),
        damage=encoded.damage,
    )
