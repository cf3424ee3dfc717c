"""What every source yields: numbered images with targets; how they are split, and what becomes of those that
cannot be read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from vitreous.checkpoints.whole_files import write_text
from vitreous.data.config import DataConfig
from vitreous.data.decoding import BadImage, EncodedImage, decode
from vitreous.errors import InputError

Indices = NDArray[np.int64]
VALIDATION = ("val", "valid", "validation", "dev")


class ImageDataset:
    """Images numbered from 0, each with a target. A source overrides `encoded`, or `image` if it holds
    pixels.

    Attributes:
        targets: (N,) int64 class numbers; (N, classes) float32 for several or soft labels; or (N,) float32
            numbers to predict, where there are no classes.
        source: what its images are named after.
        blocks: (N,) the block that each image is read with; None where any order costs the same.
    """

    classes: tuple[str, ...]
    targets: NDArray[Any]
    source: str
    blocks: NDArray[np.int32] | None = None

    def __len__(self) -> int:
        return len(self.targets)

    def name(self, index: int) -> str:
        """Return a path, or what else tells the user which image it is."""
        return f"{self.source}[{index}]"

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

    def name(self, index: int) -> str:
        return self.images.name(int(self.indices[index]))

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


DatasetT = TypeVar("DatasetT", bound=ImageDataset)
Parts = tuple[ImageDataset, ImageDataset | None, ImageDataset | None]  # train, validation, test


def named_parts(train: DatasetT, validation: DatasetT | None, test: DatasetT | None) -> dict[str, DatasetT]:
    """Return the parts that there are, by name."""
    parts = {"train": train, "validation": validation, "test": test}
    return {name: part for name, part in parts.items() if part is not None}


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


def stratified(targets: NDArray[Any], fraction: float, seed: int) -> tuple[Indices, Indices]:
    """(kept, held out), both ascending. Each class gives its part, at least one image if it has two, and
    always keeps one."""
    generator = np.random.default_rng(seed)
    groups = strata(targets)
    held: list[Indices] = []
    by_class = np.argsort(groups, kind="stable")
    for members in np.split(by_class, np.flatnonzero(np.diff(groups[by_class])) + 1):
        count = min(max(round(len(members) * fraction), 1), len(members) - 1) if fraction else 0
        held.append(generator.permutation(members)[:count])
    out = np.sort(np.concatenate(held))
    kept = np.setdiff1d(np.arange(len(targets)), out)
    return kept, out


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
    if not held_out:
        return split(train, config)
    if len(held_out) == 1:
        return *carve(train, config), next(iter(held_out.values()))
    if config.validation_fraction:
        raise InputError(
            f"{where} has a validation part, so data.validation_fraction={config.validation_fraction:g} has "
            "no effect: leave it out"
        )
    validation = next(part for name, part in held_out.items() if name != "test")
    return train, validation, held_out["test"]


def split(images: ImageDataset, config: DataConfig) -> Parts:
    """(train, validation, test) of a source that has no split of its own."""
    kept, held = stratified(images.targets, config.test_fraction, config.split_seed)
    train, validation = carve(images.subset(kept), config)
    return train, validation, images.subset(held) if len(held) else None


def carve(train: ImageDataset, config: DataConfig) -> tuple[ImageDataset, ImageDataset | None]:
    """(train, validation): the validation images taken from those for training."""
    if not config.validation_fraction:
        return train, None
    kept, held = stratified(train.targets, config.validation_fraction, config.split_seed)
    if not len(held):
        raise InputError(
            f"data.validation_fraction={config.validation_fraction} leaves no image to validate on: every "
            "class has a single image"
        )
    return train.subset(kept), train.subset(held)


def check_classes(classes: Sequence[str], where: str) -> None:
    """Raise InputError for a single class."""
    if len(classes) == 1:
        raise InputError(f"{where} has a single class, {classes[0]!r}: a classifier needs two or more")


class BadFiles:
    """The images that could not be read, each once, and when to stop because of them.

    Over 1 % of an epoch is too much; up to three files never are, since in a set of 50 one is already 2 %.
    """

    PART, ALWAYS_ALLOWED = 0.01, 3

    def __init__(self, *, strict: bool = False) -> None:
        self.strict = strict
        self.reasons: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self.reasons)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self.reasons.items())

    def add(self, bad: BadImage) -> None:
        """Remember an image. Raises InputError if strict."""
        if self.strict:
            raise InputError(f"{bad.name} cannot be read ({bad.reason}): fix or remove it, or drop --strict")
        self.reasons.setdefault(bad.name, bad.reason)

    def check(self, images: int) -> None:
        """Raises InputError, with the list, if too many of `images` were bad."""
        if len(self) > max(self.PART * images, self.ALWAYS_ALLOWED):
            first = "; ".join(f"{name} ({reason})" for name, reason in list(self)[:20])
            more = f"; and {len(self) - 20} more" if len(self) > 20 else ""
            raise InputError(
                f"{len(self)} of {images} images cannot be read, more than 1 %: fix or remove them: "
                f"{first}{more}"
            )

    def write(self, path: Path) -> None:
        """One line for each, name and reason, for the run's bad_files.txt; nothing if there are none."""
        if self.reasons:
            write_text(path, "".join(f"{name}\t{reason}\n" for name, reason in self))
