"""Shards on this machine, or elsewhere: s3://, gs://, https://, hf:// and whatever else fsspec knows.

A shard that is elsewhere is fetched when it is first needed, as a whole, and kept in the user's cache
directory; where the shards there exceed `data.form.cache_gb`, those that were used longest ago are removed.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from vitreous.data.workers import in_threads
from vitreous.errors import InputError, cache_folder, require_packages
from vitreous.outside import is_url, local_path, open_regular, parse_digits, read_text
from vitreous.whole_files import whole

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

BRACES = re.compile(r"\{(\d+)\.\.(\d+)\}")
FORM = "name-{000..099}.tar"
MOST_SHARDS = 1_000_000  # that braces may name
ATTEMPTS = 4  # to fetch a shard, with a longer pause before each
LISTERS = 16  # threads, which wait for the network
FileInfo = Mapping[str, object]  # what fsspec says of a file: its name, its size ...
CHANGES = ("ETag", "etag", "mtime", "LastModified", "last_modified", "updated", "created")


class Shard(NamedTuple):
    """A tar file. changed: what differs where its content does, as a time or a tag."""

    location: str
    size: int
    changed: str

    def __str__(self) -> str:
        return self.location

    @property
    def name(self) -> str:
        return self.location.rpartition("/")[2]

    @property
    def remote(self) -> bool:
        return is_url(self.location)


class OpenShard:
    """An open shard, fetched if it is not here, and closed when nothing uses it anymore: threads may still
    read from one that a cache of open files has given up. Raises OSError: it cannot be opened."""

    def __init__(self, shard: Shard, cache_bytes: float) -> None:
        if shard.remote:
            self.descriptor = open_cached(shard, cache_bytes)
        else:
            with open_regular(shard.location) as file:
                self.descriptor = os.dup(file.fileno())

    def __del__(self) -> None:
        if "descriptor" in self.__dict__:
            os.close(self.descriptor)


def find_shards(spec: str) -> list[Shard]:
    """Return the files of `a-{000..002}.tar`, or of a glob. Raises InputError where one is missing."""
    if is_url(spec):
        return find_remote(spec)
    if names := expanded(spec):
        paths = [local_path(name) for name in names]
    else:
        folder, pattern = os.path.split(spec)
        paths = sorted(local_path(folder or ".").glob(pattern))
        if not paths:
            raise InputError(f"there is no {spec}: write shards as {FORM}")
    shards = []
    for path in paths:
        try:
            info = path.stat()
        except FileNotFoundError:
            raise missing(str(path), spec) from None
        shards.append(Shard(str(path), info.st_size, str(info.st_mtime_ns)))
    return shards


def expanded(spec: str) -> list[str]:
    """Return the names that braces mean; none where there are no braces."""
    found = BRACES.search(spec)
    if found is None:
        return []
    first, last = found.groups()
    try:
        low, high = parse_digits(first), parse_digits(last)
    except ValueError as error:
        raise InputError(f"{spec}: {error}: write shards as {FORM}") from None
    if low > high:
        raise InputError(f"{spec} counts down: write shards as {FORM}")
    if high - low >= MOST_SHARDS:
        raise InputError(f"{spec} names {high - low + 1} shards, more than {MOST_SHARDS}: write {FORM}")
    before, after, digits = spec[: found.start()], spec[found.end() :], len(first)
    return [f"{before}{number:0{digits}}{after}" for number in range(low, high + 1)]


def missing(location: str, spec: str) -> InputError:
    return InputError(f"there is no shard {location}, which {spec} includes: name only existing shards")


@contextmanager
def reaching(spec: str) -> Iterator[AbstractFileSystem]:
    """Give the file system of a URL. Raises InputError where it cannot be reached."""
    require_packages("fsspec", extra="data", what=f"DATA at {spec}")
    import fsspec

    try:
        yield fsspec.url_to_fs(spec)[0]
    except (InputError, FileNotFoundError):
        raise
    except Exception as error:
        # The library that talks to this store may raise anything.
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"{spec} cannot be reached: {reason}") from error


def find_remote(spec: str) -> list[Shard]:
    """Return the shards of a URL: by listing their folder, in one request for many, where the store can."""
    names = expanded(spec)
    with reaching(spec) as system:
        if names:
            found = dict(zip(names, infos_of(system, names, spec), strict=True))
        else:
            found = {}
            for path, info in sorted(system.glob(spec, detail=True).items()):
                found[system.unstrip_protocol(path)] = info
    if not found:
        raise InputError(f"there is no {spec}: write shards as {spec.partition('://')[0]}://.../{FORM}")
    shards = []
    for url, info in found.items():
        size = info.get("size")
        marks = [str(info[name]) for name in CHANGES if info.get(name)]
        shards.append(Shard(url, size if isinstance(size, int) else 0, marks[0] if marks else ""))
    return shards


def infos_of(system: AbstractFileSystem, names: Sequence[str], spec: str) -> Iterator[FileInfo]:
    """Yield what a store says of each file. Raises InputError: one is not there."""
    listed: dict[str, FileInfo] = {}
    if not spec.startswith("http"):
        with suppress(FileNotFoundError):
            for info in system.ls(system._strip_protocol(names[0]).rpartition("/")[0], detail=True):
                listed[info["name"].lstrip("/")] = info

    def info_of(name: str) -> FileInfo:
        path: str = system._strip_protocol(name)
        if found := listed.get(path.lstrip("/")):
            return found
        try:
            return dict(system.info(path))
        except FileNotFoundError as error:
            if isinstance(error.__cause__, OSError):  # of HTTP: there is no such server
                raise error.__cause__ from None
            raise missing(name, spec) from None

    return in_threads(info_of, names, workers=LISTERS)


def text_in_same_folder(shard: Shard, name: str) -> str:
    """Return the text of a file beside a shard; "" where there is none."""
    folder, slash, _ = shard.location.rpartition("/")
    place = f"{folder}{slash}{name}"
    if not shard.remote:
        return read_text(Path(place)) if Path(place).is_file() else ""
    try:
        with reaching(place) as system:
            return bytes(system.cat_file(system._strip_protocol(place))).decode("utf-8")
    except FileNotFoundError:
        return ""


def open_cached(shard: Shard, cache_bytes: float) -> int:
    """Open the copy of a remote shard on this machine, fetched by one process while others wait for it.
    Raises OSError: it cannot be fetched or written."""
    folder = cache_folder() / "remote"
    file = folder / f"{hashlib.sha256(repr((*shard,)).encode()).hexdigest()[:32]}.tar"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{file.stem[:2]}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            descriptor = os.open(file, os.O_RDONLY)
        except FileNotFoundError:
            with whole(file) as temporary:
                fetch(shard, temporary)
                make_room(folder, cache_bytes - temporary.stat().st_size)
                # Open before it has its name: others that make room may remove it from then on.
                descriptor = os.open(temporary, os.O_RDONLY)
    os.utime(descriptor)
    return descriptor


def fetch(shard: Shard, target: Path) -> None:
    """Fetch a whole shard, again where the network fails. Raises OSError."""
    for attempt in range(ATTEMPTS):
        try:
            with reaching(shard.location) as system:
                system.get_file(system._strip_protocol(shard.location), str(target))
            if shard.size in (0, target.stat().st_size):
                return
            raise InputError(f"{shard} has {target.stat().st_size} bytes instead of {shard.size}")
        except (InputError, FileNotFoundError) as error:
            if attempt == ATTEMPTS - 1 or isinstance(error, FileNotFoundError):
                raise OSError(str(error)) from error
        time.sleep(2**attempt)


def make_room(folder: Path, limit: float) -> None:
    """Remove the shards that were used longest ago until the others have at most `limit` bytes. A process
    that has one open can still read it."""
    files = []
    for file in folder.glob("*.tar"):
        with suppress(FileNotFoundError):
            info = file.stat()
            files.append((info.st_mtime_ns, info.st_size, file))
    total = sum(size for _, size, _ in files)
    for _, size, file in sorted(files):
        if total <= limit:
            return
        file.unlink(missing_ok=True)
        total -= size
