"""CIFAR and MNIST as their authors give them: plain binary files, read without unpickling anything.

CIFAR: https://www.cs.toronto.edu/~kriz/cifar.html, the *binary version*. MNIST (also Fashion- and KMNIST):
four idx files, packed by gzip or not.
"""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vitreous.data.config import DataConfig
from vitreous.data.dataset import ArrayImages, Parts, carve
from vitreous.errors import InputError

SIDE, PIXELS = 32, 32 * 32 * 3
MNIST_FILES = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}
UNSIGNED_BYTE = 8  # idx: type of the values


class CifarFiles(NamedTuple):
    """How one of the two datasets is stored. labels: bytes before each image, of which the last counts."""

    folder: str  # that the archive unpacks to
    train: tuple[str, ...]
    test: str
    pickled: str  # a file of the "python version"
    names: str
    classes: int
    labels: int


CIFAR10 = CifarFiles(
    "cifar-10-batches-bin",
    tuple(f"data_batch_{number}.bin" for number in range(1, 6)),
    "test_batch.bin",
    "data_batch_1",
    "batches.meta.txt",
    classes=10,
    labels=1,
)
CIFAR100 = CifarFiles(
    "cifar-100-binary", ("train.bin",), "test.bin", "train", "fine_label_names.txt", classes=100, labels=2
)


def open_cifar(root: Path, config: DataConfig, files: CifarFiles) -> Parts:
    """(train, validation, test) of CIFAR-10, or of CIFAR-100 with its fine labels."""
    if not (root / files.test).exists() and (root / files.folder).is_dir():
        root = root / files.folder
    if (root / files.pickled).is_file() and not (root / f"{files.pickled}.bin").exists():
        raise InputError(
            f'{root} holds the pickled "python version", which is not read because unpickling runs code: '
            'take the "binary version" from https://www.cs.toronto.edu/~kriz/cifar.html'
        )
    classes = read_class_names(root / files.names, files.classes)
    rows = [records(root / name, labels=files.labels) for name in (*files.train, files.test)]
    train, test = cifar(np.concatenate(rows[:-1]), classes, "train"), cifar(rows[-1], classes, "test")
    return *carve(train, config), test


def records(path: Path, *, labels: int) -> NDArray[np.uint8]:
    """(N, 1 + pixels) bytes: of the labels before each image the last."""
    length = labels + PIXELS
    data = np.frombuffer(read(path), dtype=np.uint8)
    if not len(data) or len(data) % length:
        raise InputError(f"{path} has {len(data)} bytes, not a multiple of {length}: fetch it again")
    return data.reshape(-1, length)[:, labels - 1 :]


def cifar(rows: NDArray[np.uint8], classes: tuple[str, ...], part: str) -> ArrayImages:
    """Images from rows of a label and 3x32x32 bytes."""
    targets = rows[:, 0].astype(np.int64)
    if targets.max() >= len(classes):
        raise InputError(f"the {part} part has a label {targets.max()}, but there are {len(classes)} classes")
    pixels = rows[:, 1:].reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1)
    return ArrayImages(np.ascontiguousarray(pixels), targets, classes, name=part)


def read_class_names(path: Path, count: int) -> tuple[str, ...]:
    """A line for each class; numbers if the file is missing."""
    if not path.exists():
        return tuple(str(number) for number in range(count))
    return tuple(path.read_text(encoding="utf-8").split())[:count]


def open_mnist(root: Path, config: DataConfig) -> Parts:
    """(train, validation, test) from the four idx files."""
    train, test = (mnist(root, part) for part in ("train", "test"))
    return *carve(train, config), test


def mnist(root: Path, part: str) -> ArrayImages:
    """One part: images and labels."""
    images, labels = (read_idx(root, name) for name in MNIST_FILES[part])
    if images.ndim != 3 or labels.ndim != 1 or len(images) != len(labels):
        raise InputError(
            f"{root}: {len(images)} images but {len(labels)} labels in the {part} part: fetch both again"
        )
    classes = tuple(str(number) for number in range(max(int(labels.max(initial=0)) + 1, 10)))
    return ArrayImages(images, labels.astype(np.int64), classes, name=part)


def read_idx(root: Path, name: str) -> NDArray[np.uint8]:
    """An array from an idx file: two zero bytes, type, number of sides, the sides (big-endian), values."""
    names = (name, f"{name}.gz", name.replace("-idx", ".idx"), name.replace("-idx", ".idx") + ".gz")
    path = next((root / each for each in names if (root / each).is_file()), None)
    if path is None:
        raise InputError(
            f"there is no {name} or {name}.gz in {root}: mnist:PATH is the folder of its four files"
        )
    data = read(path)
    if data[:3] != bytes((0, 0, UNSIGNED_BYTE)):
        raise InputError(f"{path} is not an idx file of bytes: fetch it again")
    sides = np.frombuffer(data, dtype=">u4", count=data[3], offset=4).astype(int)
    values = np.frombuffer(data, dtype=np.uint8, offset=4 + 4 * data[3])
    if len(values) != sides.prod():
        raise InputError(
            f"{path} has {len(values)} values and not {sides.prod()}: it is truncated, fetch it again"
        )
    return values.reshape(sides)


def read(path: Path) -> bytes:
    """A file's bytes, unpacked if it ends in .gz."""
    try:
        data = path.read_bytes()
        return gzip.decompress(data) if path.suffix == ".gz" else data
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None
    except (EOFError, zlib.error) as error:
        raise InputError(f"{path} is not a whole gzip file ({error}): fetch it again") from None
