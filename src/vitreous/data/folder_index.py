"""Which images a folder of class folders holds: listed in parallel, packed, and for large ones remembered.

A large folder's index is kept in the user's cache. It is used again only while every folder in it has the
modification time that it had, since adding, removing and renaming files changes that.
"""

from __future__ import annotations

import hashlib
import os
import time
import zipfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vitreous.data.decoding import EXTENSIONS
from vitreous.data.file_table import FileTable

LARGE = 20_000  # images; fewer are listed in a fraction of a second
SETTLED = 2_000_000_000  # nanoseconds; some file systems count modification times in steps of two seconds
LISTERS = 16  # threads: listing waits for the disk or the network, not for a core


class FolderIndex(NamedTuple):
    """Images class by class, paths relative to the root; and the folders seen, with modification times."""

    table: FileTable
    counts: NDArray[np.int64]
    folders: FileTable
    stamps: NDArray[np.int64]


class Listing(NamedTuple):
    """What one class folder holds."""

    names: FileTable
    folders: list[str]
    stamps: list[int]


def index_folder(root: Path, classes: Sequence[str]) -> FolderIndex:
    """From the cache if nothing has changed, else from the disk."""
    file = cache_file(root, classes)
    if (known := load(file)) is not None and unchanged(root, known):
        return known
    began = time.time_ns()
    with ThreadPoolExecutor(LISTERS) as executor:
        listings = list(executor.map(lambda name: list_class(root, name), classes))
    index = FolderIndex(
        FileTable.concatenate([listing.names for listing in listings]),
        np.array([len(listing.names) for listing in listings], dtype=np.int64),
        FileTable.of(folder for listing in listings for folder in listing.folders),
        np.array([stamp for listing in listings for stamp in listing.stamps], dtype=np.int64),
    )
    # A folder that was changed just now could be changed again within the same tick of its clock.
    if len(index.table) >= LARGE and index.stamps.max() < began - SETTLED:
        save(index, file)
    return index


def list_class(root: Path, name: str) -> Listing:
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
    names.sort()
    return Listing(FileTable.of(names), folders, stamps)


def unchanged(root: Path, index: FolderIndex) -> bool:
    """Whether every folder is there as it was."""
    try:
        return all(
            (root / index.folders[number]).stat().st_mtime_ns == stamp
            for number, stamp in enumerate(index.stamps.tolist())
        )
    except FileNotFoundError:
        return False


def cache_file(root: Path, classes: Sequence[str]) -> Path:
    """Where the index of a folder with these classes is kept."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    key = "\0".join([str(root.resolve()), *classes]).encode("utf-8", "surrogateescape")
    return home / "vitreous" / "index" / f"{hashlib.sha256(key).hexdigest()[:32]}.npz"


def load(file: Path) -> FolderIndex | None:
    """A kept index; None if there is none that can be read."""
    try:
        with np.load(file, allow_pickle=False) as kept:
            return FolderIndex(
                FileTable(kept["names"], kept["ends"]),
                kept["counts"],
                FileTable(kept["folders"], kept["folder_ends"]),
                kept["stamps"],
            )
    except (OSError, KeyError, ValueError, zipfile.BadZipFile):
        return None


def save(index: FolderIndex, file: Path) -> None:
    """Written beside and renamed. A cache that cannot be written is no reason to stop."""
    beside = file.with_suffix(f".{os.getpid()}.partial.npz")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        np.savez(
            beside,
            names=index.table.names,
            ends=index.table.ends,
            counts=index.counts,
            folders=index.folders.names,
            folder_ends=index.folders.ends,
            stamps=index.stamps,
        )
        os.replace(beside, file)
    except OSError:
        beside.unlink(missing_ok=True)
