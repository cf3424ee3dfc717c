"""CIFAR and MNIST as their authors give them: plain binary files, read without unpickling anything.

CIFAR: https://www.cs.toronto.edu/~kriz/cifar.html, the *binary version*. MNIST (also Fashion- and KMNIST):
four idx files, packed by gzip or not.
"""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vitreous.data.config import DataConfig
from vitreous.data.dataset import ArrayImages, ImageDataset
from vitreous.data.splitting import carve
from vitreous.errors import InputError

SIDE, PIXELS = 32, 32 * 32 * 3
CIFAR10_FILES = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
MNIST_FILES = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}
UNSIGNED_BYTE = 8  # idx: type of the values


def open_cifar10(root: Path, config: DataConfig) -> tuple[ImageDataset, ImageDataset | None, ImageDataset]:
    """(train, validation, test) from data_batch_1.bin ...: a label byte before each image."""
    root = inside(root, "cifar-10-batches-bin", "test_batch.bin")
    refuse_pickle(root, "data_batch_1")
    classes = class_names(root / "batches.meta.txt", 10)
    train = np.concatenate([records(root / name, labels=1) for name in CIFAR10_FILES])
    test = records(root / "test_batch.bin", labels=1)
    return *carve(cifar(train, classes, "train"), config), cifar(test, classes, "test")


def open_cifar100(root: Path, config: DataConfig) -> tuple[ImageDataset, ImageDataset | None, ImageDataset]:
    """(train, validation, test) from train.bin and test.bin: coarse and fine label before each image; the
    fine one counts."""
    root = inside(root, "cifar-100-binary", "train.bin")
    refuse_pickle(root, "train")
    classes = class_names(root / "fine_label_names.txt", 100)
    train, test = (records(root / name, labels=2)[:, 1:] for name in ("train.bin", "test.bin"))
    return *carve(cifar(train, classes, "train"), config), cifar(test, classes, "test")


def inside(root: Path, folder: str, file: str) -> Path:
    """The folder that holds the files: the one named, or the one that the archive unpacks to in it."""
    return root / folder if not (root / file).exists() and (root / folder).is_dir() else root


def refuse_pickle(root: Path, file: str) -> None:
    """The "python version" is pickled: reading it would run whatever code somebody put there."""
    if (root / file).is_file() and not (root / f"{file}.bin").exists():
        raise InputError(
            f'{root} holds the pickled "python version", which is not read because unpickling runs code: '
            'take the "binary version" from https://www.cs.toronto.edu/~kriz/cifar.html'
        )


def records(path: Path, *, labels: int) -> NDArray[np.uint8]:
    """(N, labels + pixels) bytes."""
    length = labels + PIXELS
    data = np.frombuffer(read(path), dtype=np.uint8)
    if not len(data) or len(data) % length:
        raise InputError(f"{path} has {len(data)} bytes, no multiple of {length}: fetch it again")
    return data.reshape(-1, length)


def cifar(rows: NDArray[np.uint8], classes: tuple[str, ...], part: str) -> ArrayImages:
    """Images from rows of a label and 3x32x32 bytes."""
    targets = rows[:, 0].astype(np.int64)
    check_labels(targets, classes, part)
    pixels = rows[:, 1:].reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1)
    return ArrayImages(np.ascontiguousarray(pixels), targets, classes, name=part)


def check_labels(targets: NDArray[np.int64], classes: tuple[str, ...], part: str) -> None:
    """Every label must have a class."""
    if targets.max(initial=0) >= len(classes):
        raise InputError(f"the {part} part has a label {targets.max()}, but there are {len(classes)} classes")


def class_names(path: Path, count: int) -> tuple[str, ...]:
    """A line for each class; numbers if the file is missing."""
    if not path.exists():
        return tuple(str(number) for number in range(count))
    return tuple(path.read_text(encoding="utf-8").split())[:count]


def open_mnist(root: Path, config: DataConfig) -> tuple[ImageDataset, ImageDataset | None, ImageDataset]:
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
            f"{path} has {len(values)} values and not {sides.prod()}: it is cut short, fetch it again"
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
