"""Tar shards, `name-{000..099}.tar`, as WebDataset and img2dataset write them: files of a sample share their
stem.

A sample is an image (`0001.jpg`) and its label: `0001.cls` (a class number), or else the "label" of
`0001.json` (a name or number; several labels are {"label": [name, ...]}, soft ones {"label": {name:
weight}}), or else `0001.txt` (a class name). Class names are in `classes.txt` beside the shards, a line each;
without it classes are what the labels say. Nothing is unpacked or unpickled: images are read at their
offsets. Shards that are fetched, and others with `data.form.streaming`, are read one after the other.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from vitreous.data.config import DataConfig, FetchedForm, ShardsForm, TargetKind
from vitreous.data.dataset import (
    PARTS,
    ClassTargets,
    ImageDataset,
    LabelTargets,
    SourceParts,
    single_class_targets,
)
from vitreous.data.files import fingerprint
from vitreous.data.sources.labels import UNLABELED, Label, named_targets
from vitreous.data.sources.remote import OpenShard, Shard, find_shards, text_in_same_folder
from vitreous.data.sources.shard_index import Reading, ShardIndex, shard_index
from vitreous.errors import InputError
from vitreous.models.stored import BadImage
from vitreous.outside import same_name

CLASSES = "classes.txt"
OPEN_FILES = 64
FEW = 1000  # classes that may be numbered with gaps
CAPTIONS = 0.5  # of the images have a text of their own, from which on texts are captions and not classes


class ShardImages(ImageDataset):
    """Images in tar files, found by offset. in_order: whether they are read shard by shard."""

    def __init__(
        self, shards: Sequence[Shard], index: ShardIndex, cache_bytes: float, *, in_order: bool
    ) -> None:
        self.shards, self.index = shards, index
        self.targets, self.hashes = index.targets, index.hashes
        self.opened_shard = lru_cache(OPEN_FILES)(lambda number: OpenShard(shards[number], cache_bytes))
        if in_order:
            counts = np.diff(index.ends, prepend=0)
            self.blocks = np.repeat(np.arange(len(counts), dtype=np.int32), counts)

    def shard_of(self, index: int) -> int:
        """Return the number of the shard that has an image."""
        return int(np.searchsorted(self.index.ends, index, side="right"))

    def name(self, index: int) -> str:
        return f"{self.shards[self.shard_of(index)]}/{os.fsdecode(self.index.names[index])}"

    def key(self, index: int) -> str:
        return f"{self.shards[self.shard_of(index)].name}/{os.fsdecode(self.index.names[index])}"

    def digest(self, index: int) -> str:
        if self.blocks is not None:
            return ""  # whole shards would be fetched
        size = int(self.index.sizes[index])
        return fingerprint(size, lambda place, count: self.read(index, place, min(count, size - place)))

    def encoded(self, index: int) -> bytes:
        size = int(self.index.sizes[index])
        if len(data := self.read(index, 0, size)) < size:
            raise BadImage(self.name(index), "the shard ends within the image")
        return data

    def read(self, index: int, place: int, count: int) -> bytes:
        """Return some bytes of an image's file: pread has no position, so that threads share open files."""
        try:
            shard = self.opened_shard(self.shard_of(index))
            return os.pread(shard.descriptor, count, int(self.index.blocks[index]) * 512 + place)
        except OSError as error:
            raise BadImage(self.name(index), error.strerror or str(error)) from error


def open_shards(spec: str, config: DataConfig, kind: TargetKind) -> SourceParts:
    """Return the parts of shards: several where their names begin with train, val or test."""
    shards = find_shards(spec)
    by_part: dict[str, list[Shard]] = {}
    for shard in shards:
        by_part.setdefault(shard.name.partition("-")[0].lower(), []).append(shard)
    if "train" not in by_part:
        by_part = {"train": shards}
    elif unknown := sorted(by_part.keys() - PARTS.keys()):
        raise InputError(f"{spec} has a split {unknown[0]!r}: write train, val or test")
    named = text_in_same_folder(shards[0], CLASSES)
    classes = tuple(same_name(name) for name in named.splitlines() if name)
    cache_bytes = 1e9 * config.settings_of(FetchedForm).cache_gb
    reading = Reading(kind == "classes", cache_bytes, config.read.workers)
    found: dict[str, ImageDataset] = {}
    for part in sorted(by_part, key=lambda name: name != "train"):
        number = partial(number_labels, where=spec, named=classes, unlabeled=kind == "unlabeled")
        index, cache = shard_index(by_part[part], number, [kind, *classes], reading)
        if not len(index.names):
            raise InputError(
                f"{spec} holds no image with a label: a sample is 0001.jpg and 0001.cls (a class number), "
                '0001.txt (a class) or 0001.json ({"label": class}); images alone are for vitreous pretrain'
            )
        classes = index.targets.classes
        in_order = shards[0].remote or config.settings_of(ShardsForm).streaming
        images = ShardImages(by_part[part], index, cache_bytes, in_order=in_order)
        found[PARTS.get(part, part)] = images.with_(cache=cache)
    return found


def number_labels(
    labels: list[Label],
    places: NDArray[np.int64],
    *,
    where: str,
    named: tuple[str, ...],
    unlabeled: bool,
) -> ClassTargets | LabelTargets:
    """Return the targets. Numbers are class numbers; words, and numbers as large as those of products,
    are numbered in order. Where a label has several classes, all targets are rows of weights.

    Args:
        places: of each image's label among the different `labels`; -1 where it has none.
        named: the classes, where they are known.
        unlabeled: whether images may have no labels, or captions; then all of them are of one class.
    """
    numbers = [int(label) for label in labels if isinstance(label, str) and label.isdecimal()]
    captions = len(labels) > max(FEW, CAPTIONS * len(places), len(numbers))
    if unlabeled and (captions or named == UNLABELED or not len(places) or places.min() < 0):
        return single_class_targets(len(places), *UNLABELED)
    if captions and not named:
        raise InputError(
            f"{where} has {len(labels)} different labels of {len(places)} images, such as {labels[0]!r:.60}: "
            f"write the classes into .cls files, or in {CLASSES}; without labels, use vitreous pretrain"
        )
    count = max(numbers, default=0) + 1
    if len(numbers) == len(labels) and (named or count <= max(FEW, 4 * len(labels))):
        if named and count > len(named):
            raise InputError(f"{where} has {len(named)} classes, but there is a label {count - 1}")
        classes = named or tuple(str(number) for number in range(count))
        return ClassTargets(np.array(numbers, dtype=np.int64)[places], classes)
    return named_targets(labels, where, named).at(places)
