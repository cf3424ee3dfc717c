"""Report what the cache contains, and clear it. Importing this takes milliseconds."""

from __future__ import annotations

import os
import re
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from vitreous.errors import InputError, cache_folder, nearest
from vitreous.extensions import addons
from vitreous.results import Result

KINDS = {
    "features": "features of frozen models, kept for probes",
    "data": "images and labels that were given in memory",
    "remote": "shards that were fetched",
    "indexes": "names and labels of large folders and shards",
    "downloads": "checkpoints of https: addresses",
    "alike": "which images of a dataset look alike",
    "mirrored": "whether mirror images of a dataset help",
    "compiled": "machine code of loops over pixels",
}
for addon in addons().values():
    KINDS |= addon.caches
# The names that the cache gives: hashes, locks, and what was not finished.
CACHED = re.compile(
    r"\.?[0-9a-f]{16,40}(\.(safetensors|npz|npy|tar|lock))?(\.\d+-[0-9a-f]{8}\.tmp.*)?|[0-9a-f]{2}\.lock|\.unfinished-.*"
    r"|\w+_[0-9a-f]{40}"  # Numba's folder of a package
)


@dataclass(frozen=True)
class CacheUse(Result):
    """The cache's folder, and the bytes of each kind of content."""

    folder: Path
    bytes: dict[str, int]

    def to_json(self) -> dict[str, object]:
        return {"folder": str(self.folder), "bytes": self.bytes, "total_bytes": sum(self.bytes.values())}

    def table(self) -> list[dict[str, object]]:
        """Return one row for each kind of content."""
        return [{"kind": kind, "what": KINDS[kind], "bytes": size} for kind, size in self.bytes.items()]


def cache_use() -> CacheUse:
    """Measure what the cache ($VITREOUS_CACHE, or ~/.cache/vitreous) contains."""
    folder = cache_folder()
    return CacheUse(folder, {kind: sum(map(bytes_of, cached_in(folder / kind))) for kind in KINDS})


def cached_in(folder: Path) -> list[Path]:
    """Return the cache's own files and folders in one of its folders. Other files may be the user's,
    if $VITREOUS_CACHE points to a folder that already had subfolders with these names."""
    with suppress(FileNotFoundError, NotADirectoryError):
        return [each for each in folder.iterdir() if CACHED.fullmatch(each.name)]
    return []


def bytes_of(path: Path) -> int:
    """Return the size of a file, or of all files in a folder; other processes may remove them at any time."""
    files: list[Path] = []
    for parent, _, names in os.walk(path):
        files += [Path(parent, name) for name in names]
    total = 0
    for file in files or [path]:
        with suppress(FileNotFoundError):
            total += file.stat().st_size
    return total


def clear_cache(kind: str | None = None) -> CacheUse:
    """Delete the content of the cache, or one kind of it, but no other files. Returns what was deleted.

    Args:
        kind: a kind of content that `cache_use` lists, such as "features" or "downloads"; by default, all
            kinds.

    Raises:
        InputError: the kind does not exist, or a file cannot be deleted.
    """
    if kind is not None and kind not in KINDS:
        raise InputError(f"unknown kind {kind!r}: {nearest(kind, list(KINDS))}")
    use = cache_use()
    deleted = {name: size for name, size in use.bytes.items() if kind in (None, name)}
    for folder in (use.folder / name for name in deleted):
        try:
            while found := cached_in(folder):
                for each in found:
                    # Another process may have removed something of it before.
                    with suppress(FileNotFoundError):
                        shutil.rmtree(each) if each.is_dir() and not each.is_symlink() else each.unlink()
        except OSError as error:
            raise InputError(f"cannot delete {folder}: {error.strerror or error}") from error
        # The folder may be gone, have files of others, or be a link to another disk.
        with suppress(OSError):
            folder.rmdir()
    return CacheUse(use.folder, deleted)
