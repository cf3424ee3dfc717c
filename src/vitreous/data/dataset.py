"""What every source yields: numbered images with targets; and how they are split.

An image is held out by a hash of its name, which does not depend on the other names: where images are added
or removed, no other image moves to another part. Only a class of which the hashes hold out less than half of
what they should, as happens with a few images, gives those with the lowest hashes as well.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from vitreous.data.config import DataConfig
from vitreous.data.decoding import EncodedImage, decode, fingerprint
from vitreous.data.findings import Finding, finding
from vitreous.errors import InputError

Indices = NDArray[np.int64]
VALIDATION = ("val", "valid", "validation", "dev")
VALIDATED = 300  # images of an automatic validation part
ENOUGH_TO_VALIDATE = 600  # images for training and validation; of fewer each is needed for training


class ImageDataset:
    """Images numbered from 0, each with a target. A source overrides `encoded`, or `image` if it holds
    pixels.

    Attributes:
        targets: (N,) int64 class numbers; (N, classes) float32 for several or soft labels; or (N,) float32
            numbers to predict, where there are no classes.
        source: what its images are named after.
        blocks: (N,) the block that each image is read with; None where any order costs the same.
        groups: (N,) names of the groups that the images belong to, where the source has them.
        listed: whether the images are there to be listed, and not composed when they are asked for.
        findings: what the user should know of how they were opened.
    """

    classes: tuple[str, ...]
    targets: NDArray[Any]
    source: str
    blocks: NDArray[np.int32] | None = None
    groups: NDArray[Any] | None = None
    listed = True
    findings: tuple[Finding, ...] = ()

    def __len__(self) -> int:
        return len(self.targets)

    def name(self, index: int) -> str:
        """Return a path, or what else tells the user which image it is."""
        return f"{self.source}[{index}]"

    def key(self, index: int) -> str:
        """Return the name that stays the same where the whole source is moved: a path relative to it."""
        return self.name(index)

    def label(self, index: int) -> str:
        """Return the label as text: a class, several as in "cat|dog:0.5", or a number."""
        target = self.targets[index]
        if target.ndim:
            weights = ((self.classes[place], target[place]) for place in np.flatnonzero(target))
            return "|".join(name if weight == 1 else f"{name}:{weight:g}" for name, weight in weights)
        return self.classes[int(target)] if self.classes else f"{target:.9g}"

    def digest(self, index: int) -> str:
        """Return what tells the stored image from others, whatever its name; "" where that takes long.
        Raises BadImage."""
        content = self.encoded(index)
        if content is None:
            image = self.image(index)
            content = repr(image.size).encode() + image.tobytes()
        return fingerprint(len(content), lambda place, count: content[place : place + count])

    def encoded(self, index: int) -> bytes | None:
        """Return the file's bytes, or None for a source that holds pixels. Raises BadImage."""
        return None

    def image(self, index: int) -> Image.Image:
        """Return an image as stored, of any mode and orientation. Raises BadImage."""
        encoded = self.encoded(index)
        assert encoded is not None
        return decode(encoded, self.name(index))

    def opened(self, index: int, channels: int) -> EncodedImage:
        """Return an image whose size is known, and whose pixels are decoded later. Raises BadImage."""
        encoded = self.encoded(index)
        stored = self.image(index) if encoded is None else encoded
        return EncodedImage(stored, self.name(index), channels)

    def subset(self, indices: Indices) -> ImageDataset:
        """Return some of the images."""
        return Subset(self, indices)

    def sample(self, count: int) -> list[int]:
        """Return the numbers of some images to look at, evenly spread; of a source that reads whole blocks,
        from the first block."""
        among = np.arange(len(self)) if self.blocks is None else np.flatnonzero(self.blocks == self.blocks[0])
        places = np.linspace(0, len(among) - 1, min(count, len(among))).astype(int)
        return [int(index) for index in among[places]]


class Subset(ImageDataset):
    """Some of a source's images."""

    def __init__(self, images: ImageDataset, indices: Indices) -> None:
        self.images, self.indices = images, indices
        self.classes, self.targets = images.classes, images.targets[indices]
        self.blocks = None if images.blocks is None else images.blocks[indices]
        self.groups = None if images.groups is None else images.groups[indices]
        self.listed, self.findings = images.listed, images.findings

    def name(self, index: int) -> str:
        return self.images.name(int(self.indices[index]))

    def key(self, index: int) -> str:
        return self.images.key(int(self.indices[index]))

    def digest(self, index: int) -> str:
        return self.images.digest(int(self.indices[index]))

    def image(self, index: int) -> Image.Image:
        return self.images.image(int(self.indices[index]))

    def encoded(self, index: int) -> bytes | None:
        return self.images.encoded(int(self.indices[index]))


class ArrayImages(ImageDataset):
    """Images held as pixels: (N, H, W) gray or (N, H, W, 3) RGB, uint8."""

    def __init__(
        self, pixels: NDArray[np.uint8], targets: NDArray[np.int64], classes: tuple[str, ...], *, name: str
    ) -> None:
        self.pixels, self.targets, self.classes, self.source = pixels, targets, classes, name

    def image(self, index: int) -> Image.Image:
        return Image.fromarray(self.pixels[index])


Parts = tuple[ImageDataset, ImageDataset | None, ImageDataset | None]  # train, validation, test


class DataSummary(NamedTuple):
    """What a recipe is chosen from. Sizes are the median of a sample. Of a regression, classes is 0."""

    images: int
    classes: int
    smallest_class: int
    height: int
    width: int
    channels: Literal[1, 3]
    multi_label: bool


class Splits(NamedTuple):
    """The parts of a source. A source with one held-out part (val/ or test/) has it as `test`."""

    train: ImageDataset
    validation: ImageDataset | None
    test: ImageDataset | None
    name: str
    summary: DataSummary


def strata(targets: NDArray[Any]) -> NDArray[np.int64]:
    """Return a class number for each image: of several labels the strongest, of numbers to predict 0."""
    if targets.ndim == 1 and targets.dtype.kind == "f":
        return np.zeros(len(targets), dtype=np.int64)
    return targets.astype(np.int64) if targets.ndim == 1 else targets.argmax(axis=1).astype(np.int64)


DatasetT = TypeVar("DatasetT", bound=ImageDataset)


def named_parts(train: DatasetT, validation: DatasetT | None, test: DatasetT | None) -> dict[str, DatasetT]:
    """Return the parts that there are, by name."""
    parts = {"train": train, "validation": validation, "test": test}
    return {name: part for name, part in parts.items() if part is not None}


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
    fraction = 0.0 if "validation" in own else validation_fraction(config, len(train))
    if config.group_by and held_out and not fraction:
        raise InputError(
            f"{where} has parts of its own, so data.group_by={config.group_by!r} has no effect: leave it out"
        )
    if config.split_file:
        from vitreous.data.split import as_recorded  # it needs threads, whose module imports this one

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


def validation_fraction(config: DataConfig, images: int) -> float:
    """Return the part of so many training images, or more, that is for validation."""
    if config.validation_fraction != "auto":
        return config.validation_fraction
    return max(0.01, min(0.1, VALIDATED / images)) if images >= ENOUGH_TO_VALIDATE else 0.0


def split(images: ImageDataset, config: DataConfig) -> Parts:
    """(train, validation, test) of a source that has no split of its own."""
    return with_own_parts(images, {}, config, where=images.name(0))


def held_out_of(
    images: ImageDataset, fraction: float, config: DataConfig, part: str
) -> tuple[ImageDataset, ImageDataset | None]:
    """Return (the images that are kept, those that are held out as `part`; None where none are)."""
    if config.split_by == "random":
        held = stratified(images.targets, fraction, config.split_seed)
    else:
        held = lowest_hashes(images, fraction, config, part)
    if not held.any():
        return images, None
    kept = images.subset(np.flatnonzero(~held))
    if config.split_by == "random":
        kept.findings = (*kept.findings, *finding("unrecorded split", (), 1))
    return kept, images.subset(np.flatnonzero(held))


def lowest_hashes(images: ImageDataset, fraction: float, config: DataConfig, part: str) -> NDArray[np.bool_]:
    """Return which images have a hash below `fraction`. Where these are less than half as many of a class as
    they should be, those with the lowest hashes are added; and those with the highest are always kept. Images
    of one group have one hash."""
    hashes = name_hashes(group_names(images, config), f"{part} {config.split_seed}")
    held = hashes < fraction
    if not fraction:
        return held
    together = config.group_by is not None
    for members in [np.arange(len(images))] if together else members_of_classes(images.targets):
        ascending = np.sort(hashes[members])
        held[members] |= hashes[members] <= ascending[math.ceil(fraction * len(members) / 2) - 1]
        held[members] &= hashes[members] < ascending[-1]
    if together and not held.any():
        raise InputError(f"data.group_by={config.group_by!r} puts all images into one group: give another")
    return held


def group_names(images: ImageDataset, config: DataConfig) -> list[str]:
    """Return what each image is held out by: its own name, or that of its group."""
    keys = [images.key(index) for index in range(len(images))]
    if config.group_by is None:
        return keys
    if images.groups is not None:
        return [str(group) for group in images.groups]
    try:
        pattern = re.compile(config.group_by)
    except re.error as error:
        raise InputError(f"data.group_by={config.group_by!r} is not a pattern: {error}") from None
    found = [pattern.search(key) for key in keys]
    if None in found:
        raise InputError(
            f"data.group_by={config.group_by!r} is not a column, and matches nothing in the name "
            f"{keys[found.index(None)]!r}: give a column of the manifest, or a pattern of names such as "
            "'([^/_]*)_' for what is before the first _"
        )
    return [match[1] or "" if pattern.groups else match[0] for match in found if match]


def name_hashes(names: Sequence[str], purpose: str) -> NDArray[np.float64]:
    """Return a number in 0 ... 1 for each name, which depends on nothing else."""
    digests = (
        hashlib.blake2b(f"{purpose}\0{name}".encode("utf-8", "surrogateescape"), digest_size=8).digest()
        for name in names
    )
    return np.frombuffer(b"".join(digests), dtype=">u8") / 2.0**64


def stratified(targets: NDArray[Any], fraction: float, seed: int) -> NDArray[np.bool_]:
    """Return which images are held out, sampled class by class: as versions before split.csv did."""
    generator = np.random.default_rng(seed)
    held = np.zeros(len(targets), dtype=bool)
    for members in members_of_classes(targets):
        count = min(max(round(len(members) * fraction), 1), len(members) - 1) if fraction else 0
        held[generator.permutation(members)[:count]] = True
    return held


def members_of_classes(targets: NDArray[Any]) -> list[Indices]:
    """Return the images of each class that has some."""
    groups = strata(targets)
    by_class = np.argsort(groups, kind="stable")
    return np.split(by_class, np.flatnonzero(np.diff(groups[by_class])) + 1)


def check_classes(classes: Sequence[str], where: str) -> None:
    """Raise InputError for a single class."""
    if len(classes) == 1:
        raise InputError(f"{where} has a single class, {classes[0]!r}: a classifier needs two or more")
