"""Tar shards, `name-{000..099}.tar`, as WebDataset writes them: files of one sample share their stem.

A sample is an image (`0001.jpg`) and its label: `0001.cls` (a class number), `0001.txt` (a class name) or
`0001.json` ({"label": name or number}; several labels are {"label": [name, ...]}, soft ones {"label":
{name: weight}}). Class names are in `classes.txt` beside the shards, a line each;
without it classes are what the labels say. Nothing is unpacked or unpickled: the shards are indexed once and
images are read at their offsets, so that any order costs the same.
"""

from __future__ import annotations

import json
import os
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from vitreous.data.config import DataConfig
from vitreous.data.dataset import ImageDataset, Parts
from vitreous.data.decoding import EXTENSIONS, BadImage, fingerprint
from vitreous.data.loading import in_threads
from vitreous.data.sources.folders import path_array
from vitreous.data.sources.labels import Label, named_targets
from vitreous.data.splitting import by_name, split
from vitreous.errors import InputError

BRACES = re.compile(r"\{(\d+)\.\.(\d+)\}")
FORM = "name-{000..099}.tar"
LABELS = (".cls", ".txt", ".json")
LARGEST_LABEL = 1 << 20  # bytes; a label is a word or a small JSON object
CLASSES = "classes.txt"
MOST_NUMBERED = 1_000_000  # classes; larger numbers are names


class Sample(NamedTuple):
    """Where an image's bytes are in a shard, and its label."""

    name: str
    offset: int
    size: int
    label: Label


class ShardImages(ImageDataset):
    """Images in tar files, found by offset."""

    def __init__(self, shards: list[Path], samples: list[list[Sample]]) -> None:
        flat = [sample for part in samples for sample in part]
        self.shards = [str(shard) for shard in shards]
        self.files = [os.open(shard, os.O_RDONLY) for shard in shards]
        self.shard = np.repeat(np.arange(len(shards), dtype=np.int32), [len(part) for part in samples])
        self.offsets = np.array([sample.offset for sample in flat], dtype=np.int64)
        self.sizes = np.array([sample.size for sample in flat], dtype=np.int32)
        self.names = path_array(sample.name for sample in flat)
        self.targets, self.classes = number_labels([sample.label for sample in flat], shards[0].parent)

    def __del__(self) -> None:
        for file in self.__dict__.pop("files", ()):
            os.close(file)

    def name(self, index: int) -> str:
        return f"{self.shards[self.shard[index]]}/{os.fsdecode(self.names[index])}"

    def key(self, index: int) -> str:
        return f"{os.path.basename(self.shards[self.shard[index]])}/{os.fsdecode(self.names[index])}"

    def digest(self, index: int) -> str:
        file, start = self.files[self.shard[index]], int(self.offsets[index])
        size = int(self.sizes[index])
        return fingerprint(size, lambda place, count: os.pread(file, min(count, size - place), start + place))

    def encoded(self, index: int) -> bytes:
        # pread has no position, so that threads share the open file.
        size = int(self.sizes[index])
        data = os.pread(self.files[self.shard[index]], size, int(self.offsets[index]))
        if len(data) < size:
            raise BadImage(self.name(index), "the shard ends within the image")
        return data


def open_shards(spec: str, config: DataConfig) -> Parts:
    """(train, validation, test). Shards whose names begin with train, val or test keep that split."""
    shards = expand(spec)
    samples = list(in_threads(index_shard, shards, workers=config.workers))
    if not any(samples):
        raise InputError(f"{spec} holds no image with a label: a sample is 0001.jpg and 0001.cls")
    images = ShardImages(shards, samples)
    splits = [shard.name.partition("-")[0] for shard in shards]
    if "train" not in splits:
        return split(images, config)
    return by_name(images, [splits[shard] for shard in images.shard], config, where=spec)


def expand(spec: str) -> list[Path]:
    """The files of `a-{000..002}.tar`, or of a glob; each must be there."""
    found = BRACES.search(spec)
    if found is None:
        folder, pattern = os.path.split(spec)
        paths = sorted(Path(folder or ".").expanduser().glob(pattern))
        if not paths:
            raise InputError(f"there is no {spec}: write shards as {FORM}")
        return paths
    first, last = found.groups()
    if int(first) > int(last):
        raise InputError(f"{spec} counts down: write shards as {FORM}")
    numbers = (f"{number:0{len(first)}}" for number in range(int(first), int(last) + 1))
    paths = [Path(spec[: found.start()] + number + spec[found.end() :]).expanduser() for number in numbers]
    for path in paths:
        if not path.is_file():
            raise InputError(
                f"there is no shard {path}, which {spec} names: write the numbers that there are"
            )
    return paths


def index_shard(shard: Path) -> list[Sample]:
    """The samples of one tar file that have an image and a label."""
    images: dict[str, tarfile.TarInfo] = {}
    labels: dict[str, Label] = {}
    try:
        with tarfile.open(shard, "r:") as archive:
            for member, data in members(archive):
                stem, suffix = split_name(member.name)
                if suffix in EXTENSIONS:
                    images[stem] = member
                elif data is not None:
                    labels[stem] = read_label(suffix, data, f"{shard}/{member.name}")
    except tarfile.TarError as error:
        raise InputError(f"{shard} is not a tar file that can be read: {error}") from None
    return [
        Sample(member.name, member.offset_data, member.size, labels[stem])
        for stem, member in images.items()
        if stem in labels
    ]


def members(archive: tarfile.TarFile) -> Iterator[tuple[tarfile.TarInfo, bytes | None]]:
    """Plain files and, of labels, their bytes. Links and devices are not samples, and a name that leads
    out of the archive is a trick."""
    for member in archive:
        if not member.isreg() or member.issparse():
            continue
        if member.name.startswith("/") or ".." in member.name.split("/"):
            raise InputError(
                f"{archive.name!s} holds the unsafe name {member.name!r}: do not trust this file"
            )
        wanted = split_name(member.name)[1] in LABELS and member.size <= LARGEST_LABEL
        file = archive.extractfile(member) if wanted else None
        yield member, file.read() if file else None


def split_name(name: str) -> tuple[str, str]:
    """ "a/0001.seg.jpg" -> ("a/0001", ".jpg"): WebDataset's stem ends at the first dot of the file name."""
    folder, file = os.path.split(name)
    stem, _, _ = file.partition(".")
    return f"{folder}/{stem}", os.path.splitext(file)[1].lower()


def read_label(suffix: str, data: bytes, name: str) -> Label:
    """A label as text; of JSON, its "label"."""
    try:
        text = data.decode("utf-8").strip()
        label = json.loads(text)["label"] if suffix == ".json" else text
        if isinstance(label, list):
            return {str(each): 1.0 for each in label}
        if isinstance(label, dict):
            weights = {each: float(number) for each, number in label.items()}
            if not all(0 <= weight <= 1 for weight in weights.values()):
                raise ValueError
            return weights
        return str(label)
    except (UnicodeDecodeError, json.JSONDecodeError, KeyError, TypeError, ValueError):
        raise InputError(
            f'{name} is not a label: write a class, or {{"label": class}} in JSON, where several classes are '
            "a list, or an object of weights between 0 and 1"
        ) from None


def number_labels(labels: list[Label], folder: Path) -> tuple[np.ndarray, tuple[str, ...]]:
    """(targets, classes). Numbers are class numbers; words, and numbers as large as those of products, are
    numbered in order. Where a label has several classes, all targets are rows of weights."""
    file = folder / CLASSES
    named = tuple(file.read_text(encoding="utf-8").split("\n")) if file.is_file() else ()
    named = tuple(name for name in named if name)
    numbers = [int(label) for label in labels if isinstance(label, str) and label.isdecimal()]
    count = max(numbers, default=0) + 1
    if len(numbers) == len(labels) and (named or count <= MOST_NUMBERED):
        if named and count > len(named):
            raise InputError(f"{file} names {len(named)} classes, but there is a label {count - 1}")
        return np.array(numbers, dtype=np.int64), named or tuple(str(number) for number in range(count))
    return named_targets(labels, f"{folder} (with {CLASSES})", named)
