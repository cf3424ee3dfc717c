"""Look at every image of a dataset and its labels: what is wrong with them."""

from __future__ import annotations

import os
import re
import shutil
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vitreous.data.dataset import ClassTargets, ImageDataset, Splits, named_parts
from vitreous.data.examinations import DataReport
from vitreous.data.findings import Finding, Severity, finding
from vitreous.data.held_out import EXCLUDE, findings_of
from vitreous.data.survey import (
    DataSurvey,
    exact_duplicates,
    near_duplicates,
    survey_images,
)
from vitreous.errors import InputError, writing_to
from vitreous.extensions import task_of_folders, task_of_texts
from vitreous.models.stored import BadImage
from vitreous.outside import local_path, looks

IMBALANCE = 10  # times as many images in the largest class as in the smallest
FEW = 10  # images of a class
OTHER_CLASSES = 0.4  # of the held-out part, in classes that the training part shows less often
LEAKED = 0.005  # of the held-out images
LOOKED_AT = 20_000  # images of a part, for the leak
TINY = 0.25  # of the median shorter side
NEIGHBORS = 10
AGREEING = 9  # of those, of one other class, make a label suspect
MOST_COMPARED = 20_000  # images; all pairs are compared
# Kinds of pairs of equal, or nearly equal, images.
OF_PAIRS: dict[str, Severity] = {
    "leak": "error",
    "near-leak": "warning",
    "conflict": "error",
    "duplicate": "note",
    "near-duplicate": "note",
}


class Suspect(NamedTuple):
    """An image that looks like another class's: that class, and the images it is most like, nearest first."""

    image: int
    answer: int
    neighbors: tuple[int, ...]


class Evidence(NamedTuple):
    """What was seen of every image of a dataset."""

    splits: Splits
    survey: DataSurvey
    pairs: Mapping[str, list[tuple[int, int]]]  # of equal or nearly equal images, by kind of finding
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
    return Evidence(splits, seen, image_pairs(seen), suspects(seen))


def report_of(evidence: Evidence) -> DataReport:
    """Say what is wrong."""
    splits, seen = evidence.splits, evidence.survey
    counts = dict(zip(splits.train.classes, seen.counts.tolist(), strict=True))
    found = [*findings_of(splits), *label_findings(splits, counts)]
    if len(counts) == 1:
        found += finding("single class", name=splits.train.classes[0])
    few = [f"{name}: {count}" for name, count in counts.items() if 0 < count < FEW]
    if any(each.kind == "own labels" for each in found):
        few = []  # each text is a class of its own
    findings = [
        *found,
        *image_findings(seen, "labels", evidence.pairs),
        *finding("few", few, least=FEW, severity="warning"),
        *finding(
            "suspect-label",
            seen.named(np.array([each.image for each in evidence.suspects], dtype=int)),
            severity="note",
        ),
    ]
    return DataReport(tuple(findings), seen.images, counts, tuple(seen.bad.reasons))


def actions(evidence: Evidence) -> Iterator[Action]:
    """Yield what to do with which image. Of a pair in two parts the one to train on is excluded, of a pair in
    one part the second; of equal images with two labels both, until one is put right."""
    seen, classes = evidence.survey, evidence.splits.train.classes
    single = isinstance(evidence.splits.train.targets, ClassTargets)

    def label(image: int) -> str:
        return classes[seen.labels[image]] if single else ""

    def action(image: int, other: int, what: str, kind: str) -> Action:
        return Action(seen.keys[image], what, kind, label(image), "", seen.keys[other])

    for name, reason in seen.bad.reasons.items():
        yield Action(seen.bad_keys.get(name, name), EXCLUDE, "broken", "", "", reason)
    for kind, pairs in evidence.pairs.items():
        for one, two in pairs:
            if kind == "conflict":
                yield action(one, two, EXCLUDE, kind)
                yield action(two, one, EXCLUDE, kind)
            elif "leak" in kind:
                trained, held = sorted((one, two), key=lambda image: int(seen.parts[image]))
                yield action(trained, held, EXCLUDE, kind)
            else:
                yield action(two, one, EXCLUDE if kind == "duplicate" else "keep", kind)
    for each in evidence.suspects:
        names = label(each.image), classes[each.answer]
        yield Action(seen.keys[each.image], "keep", "suspect-label", *names, seen.keys[each.neighbors[0]])


def quarantined(report: DataReport, source: object, folder: Path) -> DataReport:
    """Move the files that cannot be read out of a folder of images, to the same places below `folder`. Raises
    InputError: the data are not a folder of files, or `folder` is in it or cannot be written."""
    root = local_path(str(source)).absolute()
    if not root.is_dir() or any(root.glob("*.tar")):
        raise InputError(f"`quarantine` moves files out of a folder, which {source} is not: leave it out")
    folder = local_path(folder).absolute()
    if root.resolve() == folder.resolve() or root.resolve() in folder.resolve().parents:
        raise InputError(f"`quarantine` {folder} is in {source}, where it would be data: name another folder")
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
    with writing_to(folder, "name another folder for `quarantine`"):
        for name, target in moves.items():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(name, target)
    return replace(report, moved=tuple(moves))


def data_findings(splits: Splits) -> Iterator[Finding]:
    """Yield what can be known without decoding the images: labels, a single class, equal files in two parts
    or with two labels."""
    yield from findings_of(splits)
    classes = splits.train.classes
    if len(classes) == 1:
        yield from finding("single class", name=classes[0])
    elif classes:
        shown = splits.train.targets.counts()
        yield from label_findings(splits, dict(zip(classes, shown.tolist(), strict=True)))
    parts = named_parts(*splits[:3])
    known: dict[str, dict[str, int]] = {}  # of each part the images by their digests
    for name, part in parts.items():
        known[name] = {digest: index for index, digest in digests(part)}
    conflicts: list[tuple[str, str]] = []
    for name, part in parts.items():
        for other in list(parts)[list(parts).index(name) + 1 :]:
            held, same = parts[other], known[name].keys() & known[other].keys()
            pairs = sorted((known[name][digest], known[other][digest]) for digest in same)
            names = [(part.name(one), held.name(two)) for one, two in pairs]
            spoils = len(pairs) > LEAKED * min(len(held), LOOKED_AT)
            severity: Severity = "error" if spoils else "warning"
            yield from finding("leak", names, severity=severity, between=f"{name}, {other}")
        labels = dict[str, int]()  # the first image of each digest
        for index, digest in digests(part):
            first = labels.setdefault(digest, index)
            if classes and first != index and differently_labeled(part, first, index):
                conflicts.append((part.name(first), part.name(index)))
    yield from finding("conflict", conflicts, labels="labels")


def differently_labeled(images: ImageDataset, one: int, two: int) -> bool:
    """Return whether two images have different labels; class numbers may be out of range."""
    targets = images.targets
    if isinstance(targets, ClassTargets):
        return bool(targets.numbers[one] != targets.numbers[two])
    return targets.text(one) != targets.text(two)


def known_findings(data: Sequence[object], *, labeled: bool) -> list[Finding]:
    """Return what a training knows of its data before its first step, the gravest first. labeled: whether it
    learns labels of images."""
    found = findings_of(data)
    if labeled and isinstance(data, Splits):
        found = list(data_findings(data))
    return sorted(found, key=lambda each: ("error", "warning", "note").index(each.severity))


def digests(images: ImageDataset) -> Iterator[tuple[int, str]]:
    """Yield the number and the digest of each image that has one."""
    for index in range(min(len(images), LOOKED_AT)):
        with suppress(BadImage):  # counted and named by the loader
            digest = images.digest(index)
            if digest:
                yield index, digest


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
        yield from finding(
            "own labels", single, classes=len(counts), task=task_of_texts(), severity="warning"
        )
    for separator in JOINED:
        joined = [name for name in classes if len(labels_in(name, separator)) > 1]
        singles = {part for name in classes for part in labels_in(name, separator) if name not in joined}
        several = [name for name in joined if set(labels_in(name, separator)) <= singles]
        if not several:
            continue
        if separator == LIST:
            yield from finding("joined.list", several, name=several[0], severity="warning")
        else:
            yield from finding(
                "joined.separated", several, separator=separator, name=several[0], severity="warning"
            )
    alike = defaultdict[str, list[str]](list)  # names that differ in case, spaces or form alone
    for name in classes:
        alike[looks(name)].append(name)
    for group in alike.values():
        if len(group) > 1:
            names = " = ".join(map(repr, group))
            yield from finding("alike", [tuple(group)], len(group), names=names, severity="warning")
    yield from imbalance(counts)
    if not isinstance(splits.train.targets, ClassTargets):
        return
    for name, part in named_parts(*splits[:3]).items():
        numbers = part.targets.strata()
        low, high = int(numbers.min()), int(numbers.max())
        if low < 0 or high >= len(classes):
            yield from finding("labels", part=name, low=low, high=high, classes=len(classes))
        # Whole classes on one side, as a split of a list that was sorted by class leaves them.
        shown, held = splits.train.targets.counts(), part.targets.counts()
        ours, theirs = shown / max(shown.sum(), 1), held / max(held.sum(), 1)
        distance = float(np.abs(ours - theirs).sum()) / 2
        unseen = [splits.train.classes[number] for number in np.flatnonzero((theirs > 0) & (ours == 0))]
        if unseen or distance > OTHER_CLASSES:
            yield from finding("split", unseen, 1, share=distance, part=name, unseen=unseen[:5])


def imbalance(counts: Mapping[str, int]) -> Iterator[Finding]:
    """Yield that a class is hardly ever shown, and so hardly ever learned."""
    largest, smallest = max(counts, key=counts.__getitem__), min(counts, key=counts.__getitem__)
    most, fewest = counts[largest], counts[smallest]
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


def image_pairs(seen: DataSurvey) -> dict[str, list[tuple[int, int]]]:
    """Return the pairs of images that are the same, or nearly, by kind of finding. Of equal images each is
    paired with the first one of their last part, so that whichever leaks into that part is in a pair."""
    same = list[tuple[int, int]]()
    for group in exact_duplicates(seen.digests):
        first = max(group, key=lambda image: int(seen.parts[image]))
        same += [(min(first, image), max(first, image)) for image in group if image != first]
    close = near_duplicates(seen.thumbs, seen.digests) if seen.names else []

    pairs: dict[str, list[tuple[int, int]]] = {kind: [] for kind in OF_PAIRS}
    for one, two in same:
        one_part = seen.parts[one] == seen.parts[two]
        one_label = seen.labels[one] == seen.labels[two]
        if not one_part:
            pairs["leak"].append((one, two))
        if not one_label:
            pairs["conflict"].append((one, two))
        if one_part and one_label:
            pairs["duplicate"].append((one, two))
    for one, two in close:
        one_part = seen.parts[one] == seen.parts[two]
        pairs["near-duplicate" if one_part else "near-leak"].append((one, two))
    return pairs


def image_findings(
    seen: DataSurvey, labels: str, of_kind: Mapping[str, list[tuple[int, int]]] | None = None
) -> Iterator[Finding]:
    """Yield what the images tell: those that are broken, cut off, there twice, much smaller than the others,
    or gray among colored ones.

    Args:
        labels: what an image's label is called.
        of_kind: what `image_pairs` has found, if it has looked already.
    """
    yield from finding("broken", [{"path": name, "reason": reason} for name, reason in seen.bad])
    yield from finding("damaged", sorted(seen.bad.damaged), severity="warning")
    if not seen.names:
        return
    for kind, pairs in (image_pairs(seen) if of_kind is None else of_kind).items():
        of_parts = defaultdict[str, list[tuple[str, str]]](list)
        for one, two in pairs:
            between = {list(seen.images)[seen.parts[one]]: None, list(seen.images)[seen.parts[two]]: None}
            where = ", ".join(between) if "leak" in kind else ""
            of_parts[where].append((seen.names[one], seen.names[two]))
        for where, names in of_parts.items():
            yield from finding(kind, names, severity=OF_PAIRS[kind], labels=labels, between=where)
    shorter = seen.sizes.min(axis=1)
    yield from finding(
        "tiny", seen.named(np.flatnonzero(shorter < TINY * np.median(shorter))), severity="warning"
    )
    if seen.gray.mean() < 0.5:
        yield from finding("gray", seen.named(np.flatnonzero(seen.gray)), severity="note")
    else:
        yield from finding("colored", seen.named(np.flatnonzero(~seen.gray)), severity="note")


def suspects(seen: DataSurvey) -> list[Suspect]:
    """Return images that look like another class's: of the ten nearest by thumbnail, nine are of one other
    class. Coarse colors and shapes are all that is compared, so right labels are among them."""
    chosen = np.arange(len(seen.names))
    if len(chosen) > MOST_COMPARED:
        chosen = np.sort(np.random.default_rng(0).permutation(chosen)[:MOST_COMPARED])
    pixels = seen.thumbs[chosen].reshape(len(chosen), -1).astype(np.float32)
    pixels -= pixels.mean(axis=1, keepdims=True)  # brightness is not compared
    found: list[Suspect] = []
    for row, answer, neighbors in unlike_neighbors(pixels, seen.labels[chosen], AGREEING):
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
