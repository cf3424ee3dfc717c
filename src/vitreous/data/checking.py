"""What is wrong with a dataset: findings, each with the images concerned and what to do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vitreous.data.config import DataConfig
from vitreous.data.dataset import Indices, Splits
from vitreous.data.segmentation.folders import IMAGES, MASKS
from vitreous.data.sources import open_data
from vitreous.data.survey import Survey, exact_duplicates, near_duplicates, survey
from vitreous.results import Result

SHOWN = 100  # images named in a finding
IMBALANCE = 10  # times as many images in the largest class as in the smallest
FEW = 10  # images of a class
TINY = 0.25  # of the median shorter side
NEIGHBORS = 10
AGREEING = 9  # of those, of one other class, make a label suspect
MOST_COMPARED = 20_000  # images; all pairs are compared


class Finding(NamedTuple):
    """kind: a word for programs. what: a sentence. images: their names, or pairs; the first hundred."""

    kind: str
    severity: Literal["error", "warning", "note"]
    what: str
    advice: str
    found: int
    images: tuple[Any, ...]

    def to_json(self) -> dict[str, Any]:
        return self._asdict()


@dataclass(frozen=True)
class DataReport(Result):
    """Counts and findings of a dataset."""

    images: dict[str, int]  # by split
    classes: dict[str, int]  # all splits together
    findings: tuple[Finding, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "images": self.images,
            "classes": self.classes,
            "findings": [finding.to_json() for finding in self.findings],
        }

    def table(self) -> list[dict[str, Any]]:
        """Return one row for each finding."""
        return [
            {"severity": each.severity, "found": each.found, "what": each.what, "advice": each.advice}
            for each in self.findings
        ]

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings that spoil a training or its accuracy."""
        return tuple(each for each in self.findings if each.severity == "error")


def check_source(source: Any, *, workers: int | None = None) -> DataReport:
    """Open DATA and look at every image. A class folder without one, with which nothing can be trained, is
    a finding like others here."""
    empty: list[Path] = []
    splits = open_data(source, DataConfig(), empty=empty)
    report = check(splits, workers=workers)
    if looks_masked(splits.train.classes):
        advice = (
            "this looks like a folder of images with masks: check it, and train, with --task segmentation"
        )
        finding = Finding("masks", "warning", "classes are named images and masks", advice, 2, ())
        report = replace(report, findings=(finding, *report.findings))
    advice = "add some, or remove the folders: nothing can be trained with them"
    finding = Finding(
        "empty", "error", "class folders hold no image", advice, len(empty), tuple(map(str, empty[:SHOWN]))
    )
    return replace(report, findings=(finding, *report.findings)) if empty else report


def looks_masked(classes: Sequence[str]) -> bool:
    """Whether what was taken for classes are the folders of images and of their masks."""
    first, second = set(classes) & set(IMAGES), set(classes) & set(MASKS)
    return len(classes) == 2 and bool(first and second)


def check(splits: Splits, *, workers: int | None = None) -> DataReport:
    """Look at every image and say what is wrong."""
    seen = survey(splits, workers=workers)
    counts = seen.counts.tolist()
    parts = np.bincount(seen.parts, minlength=len(seen.part_names)).tolist()
    return DataReport(
        images=dict(zip(seen.part_names, parts, strict=True)),
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
        "broken", "error", "files cannot be read", "fix or remove them", len(bad), tuple(bad[:SHOWN])
    )


def alike(seen: Survey, labels: str) -> Iterator[Finding]:
    """Images that are there twice, in two splits, with two labels, or for nothing.

    Args:
        labels: what an image's label is called.
    """
    groups = exact_duplicates(seen.digests)
    pairs = [pair for group in groups for pair in pairwise(group)]
    close = near_duplicates(seen.thumbs, seen.digests)
    yield from leaks(seen, pairs, close)
    yield from repeats(seen, pairs, close, labels)


def leaks(seen: Survey, same: list[tuple[int, int]], close: list[tuple[int, int]]) -> Iterator[Finding]:
    """The same image in two splits: what is measured on it is not what will be seen."""
    for kind, pairs, how in (("leak", same, "the same"), ("near-leak", close, "nearly the same")):
        across = [pair for pair in pairs if seen.parts[pair[0]] != seen.parts[pair[1]]]
        yield pair_finding(
            seen,
            across,
            kind,
            "error" if kind == "leak" else "warning",
            f"pairs of images in two splits are {how}",
            "remove them from train: the accuracy would be too good",
        )


def repeats(
    seen: Survey, same: list[tuple[int, int]], close: list[tuple[int, int]], labels: str
) -> Iterator[Finding]:
    """The same image twice in a split, or under two labels."""
    conflicting = [pair for pair in same if seen.labels[pair[0]] != seen.labels[pair[1]]]
    yield pair_finding(
        seen,
        conflicting,
        "conflict",
        "error",
        f"pairs of equal images have two {labels}",
        "keep the right one",
    )
    for kind, pairs, how in (("duplicate", same, "the same"), ("near-duplicate", close, "nearly the same")):
        within = [pair for pair in pairs if seen.parts[pair[0]] == seen.parts[pair[1]]]
        yield pair_finding(
            seen, within, kind, "note", f"pairs of images in one split are {how}", "keep one of each"
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
    """Classes with few images, and much fewer than others."""
    advice = "add images, or join classes"
    if 2 * counts.count(1) > len(counts):
        advice = (
            "this looks like a manifest of texts, one for each image, which --task captioning trains on; "
            "where labels are classes, add images"
        )
    few = [f"{name}: {count}" for name, count in zip(seen.classes, counts, strict=True) if count < FEW]
    yield Finding(
        "few",
        "warning",
        f"classes have fewer than {FEW} images",
        advice,
        len(few),
        tuple(few[:SHOWN]),
    )
    present = [count or max(counts) for count in counts]  # a class without images is reported elsewhere
    largest, smallest = max(present), max(min(present), 1)
    yield Finding(
        "imbalance",
        "warning",
        f"times as many images in the largest class ({largest}) as in the smallest ({min(present)})",
        "set data.class_balance=true, and look at the recall of each class",
        round(largest / smallest) if largest > IMBALANCE * smallest else 0,
        (seen.classes[int(np.argmax(counts))], seen.classes[int(np.argmin(present))]),
    )


def looks(seen: Survey) -> Iterator[Finding]:
    """Images much smaller than the others, and gray ones among colored ones."""
    shorter = seen.sizes.min(axis=1, initial=1 << 30)
    tiny = np.flatnonzero(shorter < TINY * np.median(shorter)) if len(shorter) else np.array([], dtype=int)
    yield Finding(
        "tiny",
        "warning",
        "images are less than a quarter as large as the median",
        "look whether they are thumbnails or errors",
        len(tiny),
        named(seen, tiny),
    )
    gray = np.flatnonzero(seen.gray) if seen.gray.mean() < 0.5 else np.array([], dtype=int)
    yield Finding(
        "gray",
        "note",
        "images among colored ones are gray",
        "no harm, unless one class has most of them",
        len(gray),
        named(seen, gray),
    )


def suspects(seen: Survey) -> Finding:
    """Images that look like another class's: of the ten nearest by thumbnail, nine are of one other class.
    Coarse colors and shapes are all that is compared, so right labels are among them."""
    chosen = np.arange(len(seen.names))
    if len(chosen) > MOST_COMPARED:
        chosen = np.sort(np.random.default_rng(0).permutation(chosen)[:MOST_COMPARED])
    found = chosen[unlike_neighbors(seen.thumbs[chosen], seen.labels[chosen])]
    return Finding(
        "suspect-label",
        "note",
        "images look like another class's",
        "look at them: coarse colors and shapes are all that was compared",
        len(found),
        named(seen, found),
    )


def unlike_neighbors(thumbs: NDArray[np.uint8], labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Numbers of the images whose neighbors nearly all have one other label."""
    if len(labels) <= NEIGHBORS:
        return np.array([], dtype=np.int64)
    features = thumbs.reshape(len(thumbs), -1).astype(np.float32)
    features -= features.mean(axis=1, keepdims=True)
    features /= np.linalg.norm(features, axis=1, keepdims=True) + 1e-6
    found = []
    for first in range(0, len(features), 1024):
        likeness = features[first : first + 1024] @ features.T
        rows = np.arange(len(likeness))
        likeness[rows, first + rows] = -np.inf
        nearest = np.argpartition(-likeness, NEIGHBORS, axis=1)[:, :NEIGHBORS]
        votes = labels[nearest]
        for row, around in zip(first + rows, votes, strict=True):
            most = np.bincount(around).argmax()
            if most != labels[row] and (around == most).sum() >= AGREEING:
                found.append(row)
    return np.array(found, dtype=np.int64)


def named(seen: Survey, indices: Indices) -> tuple[str, ...]:
    """The names of the first few."""
    return tuple(seen.names[index] for index in indices[:SHOWN])
