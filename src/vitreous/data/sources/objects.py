"""DATA given from Python: a torch Dataset, a Hugging Face dataset, arrays, or a list of images with their
labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, Protocol, runtime_checkable

import numpy as np

from vitreous.data.config import TargetKind
from vitreous.data.dataset import PARTS, ClassTargets, ImageDataset, LabelTargets, SourceParts, Targets
from vitreous.data.sources.hub import open_tables
from vitreous.data.sources.labels import (
    classes_if_any,
    finite_numbers,
    named_targets,
    refuse_captions,
    refuse_numbers,
)
from vitreous.errors import InputError
from vitreous.models.stored import BadImage, ImageLike, image_in_memory

KINDS = (
    "a torch Dataset of (image, label), a datasets.Dataset, a tuple (images, labels) of arrays, a list of "
    "(image, label), or a dictionary of these named train, val and test"
)


@runtime_checkable
class Indexed(Protocol):
    """What numbers its items from 0: a list, an array, a torch Dataset of the user."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> Any: ...


class ObjectImages(ImageDataset):
    """Images of a Python object, converted when asked for. Threads ask for several at a time.

    Args:
        images: gives an image, whatever `stored` takes, or a pair (image, label), by its number.
        pairs: whether it gives pairs.
    """

    def __init__(self, images: Indexed, targets: Targets, *, pairs: bool, name: str) -> None:
        self.images, self.targets, self.pairs, self.source = images, targets, pairs, name

    def held(self, index: int) -> ImageLike:
        try:
            item = self.images[index]
            return image_in_memory(item[0] if self.pairs else item)
        except Exception as error:
            # The user's code may raise anything: the image is counted and named.
            raise BadImage(self.name(index), " ".join(str(error).split()) or type(error).__name__) from error


def open_objects(data: object, kind: TargetKind) -> SourceParts:
    """Return the parts of Python objects.

    Args:
        data: one of KINDS, or images alone where no labels are needed. A label is a class number, a class
            name, a list of class names, or a row of numbers, one for each class; to predict numbers, a
            number.

    Raises:
        InputError: it is something else, or the labels do not belong together.
    """
    parts = data if isinstance(data, Mapping) else {"train": data}
    if unknown := sorted(set(map(str, parts)) - PARTS.keys()):
        raise InputError(f"DATA has a split {unknown[0]!r}: name the splits train, val and test")
    if "train" not in parts:
        raise InputError("DATA has no split 'train': pass the training images that name")
    if hasattr(parts["train"], "cast_column"):  # of the datasets library
        return open_tables(dict(parts), "datasets.Dataset", kind)
    found = {"train": read_objects(parts["train"], kind)}
    for name, part in parts.items():
        if name != "train":
            found[name] = read_objects(part, kind, classes=found["train"].classes)
    return found


def read_objects(data: object, kind: TargetKind, classes: tuple[str, ...] | None = None) -> ObjectImages:
    """Return one part. classes: those of the training set, where this is another one."""
    name = type(data).__name__
    images: Indexed
    labels: Sequence[object]
    if isinstance(data, tuple) and len(data) == 2 and hasattr(data[0], "__len__"):
        images, pairs = data[0], False
        labels = list(as_plain(data[1]))
        if len(images) != len(labels):
            raise InputError(
                f"DATA has {len(images)} images and {len(labels)} labels: pass one for each image"
            )
    elif isinstance(data, Indexed) and not isinstance(data, str | bytes):
        images = data
        pairs = kind != "unlabeled" or not len(data) or isinstance(data[0], list | tuple)
        labels = pair_labels(data) if pairs else [None] * len(data)
    else:
        raise InputError(f"DATA is a {name}: pass {KINDS}")
    if not labels:
        raise InputError(f"DATA ({name}) is empty: pass {KINDS}")
    if kind == "numbers":
        return ObjectImages(images, finite_numbers(labels, name), pairs=pairs, name=name)
    known = classes or tuple(map(str, getattr(data, "classes", ())))
    read = partial(class_targets, labels, known, name)
    targets = classes_if_any(read, len(labels), kind, classes or ())
    return ObjectImages(images, targets, pairs=pairs, name=name)


def as_plain(value: object) -> Any:
    """Return an array or a tensor as a list or a number, anything else as it is."""
    return value.tolist() if hasattr(value, "tolist") else value


def pair_labels(data: Indexed) -> list[object]:
    """Return the labels of a dataset of pairs: its attribute `targets`, as torchvision has it, or from the
    items, each of which is read once."""
    targets = getattr(data, "targets", None)
    if targets is not None and len(targets) == len(data):
        return list(as_plain(targets))
    labels = []
    for index in range(len(data)):
        item = data[index]
        if not isinstance(item, Sequence) or len(item) != 2:
            raise InputError(f"item {index} of DATA is not a pair (image, label): pass {KINDS}")
        labels.append(item[1])
    return labels


def class_targets(
    labels: Sequence[object], classes: tuple[str, ...], name: str
) -> ClassTargets | LabelTargets:
    """Return the targets of labels. classes: their names where they are known; there are no others then."""
    plain = [as_plain(label) for label in labels]
    if plain and all(isinstance(label, list | tuple) and len(label) == 1 for label in plain):
        plain = [label[0] for label in plain]  # (N, 1), as a column of a table

    # Several labels for each image, or one: all the values that there are, and of which types they are.
    several = [isinstance(label, list | tuple | set) for label in plain]
    if any(several) and not all(several):
        raise InputError(f"{name} has one label for some images and several for others: pass a list for each")
    rows = [list(label) if lists else [label] for label, lists in zip(plain, several, strict=True)]
    values = list(chain.from_iterable(rows))
    if not values:
        raise InputError(f"{name} has no label for any image: label some images")
    are_texts = [isinstance(value, str) for value in values]
    are_flags = [isinstance(value, bool) for value in values]
    are_numbers = [isinstance(value, int) and not isinstance(value, bool) for value in values]

    targets: ClassTargets | LabelTargets
    if any(several) and not any(are_texts):
        targets = weighted_targets(plain, classes, name)
    elif all(are_numbers):
        targets = numbered_targets(values, classes, name)
    elif all(np.logical_or(are_texts, are_flags)):
        texts = list(map(str, values))
        if not classes:
            refuse_captions(texts, name)
        if any(several):
            weights = [dict.fromkeys(map(str, row), 1.0) for row in rows]
            targets = named_targets(weights, name, classes)
        else:
            targets = named_targets(texts, name, classes)
    else:
        refuse_numbers([str(label) for label in plain], name)
        raise InputError(f"{name} has labels that are neither class numbers nor names: {plain[0]!r:.60}")
    return targets


def numbered_targets(numbers: Sequence[int], classes: tuple[str, ...], name: str) -> ClassTargets:
    """Return class numbers as targets. Raises InputError: there is no such class."""
    if not classes:
        refuse_numbers([str(number) for number in numbers], name)
    least, largest = min(numbers), max(numbers)
    if least < 0 or (classes and largest >= len(classes)):
        most = len(classes) - 1 if classes else "the number of classes - 1"
        raise InputError(f"{name} has the label {least if least < 0 else largest}: pass 0 ... {most}")
    return ClassTargets(np.array(numbers, dtype=np.int64), classes or tuple(map(str, range(largest + 1))))


def weighted_targets(labels: Sequence[Sequence[float]], classes: tuple[str, ...], name: str) -> LabelTargets:
    """Return rows of numbers, one for each class, as the weights of classes."""
    from scipy.sparse import csr_array

    if any(isinstance(value, list | tuple) for value in chain.from_iterable(labels)):
        raise InputError(
            f"{name} has tables as labels: give each image a class, or one number for each class"
        )
    widths = {len(label) for label in labels}
    if len(widths) > 1 or (classes and widths != {len(classes)}):
        raise InputError(
            f"{name} has rows of {sorted(widths)} numbers as labels: pass one number for each class"
        )
    rows = np.array(labels, dtype=np.float32)
    if not ((rows >= 0) & (rows <= 1)).all():
        raise InputError(
            f"{name} has labels outside 0 ... 1: each number of a row says whether a class applies"
        )
    return LabelTargets(csr_array(rows), classes or tuple(map(str, range(rows.shape[1]))))
