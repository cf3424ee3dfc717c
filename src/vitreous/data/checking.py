"""What is wrong with a data set: findings, each with the pictures concerned and what to do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vitreous.data import duplicates
from vitreous.data.config import DataConfig
from vitreous.data.pictures import Indices, Splits
from vitreous.data.segmentation.folders import IMAGES, MASKS
from vitreous.data.sources import open_data
from vitreous.data.survey import Survey, survey

SHOWN = 100  # pictures named in a finding
IMBALANCE = 10  # times as many pictures in the largest class as in the smallest
FEW = 10  # pictures of a class
TINY = 0.25  # of the median shorter side
NEIGHBOURS = 10
AGREEING = 9  # of those, of one other class, make a label suspect
MOST_COMPARED = 20_000  # pictures; all pairs are compared


class Finding(NamedTuple):
    """kind: a word for programs. what: a sentence. pictures: their names, or pairs; the first hundred."""

    kind: str
    severity: Literal["error", "warning", "note"]
    what: str
    advice: str
    found: int
    pictures: tuple[Any, ...]

    def to_json(self) -> dict[str, Any]:
        return self._asdict()


class DataReport(NamedTuple):
    """Counts and findings of a data set."""

    pictures: dict[str, int]  # by split
    classes: dict[str, int]  # all splits together
    findings: tuple[Finding, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "pictures": self.pictures,
            "classes": self.classes,
            "findings": [finding.to_json() for finding in self.findings],
        }


def check_source(source: str, *, workers: int | None = None) -> DataReport:
    """Open DATA and look at every picture. A class folder without one, with which nothing can be trained, is
    a finding like others here."""
    empty: list[Path] = []
    splits = open_data(source, DataConfig(), empty=empty)
    report = check(splits, workers=workers)
    if looks_masked(splits.train.classes):
        advice = (
            "this looks like a folder of pictures with masks: check it, and train, with --task segmentation"
        )
        finding = Finding("masks", "warning", "classes are named images and masks", advice, 2, ())
        report = report._replace(findings=(finding, *report.findings))
    advice = "add some, or remove the folders: nothing can be trained with them"
    finding = Finding(
        "empty", "error", "class folders hold no picture", advice, len(empty), tuple(map(str, empty[:SHOWN]))
    )
    return report._replace(findings=(finding, *report.findings)) if empty else report


def looks_masked(classes: Sequence[str]) -> bool:
    """Whether what was taken for classes are the folders of pictures and of their masks."""
    first, second = set(classes) & set(IMAGES), set(classes) & set(MASKS)
    return len(classes) == 2 and bool(first and second)


def check(splits: Splits, *, workers: int | None = None) -> DataReport:
    """Look at every picture and say what is wrong."""
    seen = survey(splits, workers=workers)
    counts = seen.counts.tolist()
    parts = np.bincount(seen.parts, minlength=len(seen.part_names)).tolist()
    return DataReport(
        pictures=dict(zip(seen.part_names, parts, strict=True)),
        classes=dict(zip(seen.classes, counts, strict=True)),
        findings=tuple(finding for finding in findings(seen, counts) if finding.found),
    )


def findings(seen: Survey, counts: list[int]) -> Iterator[Finding]:
    """In the order of their weight; those that found 0 are none."""
    yield broken(seen)
    yield from alike(seen, "labels")
    yield from imbalance(seen, counts)
    yield from looks(seen)
    yield suspects(seen)


def broken(seen: Survey) -> Finding:
    """Files that cannot be read."""
    bad = [{"path": name, "reason": reason} for name, reason in seen.bad]
    return Finding(
        "broken", "error", "files cannot be read", "mend or remove them", len(bad), tuple(bad[:SHOWN])
    )


def alike(seen: Survey, labels: str) -> Iterator[Finding]:
    """Pictures that are there twice, in two splits, with two labels, or for nothing.

    Args:
        labels: what a picture's label is called.
    """
    groups = duplicates.exact(seen.digests)
    pairs = [pair for group in groups for pair in pairwise(group)]
    close = duplicates.near(seen.thumbs, seen.digests)
    yield from leaks(seen, pairs, close)
    yield from repeats(seen, pairs, close, labels)


def leaks(seen: Survey, same: list[tuple[int, int]], close: list[tuple[int, int]]) -> Iterator[Finding]:
    """The same picture in two splits: what is measured on it is not what will be seen."""
    for kind, pairs, how in (("leak", same, "the same"), ("near-leak", close, "nearly the same")):
        across = [pair for pair in pairs if seen.parts[pair[0]] != seen.parts[pair[1]]]
        yield pair_finding(
            seen,
            across,
            kind,
            "error" if kind == "leak" else "warning",
            f"pairs of pictures in two splits are {how}",
            "remove them from train: the accuracy would be too good",
        )


def repeats(
    seen: Survey, same: list[tuple[int, int]], close: list[tuple[int, int]], labels: str
) -> Iterator[Finding]:
    """The same picture twice in a split, or under two labels."""
    conflicting = [pair for pair in same if seen.labels[pair[0]] != seen.labels[pair[1]]]
    yield pair_finding(
        seen,
        conflicting,
        "conflict",
        "error",
        f"pairs of equal pictures have two {labels}",
        "keep the right one",
    )
    for kind, pairs, how in (("duplicate", same, "the same"), ("near-duplicate", close, "nearly the same")):
        within = [pair for pair in pairs if seen.parts[pair[0]] == seen.parts[pair[1]]]
        yield pair_finding(
            seen, within, kind, "note", f"pairs of pictures in one split are {how}", "keep one of each"
        )


def pair_finding(
    seen: Survey,
    pairs: list[tuple[int, int]],
    kind: str,
    severity: Literal["error", "warning", "note"],
    what: str,
    advice: str,
) -> Finding:
    """A finding about pairs."""
    named = tuple((seen.names[one], seen.names[two]) for one, two in pairs[:SHOWN])
    return Finding(kind, severity, what, advice, len(pairs), named)


def imbalance(seen: Survey, counts: list[int]) -> Iterator[Finding]:
    """Classes with few pictures, and much fewer than others."""
    advice = "add pictures, or join classes"
    if 2 * counts.count(1) > len(counts):
        advice = (
            "this looks like a manifest of texts, one for each picture, which --task text trains on; where "
            "labels are classes, add pictures"
        )
    few = [f"{name}: {count}" for name, count in zip(seen.classes, counts, strict=True) if count < FEW]
    yield Finding(
        "few",
        "warning",
        f"classes have fewer than {FEW} pictures",
        advice,
        len(few),
        tuple(few[:SHOWN]),
    )
    present = [count or max(counts) for count in counts]  # a class without pictures is told elsewhere
    largest, smallest = max(present), max(min(present), 1)
    yield Finding(
        "imbalance",
        "warning",
        f"times as many pictures in the largest class ({largest}) as in the smallest ({min(present)})",
        "set data.class_balance=true, and look at the recall of each class",
        round(largest / smallest) if largest > IMBALANCE * smallest else 0,
        (seen.classes[int(np.argmax(counts))], seen.classes[int(np.argmin(present))]),
    )


def looks(seen: Survey) -> Iterator[Finding]:
    """Pictures much smaller than the others, and grey ones among coloured ones."""
    shorter = seen.sizes.min(axis=1, initial=1 << 30)
    tiny = np.flatnonzero(shorter < TINY * np.median(shorter)) if len(shorter) else np.array([], dtype=int)
    yield Finding(
        "tiny",
        "warning",
        "pictures are less than a quarter as large as the median",
        "look whether they are thumbnails or errors",
        len(tiny),
        named(seen, tiny),
    )
    grey = np.flatnonzero(seen.grey) if seen.grey.mean() < 0.5 else np.array([], dtype=int)
    yield Finding(
        "grey",
        "note",
        "pictures among coloured ones are grey",
        "no harm, unless one class has most of them",
        len(grey),
        named(seen, grey),
    )


def suspects(seen: Survey) -> Finding:
    """Pictures that look like another class's: of the ten nearest by thumbnail, nine are of one other class.
    Coarse colours and shapes are all that is compared, so right labels are among them."""
    chosen = np.arange(len(seen.names))
    if len(chosen) > MOST_COMPARED:
        chosen = np.sort(np.random.default_rng(0).permutation(chosen)[:MOST_COMPARED])
    found = chosen[unlike_neighbours(seen.thumbs[chosen], seen.labels[chosen])]
    return Finding(
        "suspect-label",
        "note",
        "pictures look like another class's",
        "look at them: coarse colours and shapes are all that was compared",
        len(found),
        named(seen, found),
    )


def unlike_neighbours(thumbs: NDArray[np.uint8], labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Numbers of the pictures whose neighbours nearly all have one other label."""
    if len(labels) <= NEIGHBOURS:
        return np.array([], dtype=np.int64)
    features = thumbs.reshape(len(thumbs), -1).astype(np.float32)
    features -= features.mean(axis=1, keepdims=True)
    features /= np.linalg.norm(features, axis=1, keepdims=True) + 1e-6
    found = []
    for first in range(0, len(features), 1024):
        likeness = features[first : first + 1024] @ features.T
        rows = np.arange(len(likeness))
        likeness[rows, first + rows] = -np.inf
        nearest = np.argpartition(-likeness, NEIGHBOURS, axis=1)[:, :NEIGHBOURS]
        votes = labels[nearest]
        for row, around in zip(first + rows, votes, strict=True):
            most = np.bincount(around).argmax()
            if most != labels[row] and (around == most).sum() >= AGREEING:
                found.append(row)
    return np.array(found, dtype=np.int64)


def named(seen: Survey, indices: Indices) -> tuple[str, ...]:
    """The names of the first few."""
    return tuple(seen.names[index] for index in indices[:SHOWN])
