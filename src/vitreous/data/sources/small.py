"""Datasets that are in memory as a whole: scikit-learn's handwritten digits, synthetic JPEGs, and CIFAR and
MNIST as their authors give them: plain binary files, read without unpickling anything.

CIFAR: https://www.cs.toronto.edu/~kriz/cifar.html, the *binary version*. MNIST (also Fashion- and KMNIST):
four idx files, packed by gzip or not.
"""

from __future__ import annotations

import gzip
import io
import math
import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from vitreous.data.config import DataConfig
from vitreous.data.dataset import ArrayImages, ClassTargets, ImageDataset, SourceParts
from vitreous.errors import InputError, require_packages
from vitreous.outside import local_path, read_regular, read_text


def open_digits(config: DataConfig) -> SourceParts:
    """Return the digits, of which a test set is held out by scikit-learn's own stratified split, so that
    others can repeat it."""
    require_packages("sklearn", extra="train", what="digits")
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    values, targets = load_digits(return_X_y=True)
    gray = np.rint(values.reshape(-1, 8, 8) * (255 / 16)).astype(np.uint8)
    images = ArrayImages(gray, targets.astype(np.int64), tuple("0123456789"), name="digits")
    if not config.test_fraction:
        return {"train": images}
    train, test = train_test_split(
        np.arange(len(gray)), test_size=config.test_fraction, stratify=targets, random_state=config.split_seed
    )
    return {"train": images.subset(train), "test": images.subset(test)}


CLASSES = 10
VARIANTS = 8  # images of each class; the dataset goes round them
FORM = "synthetic:N@SIZE, such as synthetic:1000@224 or synthetic:1000@375x500 (HxW)"


class SyntheticImages(ImageDataset):
    """Gratings, one direction and color for each of ten classes, with noise: 80 different images however many
    are asked for, so train and test share them, and only speed means anything."""

    source = "synthetic"

    def __init__(self, count: int, height: int, width: int) -> None:
        classes = tuple(f"grating-{number}" for number in range(CLASSES))
        self.targets = ClassTargets(np.arange(count, dtype=np.int64) % CLASSES, classes)
        self.files: list[bytes] = []
        for number in range(min(CLASSES * VARIANTS, count)):
            self.files.append(grating(number % CLASSES, number // CLASSES, height, width))

    def encoded(self, index: int) -> bytes:
        return self.files[index % len(self.files)]


def grating(group: int, variant: int, height: int, width: int) -> bytes:
    """Return waves across an image, as JPEG bytes."""
    rng = np.random.default_rng((group, variant))
    angle = math.pi * group / CLASSES
    y, x = np.mgrid[:height, :width] / min(height, width)
    phase = 12 * math.pi * (x * math.cos(angle) + y * math.sin(angle)) + rng.uniform(0, 2 * math.pi)
    tint = 0.5 + 0.5 * np.cos(2 * math.pi * (group / CLASSES + np.arange(3) / 3))
    values = (0.5 + 0.3 * np.sin(phase))[:, :, None] * (0.4 + 0.6 * tint) * 255
    noisy = values + rng.normal(0, 12, values.shape)
    file = io.BytesIO()
    Image.fromarray(noisy.round().clip(0, 255).astype(np.uint8)).save(file, "JPEG", quality=90)
    return file.getvalue()


def open_synthetic(rest: str) -> SourceParts:
    """Return the images, from what is written after `synthetic:`."""
    count, at, size = rest.partition("@")
    sides = size.lower().split("x")
    if not at or len(sides) > 2 or not all(part.isdigit() and int(part) > 0 for part in (count, *sides)):
        raise InputError(f"synthetic:{rest} is not a synthetic dataset: write {FORM}")
    return {"train": SyntheticImages(int(count), int(sides[0]), int(sides[-1]))}


MOST_UNPACKED = 2**28  # bytes; the largest of these files has 47 million
SIDE, PIXELS = 32, 32 * 32 * 3
MNIST_FILES = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}
UNSIGNED_BYTE = 8  # idx: type of the values


class CifarFiles(NamedTuple):
    """How one of the two datasets is stored. labels: bytes before each image, of which the last counts."""

    folder: str  # that the archive unpacks to
    parts: tuple[str, ...]  # the last one is the test set
    pickled: str  # a file of the "python version"
    names: str
    classes: int
    labels: int


BATCHES = (*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin")
CIFAR10 = CifarFiles("cifar-10-batches-bin", BATCHES, "data_batch_1", "batches.meta.txt", 10, 1)
CIFAR100 = CifarFiles("cifar-100-binary", ("train.bin", "test.bin"), "train", "fine_label_names.txt", 100, 2)


def open_binary(kind: str, place: str) -> SourceParts:
    """Return the parts of MNIST or CIFAR from a folder with their files. Raises InputError: there is none."""
    folder = local_path(place)
    if not place or not folder.is_dir():
        raise InputError(f"there is no folder {place!r}: name the folder that contains the files")
    if kind == "mnist":
        return {part: mnist(folder, part) for part in MNIST_FILES}
    return open_cifar(folder, CIFAR10 if kind == "cifar10" else CIFAR100)


def open_cifar(root: Path, files: CifarFiles) -> SourceParts:
    """Return the parts of CIFAR-10, or of CIFAR-100 with its fine labels."""
    if not (root / files.parts[-1]).exists() and (root / files.folder).is_dir():
        root = root / files.folder
    if (root / files.pickled).is_file() and not (root / f"{files.pickled}.bin").exists():
        raise InputError(
            f'{root} holds the pickled "python version", which is not read because unpickling runs code: '
            'take the "binary version" from https://www.cs.toronto.edu/~kriz/cifar.html'
        )
    names = root / files.names
    known = read_text(names).split() if names.exists() else map(str, range(files.classes))
    classes = tuple(known)[: files.classes]
    *rows, held_out = [records(root / name, files.labels, len(classes)) for name in files.parts]
    return {
        "train": cifar(np.concatenate(rows), classes, "train"),
        "test": cifar(held_out, classes, "test"),
    }


def records(path: Path, labels: int, classes: int) -> NDArray[np.uint8]:
    """Return (N, 1 + pixels) bytes: of the labels before each image the last."""
    length = labels + PIXELS
    data = np.frombuffer(read_unpacked(path), dtype=np.uint8)
    if not len(data) or len(data) % length:
        raise InputError(f"{path} has {len(data)} bytes, not a multiple of {length}: download it again")
    rows = data.reshape(-1, length)[:, labels - 1 :]
    if rows[:, 0].max() >= classes:
        raise InputError(f"{path} has a label {rows[:, 0].max()}, but there are {classes} classes")
    return rows


def cifar(rows: NDArray[np.uint8], classes: tuple[str, ...], part: str) -> ArrayImages:
    """Return images from rows of a label and 3x32x32 bytes."""
    pixels = rows[:, 1:].reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1)
    return ArrayImages(np.ascontiguousarray(pixels), rows[:, 0].astype(np.int64), classes, name=part)


def mnist(root: Path, part: str) -> ArrayImages:
    """Return one part: images and labels."""
    image_file, label_file = MNIST_FILES[part]
    images, labels = read_idx(root, image_file), read_idx(root, label_file)
    if images.ndim != 3 or labels.ndim != 1 or len(images) != len(labels):
        raise InputError(
            f"{root}: {len(images)} images but {len(labels)} labels in the {part} set: download both again"
        )
    classes = tuple(str(number) for number in range(max(int(labels.max(initial=0)) + 1, 10)))
    return ArrayImages(images, labels.astype(np.int64), classes, name=part)


def read_idx(root: Path, name: str) -> NDArray[np.uint8]:
    """Return an array from an idx file: two zero bytes, type, number of sides, the sides (big-endian),
    values."""
    names = (name, f"{name}.gz", name.replace("-idx", ".idx"), name.replace("-idx", ".idx") + ".gz")
    there = [root / each for each in names if (root / each).is_file()]
    if not there:
        raise InputError(
            f"there is no {name} or {name}.gz in {root}: mnist:PATH names the folder with its four files"
        )
    path = there[0]
    data = read_unpacked(path)
    if data[:3] != bytes((0, 0, UNSIGNED_BYTE)):
        raise InputError(f"{path} is not an idx file of bytes: download it again")
    if not 1 <= data[3] <= 4 or len(data) < 4 + 4 * data[3]:
        raise InputError(f"{path} is not an idx file of images or labels: download it again")
    sides: list[int] = np.frombuffer(data, dtype=">u4", count=data[3], offset=4).tolist()
    values = np.frombuffer(data[4 + 4 * data[3] :], dtype=np.uint8)
    if len(values) != math.prod(sides):
        raise InputError(
            f"{path} has {len(values)} values instead of {math.prod(sides)}: it is truncated; download it "
            "again"
        )
    return values.reshape(sides)


def read_unpacked(path: Path) -> bytes:
    """Return a file's bytes, unpacked if it ends in .gz."""
    try:
        data = read_regular(path)
        if path.suffix != ".gz":
            return data
        with gzip.open(io.BytesIO(data)) as file:
            unpacked = file.read(MOST_UNPACKED + 1)
        if len(unpacked) > MOST_UNPACKED:
            raise InputError(f"{path} unpacks to more than {MOST_UNPACKED} bytes: download it again")
        return unpacked
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None
    except (EOFError, zlib.error) as error:
        raise InputError(f"{path} is not a complete gzip file ({error}): download it again") from None
