"""DATA given from Python: a torch Dataset, a Hugging Face dataset, arrays, or a list of images with their
labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from PIL import Image

from vitreous.data.config import DataConfig, Targets
from vitreous.data.dataset import ImageDataset, Parts
from vitreous.data.decoding import BadImage
from vitreous.data.held_out import PARTS, with_own_parts
from vitreous.data.sources.hub import open_tables
from vitreous.data.sources.labels import (
    classes_if_any,
    named_targets,
    numbers_of,
    refuse_captions,
    refuse_numbers,
)
from vitreous.errors import InputError, check_utf8
from vitreous.models.preprocessing import as_pil, as_stored

KINDS = (
    "a torch Dataset of (image, label), a datasets.Dataset, a tuple (images, labels) of arrays, a list of "
    "(image, label), or a dictionary of these named train, val and test"
)


class ObjectImages(ImageDataset):
    """Images of a Python object, converted when asked for. Threads ask for several at a time.

    Args:
        images: gives an image, whatever `as_pil` takes, or a pair (image, label), by its number.
        pairs: whether it gives pairs.
    """

    def __init__(
        self, images: Any, targets: Any, classes: tuple[str, ...], *, pairs: bool, name: str
    ) -> None:
        self.images, self.targets, self.classes = images, targets, classes
        self.pairs, self.source = pairs, name

    def image(self, index: int) -> Image.Image:
        return self.read(index, as_pil)

    def stored(self, index: int) -> Any:
        return self.read(index, as_stored)

    def read(self, index: int, convert: Callable[[Any], Any]) -> Any:
        """Return an image as `convert` makes it. Raises BadImage."""
        try:
            item = self.images[index]
            return convert(item[0] if self.pairs else item)
        except Exception as error:  # whatever the user's code raises: the image is counted and named
            raise BadImage(self.name(index), " ".join(str(error).split()) or type(error).__name__) from error


def open_objects(data: Any, config: DataConfig, kind: Targets) -> Parts:
    """Return (train, validation, test) of Python objects.

    Args:
        data: one of KINDS, or images alone where no labels are needed. A label is a class number, a class
            name, a list of class names, or a row of numbers, one for each class; to predict numbers, a
            number.

    Raises:
        InputError: it is something else, or the labels do not belong together.
    """
    parts = data if isinstance(data, Mapping) else {"train": data}
    if unknown := sorted(set(map(str, parts)) - PARTS.keys()):
        raise InputError(f"DATA has a part {unknown[0]!r}: name them train, val and test")
    if "train" not in parts:
        raise InputError("DATA has no part 'train': name the images to train on so")
    if hasattr(parts["train"], "cast_column"):  # of the datasets library
        return open_tables(dict(parts), "datasets.Dataset", config, kind)
    train = read_objects(parts["train"], kind)
    held_out = {
        name: read_objects(part, kind, classes=train.classes)
        for name, part in parts.items()
        if name != "train"
    }
    return with_own_parts(train, held_out, config, where=train.source)


def read_objects(data: Any, kind: Targets, classes: tuple[str, ...] | None = None) -> ObjectImages:
    """Return one part. classes: those of the training part, where this is another one."""
    name = type(data).__name__
    if isinstance(data, tuple) and len(data) == 2 and hasattr(data[0], "__len__"):
        images, given = data
        labels, pairs = list(getattr(given, "tolist", lambda: given)()), False
        if len(images) != len(labels):
            raise InputError(
                f"DATA has {len(images)} images and {len(labels)} labels: give one for each image"
            )
    elif hasattr(data, "__getitem__") and hasattr(data, "__len__") and not isinstance(data, str | bytes):
        alone = kind == "unlabeled" and len(data) and not isinstance(data[0], list | tuple)
        images, pairs, labels = data, not alone, [None] * len(data) if alone else pair_labels(data)
    else:
        raise InputError(f"DATA is a {name}: give {KINDS}")
    if not len(labels):
        raise InputError(f"DATA ({name}) is empty: give {KINDS}")
    known = classes or tuple(map(str, getattr(data, "classes", ())))
    if kind == "numbers":
        return ObjectImages(images, numbers_of(labels, name), (), pairs=pairs, name=name)
    read = partial(class_targets, labels, known, name)
    targets, found = classes_if_any(read, len(labels), kind, classes or ())
    return ObjectImages(images, targets, found, pairs=pairs, name=name)


def pair_labels(data: Any) -> list[Any]:
    """Return the labels of a dataset of pairs: its attribute `targets`, as torchvision has it, or from the
    items, each of which is read once."""
    targets = getattr(data, "targets", None)
    if targets is not None and len(targets) == len(data):
        return list(getattr(targets, "tolist", lambda: targets)())
    labels = []
    for index in range(len(data)):
        item = data[index]
        if not isinstance(item, Sequence) or len(item) != 2:
            raise InputError(f"item {index} of DATA is not a pair (image, label): give {KINDS}")
        labels.append(item[1])
    return labels


def class_targets(labels: Sequence[Any], classes: tuple[str, ...], name: str) -> tuple[Any, tuple[str, ...]]:
    """Return (targets, classes). classes: their names where they are known; there are no others then."""
    plain = [getattr(label, "tolist", lambda label=label: label)() for label in labels]
    if plain and all(isinstance(label, list | tuple) and len(label) == 1 for label in plain):
        plain = [label[0] for label in plain]  # (N, 1), as a column of a table
    several = [isinstance(label, list | tuple | set) for label in plain]
    if any(several) and not all(several):
        raise InputError(f"{name} has one label for some images and several for others: give a list for each")
    if all(several) and any(plain) and not any(isinstance(each, str) for label in plain for each in label):
        return rows_of(plain, classes, name)
    unusual = InputError(f"{name} has labels that are neither class numbers nor names: {plain[0]!r:.60}")
    try:
        values = {value for label in plain for value in (label if any(several) else [label])}
    except TypeError:  # an image as a mask, for example
        raise unusual from None
    texts = [dict.fromkeys(map(str, each), 1.0) if any(several) else str(each) for each in plain]
    if not values:
        raise InputError(f"{name} has no label for any image: give some images one")
    if all(isinstance(value, int) and not isinstance(value, bool) for value in values):
        if not classes:
            refuse_numbers([str(label) for label in plain], name)
        if min(values) < 0 or (classes and max(values) >= len(classes)):
            most = len(classes) - 1 if classes else "the number of classes - 1"
            wrong = min(values) if min(values) < 0 else max(values)
            raise InputError(f"{name} has the label {wrong}: give 0 ... {most}")
        numbers = tuple(map(str, range(len(classes) or max(values) + 1)))
        targets, classes = named_targets(texts, name, numbers)[0], classes or numbers  # names may be equal
    elif all(isinstance(value, str | bool) for value in values):
        if not classes:
            named = [[each] if isinstance(each, str) else each for each in texts]
            refuse_captions([text for each in named for text in each], name)
        targets, classes = named_targets(texts, name, classes)
    else:
        refuse_numbers([str(label) for label in plain], name)
        raise unusual
    for each in classes:
        check_utf8(each, "the class")
    return targets, classes


def rows_of(labels: Sequence[Any], classes: tuple[str, ...], name: str) -> tuple[Any, tuple[str, ...]]:
    """Return rows of numbers, one for each class, as they are, as a sparse matrix."""
    from scipy.sparse import csr_array

    if any(isinstance(each, list | tuple) for label in labels for each in label):
        raise InputError(f"{name} has tables as labels: give a class, or one number for each class")
    widths = {len(label) for label in labels}
    if len(widths) > 1 or (classes and widths != {len(classes)}):
        raise InputError(
            f"{name} has rows of {sorted(widths)} numbers as labels: give one number for each class"
        )
    rows = np.array(labels, dtype=np.float32)
    if not ((rows >= 0) & (rows <= 1)).all():
        raise InputError(f"{name} has labels outside 0 ... 1: a row says for each class whether it applies")
    return csr_array(rows), classes or tuple(map(str, range(rows.shape[1])))
