"""What every source yields: numbered images with targets, and what becomes of those that cannot be read."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sized
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from vitreous.errors import InputError

Indices = NDArray[np.int64]


class BadImage(Exception):
    """An image that cannot be read: which, and why."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name}: {reason}")
        self.name = name
        self.reason = reason


@runtime_checkable
class ImageDataset(Protocol):
    """Images numbered from 0, each with a target. All sources look like this.

    targets: (N,) int64 class numbers; (N, classes) float32 for several or soft labels; or (N,) float32
    numbers to predict, where there are no classes.
    """

    @property
    def classes(self) -> tuple[str, ...]: ...
    @property
    def targets(self) -> NDArray[Any]: ...
    def __len__(self) -> int: ...
    def name(self, index: int) -> str:
        """A path, or what else tells the user which image it is."""
        ...

    def image(self, index: int) -> Image.Image:
        """As stored, of any mode and orientation. Raises BadImage."""
        ...

    def encoded(self, index: int) -> bytes | None:
        """The file's bytes, or None for a source that holds pixels. Raises BadImage."""
        ...


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


def blocks_of(images: Sized) -> NDArray[np.int32] | None:
    """(N,) the block that each image is read with; None where any order costs the same."""
    return getattr(images, "blocks", None)


def sampled(images: Sized, count: int) -> list[int]:
    """Some images to look at, evenly spread; of a source that reads whole blocks, from the first block."""
    blocks = blocks_of(images)
    among = np.arange(len(images)) if blocks is None else np.flatnonzero(blocks == blocks[0])
    places = np.linspace(0, len(among) - 1, min(count, len(among))).astype(int)
    return [int(index) for index in among[places]]


class Subset:
    """Some of a source's images."""

    def __init__(self, images: ImageDataset, indices: Indices) -> None:
        self.images = images
        self.indices = indices
        self.classes = images.classes
        self.targets: NDArray[Any] = images.targets[indices]
        blocks = blocks_of(images)
        self.blocks = None if blocks is None else blocks[indices]

    def __len__(self) -> int:
        return len(self.indices)

    def name(self, index: int) -> str:
        return self.images.name(int(self.indices[index]))

    def image(self, index: int) -> Image.Image:
        return self.images.image(int(self.indices[index]))

    def encoded(self, index: int) -> bytes | None:
        return self.images.encoded(int(self.indices[index]))


class ArrayImages:
    """Images held as pixels: (N, H, W) gray or (N, H, W, 3) RGB, uint8."""

    def __init__(
        self, pixels: NDArray[np.uint8], targets: NDArray[np.int64], classes: tuple[str, ...], *, name: str
    ) -> None:
        self.pixels = pixels
        self.targets: NDArray[Any] = targets
        self.classes = classes
        self.source = name

    def __len__(self) -> int:
        return len(self.pixels)

    def name(self, index: int) -> str:
        return f"{self.source}[{index}]"

    def image(self, index: int) -> Image.Image:
        return Image.fromarray(self.pixels[index])

    def encoded(self, index: int) -> bytes | None:
        return None


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
            beside = path.with_name(path.name + ".partial")
            lines = [f"{name}\t{reason}\n" for name, reason in self]
            beside.write_text("".join(lines), encoding="utf-8")
            os.replace(beside, path)
