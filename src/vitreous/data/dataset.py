"""What every source yields: numbered images with targets (classes, several labels or numbers), in parts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol, Self, TypedDict, TypeVar, Unpack

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from vitreous.data.files import fingerprint
from vitreous.data.workers import in_threads
from vitreous.errors import InputError, LazyModule
from vitreous.models.stored import BadImage, ImageLike, Stored, stored

if TYPE_CHECKING:
    import torch
    from scipy import sparse

    from vitreous.data.findings import Finding
    from vitreous.models.preprocessing import Preprocessing
else:  # exported models answer without them
    torch, sparse = LazyModule("torch"), LazyModule("scipy.sparse")

RowSelection = slice | NDArray[np.integer]  # numbers of some images
EVERY = slice(None)


@dataclass(frozen=True, eq=False)
class ClassTargets:
    """A class for each image. numbers: (N,), of `classes`; those of large data may lie on a disk."""

    numbers: NDArray[np.int64]
    classes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.numbers)

    def at(self, rows: RowSelection) -> ClassTargets:
        """Return the targets of some images."""
        return ClassTargets(self.numbers[rows], self.classes)

    def text(self, index: int) -> str:
        """Return the target of an image as text: its class."""
        return self.classes[int(self.numbers[index])]

    def classes_in(self, text: str) -> set[str]:
        """Return the classes that a text, as `text` gives it, names; they need not be among `classes`."""
        return {text} if text else set()

    def tensor(self, rows: RowSelection = EVERY) -> torch.Tensor:
        """Return the targets of some images for a model: class numbers, int64 (B,)."""
        return torch.from_numpy(self.strata(rows))

    def strata(self, rows: RowSelection = EVERY) -> NDArray[np.int64]:
        """Return the class number of each of some images, by which they are split and balanced."""
        return np.asarray(self.numbers[rows]).astype(np.int64, copy=False)

    def counts(self) -> NDArray[np.int64]:
        """Return how many images have each class, (classes,)."""
        return np.bincount(self.numbers.clip(0), minlength=len(self.classes))[: len(self.classes)]

    def with_classes(self, classes: tuple[str, ...], columns: NDArray[np.int64]) -> ClassTargets:
        """Return the targets numbered by other classes. columns: the place of each class among these."""
        return ClassTargets(columns[self.numbers], classes)


@dataclass(frozen=True, eq=False)
class LabelTargets:
    """Several labels for each image, or none, each with a weight of 0 ... 1. matrix: (N, classes) float32."""

    matrix: sparse.csr_array
    classes: tuple[str, ...]

    @classmethod
    def of(cls, rows: Sequence[dict[int, float]], classes: tuple[str, ...]) -> LabelTargets:
        """Return the targets of images whose weights are given by the numbers of classes."""
        places: list[int] = []
        values: list[float] = []
        for row in rows:
            for place in sorted(row):
                places.append(place)
                values.append(row[place])
        starts = np.cumsum([0, *map(len, rows)])
        return cls(sparse_rows(np.array(values), np.array(places), starts, len(classes)), classes)

    def __len__(self) -> int:
        return int(self.matrix.shape[0])

    def at(self, rows: RowSelection) -> LabelTargets:
        """Return the targets of some images."""
        return LabelTargets(self.matrix[rows], self.classes)

    def weights(self, index: int) -> Iterator[tuple[int, np.float32]]:
        """Yield the class numbers of an image, each with its weight."""
        row = slice(*self.matrix.indptr[index : index + 2])
        return zip(self.matrix.indices[row].tolist(), self.matrix.data[row], strict=True)

    def text(self, index: int) -> str:
        """Return the target of an image as text, such as "cat|dog:0.5"."""
        parts = []
        for place, weight in self.weights(index):
            name = self.classes[place]
            parts.append(name if weight == 1 else f"{name}:{weight:g}")
        return "|".join(parts)

    def classes_in(self, text: str) -> set[str]:
        """Return the classes that a text, as `text` gives it, names; they need not be among `classes`."""
        names: set[str] = set()
        for part in text.split("|") if text else []:
            name, _, _ = part.rpartition(":")
            names.add(part if part in self.classes or not name else name)
        return names

    def tensor(self, rows: RowSelection = EVERY) -> torch.Tensor:
        """Return the targets of some images for a model: weights, float32 (B, classes)."""
        return torch.from_numpy(self.matrix[rows].toarray())

    def strata(self, rows: RowSelection = EVERY) -> NDArray[np.int64]:
        """Return the number of the strongest class of each of some images, by which they are split and
        balanced; 0 where there is none."""
        found = self.matrix[rows]
        numbers = np.zeros(found.shape[0], dtype=np.int64)
        images = np.repeat(np.arange(len(numbers)), np.diff(found.indptr))
        order = np.lexsort((-found.indices, found.data, images))  # the last one of an image stays
        numbers[images[order]] = found.indices[order]
        return numbers

    def counts(self) -> NDArray[np.int64]:
        """Return how many images have each class, (classes,); those with several count for each."""
        return np.bincount(self.matrix.indices, minlength=len(self.classes))

    def with_classes(self, classes: tuple[str, ...], columns: NDArray[np.int64]) -> LabelTargets:
        """Return the targets numbered by other classes.

        Args:
            columns: the place of each class among these; -1: left out.
        """
        known = self.matrix[:, np.flatnonzero(columns >= 0)]
        places = columns[columns >= 0][known.indices]
        found = sparse_rows(known.data, places, known.indptr, len(classes))
        found.sort_indices()
        return LabelTargets(found, classes)


@dataclass(frozen=True, eq=False)
class NumberTargets:
    """A number to predict for each image. values: (N,)."""

    values: NDArray[np.float32]
    classes: ClassVar[tuple[str, ...]] = ()

    def __len__(self) -> int:
        return len(self.values)

    def at(self, rows: RowSelection) -> NumberTargets:
        """Return the targets of some images."""
        return NumberTargets(self.values[rows])

    def text(self, index: int) -> str:
        """Return the target of an image as text."""
        return f"{self.values[index]:.9g}"

    def classes_in(self, text: str) -> set[str]:
        """Return no classes."""
        return set()

    def tensor(self, rows: RowSelection = EVERY) -> torch.Tensor:
        """Return the targets of some images for a model: float32 (B,)."""
        return torch.from_numpy(self.values[rows])

    def strata(self, rows: RowSelection = EVERY) -> NDArray[np.int64]:
        """Return 0 for each of some images: they are split as if they were of one class."""
        return np.zeros(len(self.values[rows]), dtype=np.int64)

    def counts(self) -> NDArray[np.int64]:
        """Return an empty array: there are no classes."""
        return np.zeros(0, dtype=np.int64)

    def with_classes(self, classes: tuple[str, ...], columns: NDArray[np.int64]) -> NumberTargets:
        """Return the targets as they are."""
        return self


Targets = ClassTargets | LabelTargets | NumberTargets


def single_class_targets(count: int, name: str = "") -> ClassTargets:
    """Return the targets of images that need none."""
    return ClassTargets(np.zeros(count, dtype=np.int64), (name,))


def sparse_rows(
    values: NDArray[np.floating], places: NDArray[np.integer], starts: NDArray[np.integer], classes: int
) -> sparse.csr_array:
    """Return weights of classes, of which those of image i are starts[i] ... starts[i + 1]."""
    found = values.astype(np.float32), places.astype(np.int64), starts
    return sparse.csr_array(found, shape=(len(starts) - 1, classes))


Indices = NDArray[np.int64]
DIGESTS = 64  # that a thread takes at a time
READERS = 16  # threads, which wait for the disk or the network
ROWS = 1 << 20  # images whose numbers are handled together: they stay in the processor's cache


class Grouping(Protocol):
    """What a dataset asks of `vitreous.data.likeness.Likeness`, which knows the images of all parts."""

    @property
    def comparable(self) -> bool: ...
    @property
    def linked(self) -> bool: ...
    @property
    def groups(self) -> NDArray[np.int64]: ...
    @property
    def digests(self) -> list[str]: ...


class ImageFacts(TypedDict, total=False):
    """What is known of the images of a dataset besides themselves, and can be otherwise in a copy of it."""

    targets: Targets
    cache: Path | None
    groups: NDArray[np.str_] | None
    times: NDArray[np.float64] | None
    likeness: Grouping | None
    start: int
    value_range: tuple[tuple[float, float], ...] | None
    findings: tuple[Finding, ...]
    excluded: tuple[ImageDataset, ...]


class ImageDataset:
    """Images numbered from 0, each with a target. A source overrides `encoded`, or `held` if it holds
    pixels.

    A dataset does not change: what opens images learns more of them step by step, and returns them `with_`
    it. So a part of a source never sees what was decided for another one."""

    targets: Targets
    source: str = ""  # what its images are named after, where `name` is as it is here
    # (N,) the block that each is read with, ascending; None where any order costs the same
    blocks: NDArray[np.int32] | None = None
    hashes: NDArray[np.uint64] | None = None  # (N,) 64 bits of each image's key, where the source has them
    cache: Path | None = None  # for large arrays that follow from the images; None: nowhere
    groups: NDArray[np.str_] | None = None  # (N,) names of their groups, where the source has them
    times: NDArray[np.float64] | None = None  # (N,) when each was taken, where the source says it
    likeness: Grouping | None = None  # which images of the whole source are equal or look alike
    start = 0  # the number that the first image has there
    listed = True  # False: they are composed when they are asked for
    # what becomes 0 and 255 of images of more than 8 bits, as measured
    value_range: tuple[tuple[float, float], ...] | None = None
    findings: tuple[Finding, ...] = ()  # what the user should know of how they were opened
    excluded: tuple[ImageDataset, ...] = ()  # those that the user has left out

    def __len__(self) -> int:
        return len(self.targets)

    def with_(self, **facts: Unpack[ImageFacts]) -> Self:
        """Return the same images with other facts about them."""
        images = copy(self)
        vars(images).update(facts)
        return images

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes of the targets; none of numbers to predict."""
        return self.targets.classes

    def name(self, index: int) -> str:
        """Return a path, or what else tells the user which image it is."""
        return f"{self.source}[{index}]"

    def key(self, index: int) -> str:
        """Return the name that stays the same where the whole source is moved: a path relative to it."""
        return self.name(index)

    def all_keys(self) -> list[str]:
        """Return the key of each image."""
        return [self.key(index) for index in range(len(self))]

    def label(self, index: int) -> str:
        """Return the label as text: a class, several as in "cat|dog:0.5", or a number."""
        return self.targets.text(index)

    def digest(self, index: int) -> str:
        """Return what tells the stored image from others; "" where that takes long. Raises BadImage."""
        content = self.encoded(index)
        if content is None:
            image = self.image(index)
            content = repr(image.size).encode() + image.tobytes()
        return fingerprint(len(content), lambda place, count: content[place : place + count])

    def encoded(self, index: int) -> bytes | None:
        """Return the file's bytes, or None for a source that holds pixels. Raises BadImage."""
        return None

    def head(self, index: int) -> bytes | None:
        """Return the beginning of the file, the whole of it where that costs no more; None for a source that
        holds pixels, or from which only whole blocks are read. Raises BadImage."""
        return None if self.blocks is not None else self.encoded(index)

    def held(self, index: int) -> ImageLike:
        """Return an image of a source that holds pixels, as it holds them. Raises BadImage."""
        raise NotImplementedError

    def opened(self, index: int, how: Preprocessing | int = 3) -> Stored:
        """Return an image whose size is known, and whose pixels are decoded later. Raises BadImage.

        Args:
            how: the preprocessing of a model, which says how many channels are wanted and what range of
                values; or the channels alone: the range is that of the dataset then.
        """
        encoded = self.encoded(index)
        content = self.held(index) if encoded is None else encoded
        channels, value_range = (
            (how, self.value_range) if isinstance(how, int) else (how.channels, how.value_range)
        )
        try:
            return stored(content, self.name(index), channels, value_range)
        except InputError as error:  # an array that is not an image
            raise BadImage(self.name(index), str(error)) from None

    def again(self, index: int) -> ImageLike | ReadAgain:
        """Return an image as something that can be opened any number of times, and takes no memory for its
        pixels that it has not already."""
        return ReadAgain(self, index) if self.encoded(index) is not None else self.held(index)

    def image(self, index: int) -> Image.Image:
        """Return an image to be looked at: upright, gray or RGB; of bands the first three, or the first of
        two. Raises BadImage."""
        return self.opened(index).preview()

    def hashes_at(self, rows: RowSelection) -> NDArray[np.uint64] | None:
        """Return the hashes of some images, where the source has them."""
        return None if self.hashes is None else self.hashes[rows]

    def known(self, rows: RowSelection = EVERY) -> tuple[Grouping | None, Indices]:
        """Return what knows which images of the whole source are equal or alike, and the numbers that some of
        these images have there."""
        numbers = np.arange(len(self))[rows] if isinstance(rows, slice) else rows.astype(np.int64)
        return self.likeness, self.start + numbers

    @property
    def grouped(self) -> bool:
        """Whether some of the images of the whole source are in groups."""
        likeness, _ = self.known(slice(0))
        return likeness is not None and likeness.linked

    def together(self, rows: RowSelection = EVERY) -> NDArray[np.int64]:
        """Return the number of the group of each of some images: those of one group are equal, look alike or
        are of one group of the user's, and whatever splits images keeps them together."""
        likeness, numbers = self.known(rows)
        return numbers if likeness is None else likeness.groups[numbers]

    def fingerprints(self, rows: Indices) -> list[str]:
        """Return the digest of each of some images; "" where it cannot be read or takes long."""
        likeness, numbers = self.known(rows)
        if likeness is not None and likeness.comparable:
            return [likeness.digests[number] for number in numbers.tolist()]
        return read_digests(self, rows)

    def subset(self, indices: Indices) -> ImageDataset:
        """Return some of the images."""
        return Subset(self, indices)

    def readable(self, rows: Iterable[int]) -> Iterator[tuple[int, Stored]]:
        """Yield the number and the image of those that can be read; loaders count others."""
        for row in rows:
            with suppress(BadImage):
                found = self.opened(int(row))
                found.check()
                yield int(row), found

    def sample(self, count: int) -> list[int]:
        """Return the numbers of some images to look at, evenly spread; of a source that reads whole blocks,
        from the first block."""
        blocks = self.blocks
        among = len(self) if blocks is None else int(np.searchsorted(blocks, blocks[0], side="right"))
        places = np.linspace(0, among - 1, min(count, among)).astype(int)
        return places.tolist()


class ReadAgain(NamedTuple):
    """An image that is read from its dataset whenever it is opened."""

    images: ImageDataset
    row: int

    def read(self) -> bytes | None:
        """Return the file's bytes. Raises BadImage."""
        return self.images.encoded(self.row)


def read_digests(images: ImageDataset, rows: Indices) -> list[str]:
    """Return the digest of each of some images; "" where it cannot be read, or takes long."""

    def some(indices: Indices) -> list[str]:
        digests = []
        for index in indices.tolist():
            digest = ""
            # An image that cannot be read is counted and named when it is loaded.
            with suppress(BadImage):
                digest = images.digest(index)
            digests.append(digest)
        return digests

    groups = [rows[first : first + DIGESTS] for first in range(0, len(rows), DIGESTS)]
    return list(chain.from_iterable(in_threads(some, groups, workers=READERS)))


class Subset(ImageDataset):
    """Some of a source's images. targets: theirs, where they are known already."""

    def __init__(
        self, images: ImageDataset, indices: NDArray[np.integer], targets: Targets | None = None
    ) -> None:
        self.images = images
        self.indices = indices.astype(np.uint32, copy=False) if len(images) > ROWS else indices
        self.targets = images.targets.at(indices) if targets is None else targets
        self.blocks = None if images.blocks is None else images.blocks[indices]
        self.groups = None if images.groups is None else images.groups[indices]
        self.times = None if images.times is None else images.times[indices]
        self.listed, self.findings, self.excluded = images.listed, images.findings, images.excluded
        self.source, self.value_range = images.source, images.value_range

    def hashes_at(self, rows: RowSelection) -> NDArray[np.uint64] | None:
        return self.images.hashes_at(self.indices[rows])

    def known(self, rows: RowSelection = EVERY) -> tuple[Grouping | None, Indices]:
        return super().known(rows) if self.likeness is not None else self.images.known(self.indices[rows])

    def name(self, index: int) -> str:
        return self.images.name(int(self.indices[index]))

    def key(self, index: int) -> str:
        return self.images.key(int(self.indices[index]))

    def digest(self, index: int) -> str:
        return self.images.digest(int(self.indices[index]))

    def head(self, index: int) -> bytes | None:
        return self.images.head(int(self.indices[index]))

    def held(self, index: int) -> ImageLike:
        return self.images.held(int(self.indices[index]))

    def encoded(self, index: int) -> bytes | None:
        return self.images.encoded(int(self.indices[index]))


class ArrayImages(ImageDataset):
    """Images held as pixels: (N, H, W) gray or (N, H, W, 3) RGB, uint8."""

    def __init__(
        self, pixels: NDArray[np.uint8], targets: NDArray[np.int64], classes: tuple[str, ...], *, name: str
    ) -> None:
        self.pixels, self.targets, self.source = pixels, ClassTargets(targets, classes), name

    def held(self, index: int) -> ImageLike:
        return self.pixels[index]


SourceParts = Mapping[str, ImageDataset]  # what a source has: "train", and what it holds out itself
SplitParts = tuple[ImageDataset, ImageDataset | None, ImageDataset | None]  # train, validation, test
# The names that parts may have, and what they are called here.
PARTS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("test", "testing", "holdout", "heldout"), "test"),
    **dict.fromkeys(("val", "valid", "validation", "dev", "eval", "evaluation"), "val"),
}


def part_called(name: str) -> str | None:
    """Return the part that a name means, as in "Train", "testing" or "valid_set"."""
    word = re.sub("[^a-z]", "", name.lower())
    for ending in ("set", "data", "images", "split"):
        word = word.removesuffix(ending)
    return PARTS.get(word)


class DataSummary(NamedTuple):
    """What a recipe is chosen from. Sizes are the median of a sample. Of numbers, classes is 0."""

    images: int
    classes: int
    height: int
    width: int
    channels: int  # 1: gray, 3: color; others: bands
    multi_label: bool
    value_range: tuple[tuple[float, float], ...] | None = None  # of images of more than 8 bits
    statistics: tuple[tuple[float, ...], tuple[float, ...]] | None = None  # mean and deviation of each band


class Splits(NamedTuple):
    """The parts of a source. A source with one held-out part (val/ or test/) has it as `test`."""

    train: ImageDataset
    validation: ImageDataset | None
    test: ImageDataset | None
    name: str
    summary: DataSummary


def members_of_classes(strata: NDArray[np.int64]) -> list[Indices]:
    """Return the images of each class that has some."""
    by_class = np.argsort(strata, kind="stable")
    return np.split(by_class, np.flatnonzero(np.diff(strata[by_class])) + 1)


DatasetT = TypeVar("DatasetT", bound=ImageDataset)


def named_parts(train: DatasetT, validation: DatasetT | None, test: DatasetT | None) -> dict[str, DatasetT]:
    """Return the parts that there are, by name."""
    parts = {"train": train, "validation": validation, "test": test}
    return {name: part for name, part in parts.items() if part is not None}


def check_to_learn(images: ImageDataset, where: str) -> None:
    """Raise InputError for a single class: a model can be evaluated on it, and none learns from it."""
    if len(images.classes) == 1:
        found = "".join(f"; {each.sentence}" for each in images.findings)
        raise InputError(
            f"{where} has a single class, {images.classes[0]!r}: a classifier needs two or more{found}"
        )
