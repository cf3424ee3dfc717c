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
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from vitreous.data.workers import in_threads
from vitreous.errors import InputError, cache_folder, require_packages
from vitreous.outside import local_path, open_regular, read_text, whole_number
from vitreous.whole_files import whole

BRACES = re.compile(r"\{(\d+)\.\.(\d+)\}")
FORM = "name-{000..099}.tar"
MOST_SHARDS = 1_000_000  # that braces may name
ATTEMPTS = 4  # to fetch a shard, with a longer pause before each
LISTERS = 16  # threads, which wait for the network
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
        return "://" in self.location

    def open(self, cache_bytes: float) -> int:
        """Return a descriptor of the file, fetched if it is not here. Raises OSError: it cannot be opened."""
        return open_cached(self, cache_bytes) if self.remote else open_local(self.location)


def open_local(path: str) -> int:
    """Return a descriptor of a regular file. Raises OSError."""
    with open_regular(path) as file:
        return os.dup(file.fileno())


class OpenShard:
    """An open shard, which is closed when nothing uses it anymore: threads may still read from one that a
    cache of open files has given up."""

    def __init__(self, shard: Shard, cache_bytes: float) -> None:
        self.descriptor = shard.open(cache_bytes)

    def __del__(self) -> None:
        if "descriptor" in self.__dict__:
            os.close(self.descriptor)


def find_shards(spec: str) -> list[Shard]:
    """Return the files of `a-{000..002}.tar`, or of a glob. Raises InputError where one is missing."""
    if "://" in spec:
        return find_remote(spec)
    found = expanded(spec)
    if not found:
        folder, pattern = os.path.split(spec)
        paths = sorted(local_path(folder or ".").glob(pattern))
        if not paths:
            raise InputError(f"there is no {spec}: write shards as {FORM}")
    else:
        paths = [local_path(each) for each in found]
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
        low, high = whole_number(first), whole_number(last)
    except ValueError as error:
        raise InputError(f"{spec}: {error}: write shards as {FORM}") from None
    if low > high:
        raise InputError(f"{spec} counts down: write shards as {FORM}")
    if high - low >= MOST_SHARDS:
        raise InputError(f"{spec} names {high - low + 1} shards, more than {MOST_SHARDS}: write {FORM}")
    numbers = (f"{number:0{len(first)}}" for number in range(low, high + 1))
    return [spec[: found.start()] + number + spec[found.end() :] for number in numbers]


def missing(location: str, spec: str) -> InputError:
    return InputError(f"there is no shard {location}, which {spec} names: write the numbers that there are")


@contextmanager
def reaching(spec: str) -> Iterator[Any]:
    """Give the file system of a URL. Raises InputError where it cannot be reached."""
    require_packages("fsspec", extra="data", what=f"DATA at {spec}")
    import fsspec

    try:
        yield fsspec.url_to_fs(spec)[0]
    except (InputError, FileNotFoundError):
        raise
    except Exception as error:  # of whatever library talks to this store
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"{spec} cannot be reached: {reason}") from error


def find_remote(spec: str) -> list[Shard]:
    """Return the shards of a URL: by listing their folder, in one request for many, where the store can."""
    kind = spec.partition("://")[0]
    with reaching(spec) as system:
        if names := expanded(spec):
            stripped = [system._strip_protocol(name) for name in names]
            infos: dict[str, Mapping[str, Any]] = {}
            if not kind.startswith("http"):
                with suppress(FileNotFoundError):
                    folder = stripped[0].rpartition("/")[0]
                    infos = {each["name"].lstrip("/"): each for each in system.ls(folder, detail=True)}

            def info(path: str) -> Mapping[str, Any]:
                if found := infos.get(path.lstrip("/")):
                    return found
                try:
                    return dict(system.info(path))
                except FileNotFoundError as error:
                    if isinstance(error.__cause__, OSError):  # of HTTP: there is no such server
                        raise error.__cause__ from None
                    url = path if "://" in path else f"{kind}://{path.lstrip('/')}"
                    raise missing(url, spec) from None

            found = dict(zip(names, in_threads(info, stripped, workers=LISTERS), strict=True))
        else:
            globbed = system.glob(spec, detail=True)
            found = {system.unstrip_protocol(name): each for name, each in sorted(globbed.items())}
    if not found:
        raise InputError(f"there is no {spec}: write shards as {kind}://.../{FORM}")
    return [
        Shard(url, int(each.get("size") or 0), str(next((each[k] for k in CHANGES if each.get(k)), "")))
        for url, each in found.items()
    ]


def text_beside(location: str, name: str) -> str:
    """Return the text of a file beside another one; "" where there is none."""
    place = location.rpartition("/")[0] + "/" + name if "/" in location else name
    if "://" not in place:
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
            with whole(file) as beside:
                fetch(shard, beside)
                make_room(folder, cache_bytes - beside.stat().st_size)
                # Open before it has its name: others that make room may remove it from then on.
                descriptor = os.open(beside, os.O_RDONLY)
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
