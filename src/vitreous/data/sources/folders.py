"""A folder with a sub-folder for each class; or with train/ and val/ or test/ that hold such sub-folders.

The files are listed in parallel. A large folder's index is cached in the user's cache directory, and used
again only while every folder in it has the same modification time, since adding, removing and renaming files
change that.
"""

from __future__ import annotations

import hashlib
import os
import time
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vitreous.checkpoints.whole_files import whole
from vitreous.data.config import DataConfig
from vitreous.data.dataset import (
    VALIDATION,
    ImageDataset,
    Parts,
    check_classes,
    split,
    with_own_parts,
)
from vitreous.data.decoding import EXTENSIONS, read_file
from vitreous.data.loading import in_threads
from vitreous.errors import InputError

LARGE = 20_000  # images; fewer are listed in a fraction of a second
SETTLED = 2_000_000_000  # nanoseconds; some file systems count modification times in steps of two seconds
LISTERS = 16  # threads: listing waits for the disk or the network, not for a core


Paths = NDArray[Any]  # (N,) of bytes: a third of the memory of strings


def path_array(paths: Iterable[str]) -> Paths:
    """Return relative paths as bytes; those that are not UTF-8 (file systems allow them) survive."""
    return np.array([os.fsencode(path) for path in paths], dtype=np.bytes_)


class FileImages(ImageDataset):
    """Files below a folder, read when asked for."""

    def __init__(self, root: Path, paths: Paths, targets: NDArray[Any], classes: tuple[str, ...]) -> None:
        self.root, self.paths, self.targets, self.classes = str(root), paths, targets, classes

    def name(self, index: int) -> str:
        return os.path.join(self.root, os.fsdecode(self.paths[index]))  # a manifest may have absolute paths

    def encoded(self, index: int) -> bytes:
        return read_file(self.name(index))


class FolderIndex(NamedTuple):
    """Images class by class, paths relative to the root; and the folders seen, with modification times."""

    paths: Paths
    counts: NDArray[np.int64]
    folders: Paths
    stamps: NDArray[np.int64]


def index_folder(root: Path, classes: Sequence[str]) -> FolderIndex:
    """From the cache if nothing has changed, else from the disk."""
    file = cache_file(root, classes)
    if (known := load_index(file)) is not None and unchanged(root, known):
        return known
    began = time.time_ns()
    listed = list(in_threads(lambda name: list_class(root, name), classes, workers=LISTERS))
    index = FolderIndex(*map(np.concatenate, zip(*listed, strict=True)))
    # A folder that was changed just now could be changed again within the same tick of its clock.
    if len(index.paths) >= LARGE and index.stamps.max() < began - SETTLED:
        save_index(index, file)
    return index


def list_class(root: Path, name: str) -> FolderIndex:
    """The images below one class folder, sorted; hidden files and folders are not looked at."""
    names: list[str] = []
    folders, stamps = [], []
    waiting = [name]
    while waiting:
        folder = waiting.pop()
        folders.append(folder)
        stamps.append((root / folder).stat().st_mtime_ns)
        with os.scandir(root / folder) as entries:
            for entry in entries:
                if entry.name[0] == ".":
                    continue
                if entry.name.lower().endswith(EXTENSIONS):
                    names.append(f"{folder}/{entry.name}")
                elif entry.is_dir():
                    waiting.append(f"{folder}/{entry.name}")
    return FolderIndex(
        path_array(sorted(names)), np.array([len(names)]), path_array(folders), np.array(stamps)
    )


def unchanged(root: Path, index: FolderIndex) -> bool:
    """Whether every folder is there as it was."""
    try:
        folders = zip(index.folders.tolist(), index.stamps.tolist(), strict=True)
        return all((root / os.fsdecode(name)).stat().st_mtime_ns == stamp for name, stamp in folders)
    except FileNotFoundError:
        return False


def cache_file(root: Path, classes: Sequence[str]) -> Path:
    """Where the index of a folder with these classes is kept."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    key = "\0".join([str(root.resolve()), *classes]).encode("utf-8", "surrogateescape")
    return home / "vitreous" / "index" / f"{hashlib.sha256(key).hexdigest()[:32]}.npz"


def load_index(file: Path) -> FolderIndex | None:
    """A cached index; None if there is none that can be read."""
    try:
        with np.load(file, allow_pickle=False) as cached:
            return FolderIndex(*(cached[field] for field in FolderIndex._fields))
    except (OSError, KeyError, ValueError, zipfile.BadZipFile):
        return None


def save_index(index: FolderIndex, file: Path) -> None:
    """Write a cached index as a whole. A cache that cannot be written does not stop anything."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with whole(file) as beside, beside.open("wb") as opened:
            arrays: dict[str, Any] = index._asdict()
            np.savez(opened, **arrays)
    except OSError:
        return


def open_folder(root: Path, config: DataConfig, *, empty: list[Path] | None = None) -> Parts:
    """Return (train, validation, test) of a folder, its own parts where it has train/.

    Args:
        empty: receives the class folders without an image. Without it, the first one is an error.
    """
    if not (root / "train").is_dir():
        return split(class_folder(root, empty=empty), config)
    train = class_folder(root / "train", empty=empty)
    held_out = {
        name: class_folder(root / name, classes=train.classes, empty=empty)
        for name in (*VALIDATION, "test")
        if (root / name).is_dir()
    }
    return with_own_parts(train, held_out, config, where=str(root))


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
        check_classes(classes, str(root))
    elif unknown := sorted(set(found) - set(classes)):
        raise InputError(f"{root} has a class {unknown[0]!r} that train/ lacks: add it there or remove it")
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
    return FileImages(root, index.paths, np.repeat(numbers, index.counts), classes)


def subfolders(root: Path) -> tuple[str, ...]:
    """Names of the folders in a folder, sorted; hidden ones are not looked at."""
    with os.scandir(root) as entries:
        return tuple(sorted(each.name for each in entries if each.is_dir() and each.name[0] != "."))
