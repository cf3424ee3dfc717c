"""DATA from Python: a path or name as the command line takes it, or images and labels in memory."""

from __future__ import annotations

import csv
import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np

from vitreous.errors import InputError
from vitreous.models.preprocessing import as_pil

SEPARATOR = "|"  # between the labels of one image, as data.label_separator has it
FORMS = (
    "a path or name as the command line takes it, a torch Dataset, a Hugging Face dataset, (images, labels), "
    'a list of (image, label), or a mapping {"train": ..., "test": ...} of them'
)


def data_source(data: Any) -> str:
    """Return DATA as the command line writes it. What is in memory is written as a manifest with PNG files.

    The manifest is in the cache ($VITREOUS_CACHE/data), named by its content: so a run on it can be resumed
    and evaluated later, and the same data are not written twice.

    Args:
        data: see `FORMS`. A label is a class (a text or an int), a list of classes for several labels, or a
            float to be predicted by a regression.

    Raises:
        InputError: data of another form, images that are not images, or nothing at all.
    """
    if isinstance(data, str | Path):
        return str(data)
    from vitreous.evaluation.features import cache_folder

    home = cache_folder() / "data"
    try:
        home.mkdir(parents=True, exist_ok=True)
        unfinished = Path(mkdtemp(dir=home, prefix=".unfinished-"))
    except OSError as error:
        raise InputError(f"cannot write data into {home}: {error.strerror}; set VITREOUS_CACHE") from error
    try:
        digest = write_manifest(unfinished, examples_of(data))
        folder = home / digest
        if not folder.exists():
            os.replace(unfinished, folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return str(folder / "manifest.csv")


def write_manifest(folder: Path, examples: Iterable[tuple[str, Any, str]]) -> str:
    """Write images and their manifest, (split, image, label) each. Returns a hash of all.

    Raises:
        InputError: there is no example.
    """
    digest, splits = hashlib.blake2b(digest_size=12), set()
    with (folder / "manifest.csv").open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["path", "label", "split"])
        for number, (split, image, label) in enumerate(examples):
            pixels = as_pil(image)
            name = f"{number:08d}.png"
            pixels.save(folder / name, compress_level=1)
            digest.update(f"{split}\0{label}\0{pixels.mode}{pixels.size}".encode() + pixels.tobytes())
            rows.writerow([name, label, split])
            splits.add(split)
    if not splits:
        raise InputError(f"the data has no example: DATA is {FORMS}")
    if splits == {""}:
        drop_split_column(folder / "manifest.csv")
    return digest.hexdigest()


def drop_split_column(path: Path) -> None:
    """Rewrite a manifest without its empty third column."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = [row[:2] for row in csv.reader(file)]
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)


def examples_of(data: Any) -> Iterator[tuple[str, Any, str]]:
    """Yield (split, image, label) of each example; the split is empty where the data has none."""
    if isinstance(data, Mapping):  # a DatasetDict, too
        for split, part in data.items():
            for image, label in pairs_of(part):
                yield split, image, label
    else:
        for image, label in pairs_of(data):
            yield "", image, label


def pairs_of(data: Any) -> Iterator[tuple[Any, str]]:
    """Yield (image, label) of each example of one part."""
    if hasattr(data, "features") and hasattr(data, "column_names"):
        yield from pairs_of_hugging_face(data)
        return
    if isinstance(data, tuple):
        if len(data) != 2 or len(data[0]) != len(data[1]):
            raise InputError(f"a tuple is (images, labels) of equal length: DATA is {FORMS}")
        pairs: Iterable[Any] = zip(*data, strict=True)
    elif hasattr(data, "__getitem__") and hasattr(data, "__len__"):
        pairs = (data[index] for index in range(len(data)))
    elif isinstance(data, Iterable):
        pairs = data
    else:
        raise InputError(f"DATA is {FORMS}, not {type(data).__name__}")
    names = getattr(data, "classes", None)
    for pair in pairs:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise InputError(f"an example is (image, label), not {type(pair).__name__}: DATA is {FORMS}")
        yield pair[0], label_text(pair[1], names)


def pairs_of_hugging_face(data: Any) -> Iterator[tuple[Any, str]]:
    """Yield (image, label) of a `datasets.Dataset`: its image column, and the class or number beside it.

    Raises:
        InputError: it has no column of images, or none of labels.
    """
    kinds = {name: type(feature).__name__ for name, feature in data.features.items()}
    images = [name for name, kind in kinds.items() if kind == "Image"]
    labels = [name for name, kind in kinds.items() if kind == "ClassLabel"]
    labels += [name for name in ("label", "labels", "target") if name in kinds and name not in labels]
    if not images or not labels:
        raise InputError(
            f"the dataset has the columns {', '.join(kinds)}: one of type Image and one of type ClassLabel "
            "(or named label) are needed"
        )
    names = getattr(data.features[labels[0]], "names", None)
    for row in data:
        yield row[images[0]], label_text(row[labels[0]], names)


def label_text(label: Any, names: Any) -> str:
    """Return a label as a manifest has it: a class by its name, several joined."""
    if isinstance(label, np.ndarray) or hasattr(label, "detach"):
        label = label.tolist()
    if isinstance(label, list | tuple | set):
        return SEPARATOR.join(label_text(each, names) for each in label)
    if isinstance(label, np.generic):
        label = label.item()
    if names is not None and isinstance(label, int) and not isinstance(label, bool):
        return str(names[label])
    return str(label)
