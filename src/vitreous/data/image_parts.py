"""Any number of images, whatever their labels, a part at a time: what `embed` and `predict` write a file for.

Parts are found in an order that is the same each time and hold no more than names; their images are read when
a part is opened, in whichever process that is.
"""

from __future__ import annotations

import glob
import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain, groupby, islice
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from vitreous.data.config import PATH_COLUMNS, DataConfig
from vitreous.data.dataset import ImageDataset, named_parts, single_class_targets
from vitreous.data.files import EXTENSIONS
from vitreous.data.image_list import NO_SUCH, NOT_IMAGES, ImageList, file_system, images_below, matches
from vitreous.data.sources import find_source, open_parts
from vitreous.data.sources.hub import find_files, is_saved, parquet_file, stored_bytes
from vitreous.data.sources.manifests import (
    first_known_column,
    path_column,
    text_table,
)
from vitreous.data.sources.remote import expanded, missing
from vitreous.data.sources.shard_index import Member, members, split_name
from vitreous.errors import InputError, require_packages, utf8_name
from vitreous.outside import is_url, local_path

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

ROWS = 2048  # images of a part, where the data have no parts of their own
CHUNK = 1 << 20  # bytes that are copied at once


class ImagePart(NamedTuple):
    """Images that are answered together: those of a shard or of a row group, or many that are named."""

    names: str  # say which images they are
    open: Callable[[], ImageDataset]  # returns them; can be pickled

    @property
    def key(self) -> str:
        """A digest of which images they are."""
        return hashlib.blake2b(os.fsencode(self.names), digest_size=16).hexdigest()


def image_parts(data: str | Path | Iterable[object]) -> Iterator[ImagePart]:
    """Yield the parts of DATA: one form or several of folders, globs, files, manifests, tar shards, Parquet
    files, URLs, and the other sources that `vitreous.data.sources` opens. A tar shard, and a row group of
    images, is one part; of others `ROWS` images are.

    Raises:
        InputError: nothing is there, or something that is not a path.
    """
    given = [data] if isinstance(data, str | Path) else list(data)
    specs = [str(each) for each in given if isinstance(each, str | Path) and str(each)]
    if not specs or len(specs) < len(given):
        raise InputError(
            "answers in a folder need names of images: pass paths, URLs or DATA such as shards; is one of "
            "them empty because a variable is not set?"
        )
    found = [entries(spec) for spec in specs]  # before the first part: each is there
    parts = many_at_a_time(chain.from_iterable(found))
    first = next(parts, None)
    if first is None:
        raise InputError(f"there are no images in {', '.join(specs)}"[:200])
    return chain([first], parts)


def many_at_a_time(found: Iterable[str | ImagePart]) -> Iterator[ImagePart]:
    """Yield parts as they are, and paths many at a time."""
    for named, group in groupby(found, lambda entry: isinstance(entry, str)):
        if not named:
            yield from cast("Iterator[ImagePart]", group)
            continue
        while paths := [str(path) for path in islice(group, ROWS)]:
            yield ImagePart("\n".join(paths), partial(ImageList, paths))


def entries(spec: str) -> Iterator[str | ImagePart]:
    """Return the paths and the parts of one form of DATA; none of a manifest without rows. Raises InputError
    where there is nothing."""
    kind, colon, rest = spec.partition(":")
    path = local_path(spec)
    if kind == "hf" and colon and not is_url(spec) and not is_saved(Path(rest)):
        system, files = find_files(rest)
        return chain.from_iterable(parquet_entries(system, file) for file in sorted(files))
    if Path(spec).suffix in NOT_IMAGES or is_url(spec):
        try:
            system, files = files_of(spec)
        except InputError:
            raise
        except Exception as error:  # each protocol has its own
            raise InputError(f"{spec} cannot be reached: {' '.join(str(error).split())}") from None
        if not files:
            raise InputError(f"there is no {spec}: {NO_SUCH}")
        return chain.from_iterable(file_entries(system, file) for file in files)
    if path.is_dir():
        packed = [*sorted(path.glob("*.tar")), *sorted(path.glob("*.parquet"))]
        if packed:
            system, _ = file_system(str(path))
            return chain.from_iterable(file_entries(system, str(file)) for file in packed)
        found: Iterator[str] = map(str, images_below(path))
    elif files := matches(spec)[0]:
        found = iter(files)
    else:  # another source, or a sentence about what DATA can be
        return iter(source_parts(spec))
    first = next(found, None)
    if first is None:
        raise InputError(f"{spec} is a folder without images")
    return chain([first], found)


def files_of(spec: str) -> tuple[AbstractFileSystem, list[str]]:
    """Return the file system and the files of `a-{000..002}.tar`, a glob, a file, or the folder of a URL."""
    system, path = file_system(spec)
    names = expanded(path)
    for name in names:
        if not system.exists(name):
            raise missing(name, spec)
    if names:
        return system, names
    if "*" in path:
        return system, sorted(glob.glob(path) if is_local(system) else system.glob(path))
    if Path(path).suffix.lower() in (*EXTENSIONS, *NOT_IMAGES):
        return system, [path] if system.exists(path) else []
    ends = (*EXTENSIONS, ".tar", ".parquet")
    found: list[str] = sorted(system.find(path))
    return system, [file for file in found if Path(file).suffix.lower() in ends and "/." not in file]


def file_entries(system: AbstractFileSystem, path: str) -> Iterator[str | ImagePart]:
    """Yield what a file holds."""
    match Path(path).suffix:
        case ".tar":
            yield ImagePart(f"{path} {system.size(path)}", partial(TarImages, system, path))
        case ".parquet":
            yield from parquet_entries(system, path)
        case ".csv" | ".tsv" | ".jsonl":
            table = text_table(system.cat_file(path), path)
            column = table.place(path_column(table.header, path)) or 0
            yield from manifest_paths(
                system, path, (row[column] for row in table.lines.values() if len(row) > column)
            )
        case _:
            yield address(system, path)


def manifest_paths(system: AbstractFileSystem, manifest: str, paths: Iterable[str | None]) -> Iterator[str]:
    """Yield the paths or the URLs that a manifest gives, which may be relative to its folder; where it gives
    none, what names the row, as an image that cannot be read."""
    folder, name = os.path.split(manifest)
    for row, given in enumerate(paths, start=1):
        path = str(given or "").strip() or f"{name}, row {row} without a path"
        if is_url(path) or Path(path).is_absolute():
            yield path
        else:
            yield address(system, f"{folder}/{path}" if folder else path)


def is_local(system: AbstractFileSystem) -> bool:
    return "file" in system.protocol


def address(system: AbstractFileSystem, path: str) -> str:
    """Return how a file is named: by its path on this machine, else by its URL."""
    return path if is_local(system) else str(system.unstrip_protocol(path))


def parquet_entries(system: AbstractFileSystem, path: str) -> Iterator[str | ImagePart]:
    """Yield the row groups of a Parquet file with images, or the paths of a manifest."""
    require_packages("pyarrow", extra="data", what=path)
    with system.open(path, "rb") as file:
        opened = parquet_file(file, path)
        schema = opened.schema_arrow
        stored = [each.name for each in schema if str(each.type).startswith(("struct<bytes", "binary"))]
        paths = first_known_column(PATH_COLUMNS, schema.names)
        if stored:
            for group in range(opened.num_row_groups):
                count = opened.metadata.row_group(group).num_rows
                images = partial(RowGroupImages, system, path, group, stored[0])
                yield ImagePart(f"{path} {group} {count}", images)
        elif paths:
            batches = opened.iter_batches(ROWS, columns=[paths])
            listed = chain.from_iterable(batch.column(0).to_pylist() for batch in batches)
            yield from manifest_paths(system, path, listed)
        else:
            names = ", ".join(schema.names)
            raise InputError(f"{path} has neither images nor a column 'path', only: {names}")


class RowGroupImages(ImageDataset):
    """The images of one row group of a Parquet file."""

    def __init__(self, system: AbstractFileSystem, path: str, group: int, column: str) -> None:
        with system.open(path, "rb") as file:
            opened = parquet_file(file, path)
            self.rows = opened.read_row_group(group, columns=[column]).column(0).to_pylist()
            self.first = sum(opened.metadata.row_group(each).num_rows for each in range(group))
        self.source, self.targets = address(system, path), single_class_targets(len(self.rows))

    def name(self, index: int) -> str:
        return f"{self.source}[{self.first + index}]"

    def encoded(self, index: int) -> bytes:
        return stored_bytes(self.rows[index], self.name(index))


class TarImages(ImageDataset):
    """The images of a tar file, read at their offsets; a remote one is copied into a temporary file first."""

    def __init__(self, system: AbstractFileSystem, path: str) -> None:
        self.source = address(system, path)
        with system.open(path, "rb") as file, TemporaryFile() as copy:
            if not is_local(system):
                shutil.copyfileobj(file, copy, CHUNK)
                copy.flush()
            self.file = os.dup((file if is_local(system) else copy).fileno())
        self.members = images_of_samples(members(path, self.file))
        self.targets = single_class_targets(len(self.members))

    def __del__(self) -> None:
        if file := self.__dict__.pop("file", None):
            os.close(file)

    def name(self, index: int) -> str:
        return utf8_name(f"{self.source}/{self.members[index][0]}")

    def encoded(self, index: int) -> bytes:
        _, offset, size = self.members[index]
        return os.pread(self.file, size, offset)


def images_of_samples(found: Iterable[Member]) -> list[Member]:
    """Return the images of a tar file, but for those beside a sample's own, such as the mask 0001.seg.png
    beside 0001.jpg, and hidden ones."""
    images: list[tuple[str, bool, Member]] = []  # stem, whether it is a sample's own image
    samples: set[str] = set()
    for member in found:
        stem, suffix = split_name(member[0])
        if suffix not in EXTENSIONS or stem.endswith("/"):
            continue
        own = os.path.basename(member[0]).count(".") == 1
        images.append((stem, own, member))
        if own:
            samples.add(stem)
    return [member for stem, own, member in images if own or stem not in samples]


def source_parts(spec: str) -> list[ImagePart]:
    """Return the images of a source that is opened as a whole, many at a time."""
    parts: list[ImagePart] = []
    for name, images in named_parts(*open_parts(find_source(spec), DataConfig(), "unlabeled")).items():
        for start in range(0, len(images), ROWS):
            stop = min(start + ROWS, len(images))
            opened = partial(images.subset, np.arange(start, stop))
            parts.append(ImagePart(f"{spec} {name} {start} {stop}", opened))
    return parts
