"""A folder with a sub-folder for each class; or with train/ and val/ or test/ that hold such sub-folders."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from vitreous.data.config import DataConfig
from vitreous.data.dataset import ImageDataset
from vitreous.data.decoding import EXTENSIONS
from vitreous.data.folder_index import index_folder
from vitreous.data.sources.files import FileImages
from vitreous.data.splitting import VALIDATION, carve, split
from vitreous.errors import InputError


def open_folder(
    root: Path, config: DataConfig, *, empty: list[Path] | None = None
) -> tuple[ImageDataset, ImageDataset | None, ImageDataset | None]:
    """(train, validation, test). A single held-out folder, val/ or test/, is the test set: nothing is chosen
    by it. With both, val/ is for validation.

    empty: takes the class folders without an image. Where it is not given, the first one is an error.
    """
    if not (root / "train").is_dir():
        return split(class_folder(root, empty=empty), config)
    train = class_folder(root / "train", empty=empty)
    held = [root / name for name in (*VALIDATION, "test") if (root / name).is_dir()]
    if not held:
        return split(train, config)
    parts = [class_folder(folder, classes=train.classes, empty=empty) for folder in held]
    if len(parts) == 1:
        return *carve(train, config), parts[0]
    return train, parts[0], parts[-1]


def class_folder(
    root: Path, *, classes: tuple[str, ...] | None = None, empty: list[Path] | None = None
) -> FileImages:
    """All images below the class folders of `root`. classes: those that there may be, numbered so. empty:
    takes the folders without an image, as long as one has some."""
    found = subfolders(root)
    if not found:
        raise InputError(
            f"{root} has no class folders: put the images of each class in a folder of its own, as in "
            f"{root}/cat/1.jpg and {root}/dog/2.jpg"
        )
    if classes is None:
        classes = found
        if len(classes) == 1:
            raise InputError(
                f"{root} has a single class, {classes[0]!r}: a classifier needs two class folders or more"
            )
    elif unknown := sorted(set(found) - set(classes)):
        raise InputError(f"{root} has a class {unknown[0]!r} that train/ has not: add it there or remove it")
    index = index_folder(root, found)
    without = [root / name for name, count in zip(found, index.counts, strict=True) if not count]
    if without and (empty is None or not index.counts.any()):
        raise InputError(
            f"the class folder {without[0]} holds no image ({', '.join(EXTENSIONS)}): add some, or remove "
            "the folder"
        )
    if empty is not None:
        empty += without
    numbers = np.array([classes.index(name) for name in found], dtype=np.int64)
    return FileImages(root, index.table, np.repeat(numbers, index.counts), classes)


def subfolders(root: Path) -> tuple[str, ...]:
    """Names of the folders in a folder, sorted; hidden ones are not looked at."""
    with os.scandir(root) as entries:
        return tuple(sorted(each.name for each in entries if each.is_dir() and each.name[0] != "."))
