"""What is known of the images of a dataset: a class, several labels, or a number to predict, for each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from vitreous.errors import LazyModule

if TYPE_CHECKING:
    import torch
    from scipy import sparse
else:  # exported models answer without them
    torch, sparse = LazyModule("torch"), LazyModule("scipy.sparse")

Rows = slice | NDArray[np.integer]
EVERY = slice(None)


@dataclass(frozen=True, eq=False)
class ClassTargets:
    """A class for each image. numbers: (N,), of `classes`; those of large data may lie on a disk."""

    numbers: NDArray[np.int64]
    classes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.numbers)

    def at(self, rows: Rows) -> ClassTargets:
        """Return the targets of some images."""
        return ClassTargets(self.numbers[rows], self.classes)

    def text(self, index: int) -> str:
        """Return the target of an image as text: its class."""
        return self.classes[int(self.numbers[index])]

    def classes_in(self, text: str) -> set[str]:
        """Return the classes that a text, as `text` gives it, names; they need not be among `classes`."""
        return {text} if text else set()

    def tensor(self, rows: Rows = EVERY) -> torch.Tensor:
        """Return the targets of some images for a model: class numbers, int64 (B,)."""
        return torch.from_numpy(self.strata(rows))

    def strata(self, rows: Rows = EVERY) -> NDArray[np.int64]:
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

    def at(self, rows: Rows) -> LabelTargets:
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

    def tensor(self, rows: Rows = EVERY) -> torch.Tensor:
        """Return the targets of some images for a model: weights, float32 (B, classes)."""
        return torch.from_numpy(self.matrix[rows].toarray())

    def strata(self, rows: Rows = EVERY) -> NDArray[np.int64]:
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

    def at(self, rows: Rows) -> NumberTargets:
        """Return the targets of some images."""
        return NumberTargets(self.values[rows])

    def text(self, index: int) -> str:
        """Return the target of an image as text."""
        return f"{self.values[index]:.9g}"

    def classes_in(self, text: str) -> set[str]:
        """Return no classes."""
        return set()

    def tensor(self, rows: Rows = EVERY) -> torch.Tensor:
        """Return the targets of some images for a model: float32 (B,)."""
        return torch.from_numpy(self.values[rows])

    def strata(self, rows: Rows = EVERY) -> NDArray[np.int64]:
        """Return 0 for each of some images: they are split as if they were of one class."""
        return np.zeros(len(self.values[rows]), dtype=np.int64)

    def counts(self) -> NDArray[np.int64]:
        """Return an empty array: there are no classes."""
        return np.zeros(0, dtype=np.int64)

    def with_classes(self, classes: tuple[str, ...], columns: NDArray[np.int64]) -> NumberTargets:
        """Return the targets as they are."""
        return self


Targets = ClassTargets | LabelTargets | NumberTargets


def one_class(count: int, name: str = "") -> ClassTargets:
    """Return the targets of images that need none."""
    return ClassTargets(np.zeros(count, dtype=np.int64), (name,))


def sparse_rows(
    values: NDArray[np.floating], places: NDArray[np.integer], starts: NDArray[np.integer], classes: int
) -> sparse.csr_array:
    """Return weights of classes, of which those of image i are starts[i] ... starts[i + 1]."""
    found = values.astype(np.float32), places.astype(np.int64), starts
    return sparse.csr_array(found, shape=(len(starts) - 1, classes))
