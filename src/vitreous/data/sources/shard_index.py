"""The index of tar shards: where each image is, and its label.

It is made once, by several processes; others that train on the same shards wait. A large index is kept in the
user's cache directory as memory-mapped arrays, and used again as long as no shard changes its size or its
time.
"""

from __future__ import annotations

import hashlib
import json
import os
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vitreous.data.dataset import ClassTargets, LabelTargets
from vitreous.data.files import EXTENSIONS
from vitreous.data.sources.folders import LARGE, Paths, path_array
from vitreous.data.sources.labels import Label
from vitreous.data.sources.remote import OpenShard, Shard
from vitreous.data.workers import in_processes
from vitreous.errors import InputError, LazyModule, cache_folder
from vitreous.outside import finite_number, parse_digits, same_name
from vitreous.whole_files import made_by_one, whole

if TYPE_CHECKING:
    from scipy import sparse
else:  # for several labels an image
    sparse = LazyModule("scipy.sparse")

VERSION = 4  # of the arrays
SEVERAL = "targets.npz"  # where images have several labels
BLOCK = 512  # bytes of tar, at whose multiples everything begins
LABELS = (".txt", ".json", ".cls")  # the last one that a sample has is its label
LARGEST_LABEL = 1 << 20  # bytes; a label is a word or a small JSON object
COMPRESSED = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
    b"PK\x03\x04": "zip",
    b"(\xb5/\xfd": "zstd",
}
PLAIN = (tarfile.REGTYPE, tarfile.AREGTYPE)
SKIPPED = (
    tarfile.DIRTYPE,
    tarfile.SYMTYPE,
    tarfile.LNKTYPE,
    tarfile.CHRTYPE,
    tarfile.BLKTYPE,
    tarfile.FIFOTYPE,
)
LabelKey = str | tuple[tuple[str, float], ...]  # a `Label` that can be compared
Member = tuple[str, int, int]  # name, offset and size in bytes
Numbering = Callable[[list[Label], NDArray[np.int64]], ClassTargets | LabelTargets]


class ShardIndex(NamedTuple):
    """Images in the order of their shards."""

    ends: NDArray[np.int64]  # for each shard the number of images up to its end
    blocks: NDArray[np.uint32]  # where an image begins in its shard, in blocks of 512 bytes
    sizes: NDArray[np.uint32]  # of the files, in bytes
    names: Paths  # of the files, without that of the shard
    hashes: NDArray[np.uint64]  # of the names with that of the shard, from which splits follow
    targets: ClassTargets | LabelTargets


class Reading(NamedTuple):
    """How shards are read."""

    labeled: bool  # whether images without a label are left out
    cache_bytes: float  # of shards that are fetched, which stay on this machine
    workers: int | None  # that index shards; None: one per core


class IndexedShard(NamedTuple):
    """What `ShardIndex` has of one shard, and its labels."""

    blocks: NDArray[np.uint32]
    sizes: NDArray[np.uint32]
    names: Paths
    hashes: NDArray[np.uint64]
    places: NDArray[np.int64]  # of each image's label among `labels`, or -1
    labels: list[LabelKey]  # different ones


def shard_index(
    shards: Sequence[Shard], number: Numbering, key: Sequence[str], reading: Reading
) -> tuple[ShardIndex, Path | None]:
    """Return the index of some shards, and the folder where it is cached, if it is: from the
    cache, else from the shards.

    Args:
        number: returns the targets of (different labels, the place of each image's among them).
        key: what `number` depends on.
    """
    folder = index_cache_folder(shards, key, reading)
    with made_by_one(folder):
        known = load_index(folder) or index_shards(shards, number, folder, reading)
    return known, folder if folder.is_dir() else None


def index_cache_folder(shards: Sequence[Shard], key: Sequence[str], reading: Reading) -> Path:
    """Return where the index of some shards, as they are now, is cached."""
    stamp = json.dumps([VERSION, EXTENSIONS, reading.labeled, *key, *shards])
    return cache_folder() / "indexes" / hashlib.sha256(stamp.encode()).hexdigest()[:32]


def load_index(folder: Path) -> ShardIndex | None:
    """Return a cached index, memory-mapped; None if there is none that can be read."""
    try:
        classes = tuple(json.loads((folder / "classes.json").read_text(encoding="utf-8")))
        arrays = [np.load(folder / f"{name}.npy", mmap_mode="r") for name in ShardIndex._fields[:-1]]
        if (folder / SEVERAL).is_file():
            targets: ClassTargets | LabelTargets = LabelTargets(sparse.load_npz(folder / SEVERAL), classes)
        else:
            targets = ClassTargets(np.load(folder / "targets.npy", mmap_mode="r"), classes)
        return ShardIndex._make([*arrays, targets])
    except Exception:
        # Damaged bytes, as after a power cut, can make these parsers fail in any way.
        return None


def index_shards(shards: Sequence[Shard], number: Numbering, folder: Path, reading: Reading) -> ShardIndex:
    """Index shards; a large index is written into the cache, whole, and read from there."""
    known: dict[LabelKey, int] = {}  # the place of each label, in the order in which they are met
    parts: list[IndexedShard] = []
    read = partial(index_shard, cache_bytes=reading.cache_bytes)
    for part in in_processes(read, shards, workers=reading.workers):
        if reading.labeled and (part.places < 0).any():
            rows = part.places >= 0
            part = IndexedShard._make([*(column[rows] for column in part[:-1]), part.labels])
        # From places among a shard's labels to places among all; -1, without a label, is the last entry.
        places = np.array([*(known.setdefault(key, len(known)) for key in part.labels), -1], dtype=np.int64)
        parts.append(part._replace(places=places[part.places], labels=[]))
    columns = zip(*(part[:-1] for part in parts), strict=True)
    blocks, sizes, names, hashes, found = map(np.concatenate, columns)
    targets = number([key if isinstance(key, str) else dict(key) for key in known], found)
    index = ShardIndex(np.cumsum([len(part.names) for part in parts]), blocks, sizes, names, hashes, targets)
    if len(names) < LARGE:
        return index
    # A cache that cannot be written stops nothing.
    with suppress(OSError), whole(folder) as temporary:
        temporary.mkdir(parents=True)
        for name in ShardIndex._fields[:-1]:
            np.save(temporary / f"{name}.npy", getattr(index, name))
        if isinstance(targets, LabelTargets):
            sparse.save_npz(temporary / SEVERAL, targets.matrix, compressed=False)
        else:
            np.save(temporary / "targets.npy", targets.numbers)
        (temporary / "classes.json").write_text(json.dumps(targets.classes), encoding="utf-8")
    return load_index(folder) or index


def name_hash(name: str) -> int:
    """Return 64 bits that depend on a name alone."""
    digest = hashlib.blake2b(same_name(name).encode("utf-8", "surrogateescape"), digest_size=8).digest()
    return int.from_bytes(digest, "big")


def index_shard(shard: Shard, cache_bytes: float) -> IndexedShard:
    """Return the index of one shard."""
    images: dict[str, dict[str, Member]] = {}  # of each sample, by name
    found: dict[str, tuple[int, LabelKey]] = {}  # of each sample the last of LABELS that it has, its label
    try:
        opened = OpenShard(shard, cache_bytes)
    except OSError as error:
        raise InputError(f"{shard} cannot be read: {error.strerror or error}") from None
    for name, offset, size in members(shard, opened.descriptor):
        if name.startswith("/") or ".." in name.split("/"):
            raise InputError(f"{shard} holds the unsafe name {name!r}: do not trust this file")
        stem, suffix = split_name(name)
        # A hidden file, such as a Mac adds, is left out.
        if stem.endswith("/"):
            continue
        if suffix in EXTENSIONS:
            images.setdefault(stem, {})[name] = name, offset, size
        elif suffix in LABELS and size <= LARGEST_LABEL:
            label = read_label(suffix, os.pread(opened.descriptor, size, offset), f"{shard}/{name}")
            if label is not None and LABELS.index(suffix) >= found.get(stem, (0,))[0]:
                key = label if isinstance(label, str) else tuple(sorted(label.items()))
                found[stem] = LABELS.index(suffix), key
    chosen = [image_of_sample(shard, list(candidates.values())) for candidates in images.values()]
    labels: dict[LabelKey, int] = {}  # as `known` in `index_shards`
    places = [labels.setdefault(found[stem][1], len(labels)) if stem in found else -1 for stem in images]
    names = [name for name, _, _ in chosen]
    return IndexedShard(
        blocks=np.array([offset // BLOCK for _, offset, _ in chosen], dtype=np.uint32),
        sizes=np.array([size for _, _, size in chosen], dtype=np.uint32),
        names=path_array(names) if names else np.empty(0, dtype="S1"),
        hashes=np.array([name_hash(f"{shard.name}/{name}") for name in names], dtype=np.uint64),
        places=np.array(places, dtype=np.int64),
        labels=list(labels),
    )


def members(shard: Shard | str, descriptor: int) -> Iterator[Member]:
    """Yield (name, offset, size) of the plain files in a tar file. Links and devices are not samples.

    Headers of the usual form are read here, in a tenth of the time that tarfile takes; a shard with others
    (names of over 256 bytes, extended headers) is left to tarfile.
    """
    plain, offset, end = list[Member](), 0, os.fstat(descriptor).st_size
    try:
        while (header := os.pread(descriptor, BLOCK, offset)) and header != bytes(BLOCK):
            kind, size = header[156:157], parse_digits(header[124:136].rstrip(b"\0 ") or b"0", base=8)
            if len(header) < BLOCK or header[257:262] != b"ustar" or kind not in (*PLAIN, *SKIPPED):
                raise ValueError
            if sum(header) - sum(header[148:156]) + 8 * 32 != parse_digits(
                header[148:156].strip(b"\0 "), base=8
            ):
                raise ValueError
            name, prefix = header[:100].partition(b"\0")[0], header[345:500].partition(b"\0")[0]
            if header[257:263] == b"ustar\0" and prefix:
                name = prefix + b"/" + name
            offset += BLOCK
            if kind in PLAIN and offset + size > end:
                # The archive is cut.
                raise ValueError
            if kind in PLAIN and not name.endswith(b"/"):
                plain.append((name.decode("utf-8", "surrogateescape"), offset, size))
            offset += -(-size // BLOCK) * BLOCK if kind in PLAIN else 0
        # The archive ends without an empty header.
        if not header:
            raise ValueError
    except ValueError:
        plain = list(read_by_tarfile(shard, descriptor))
    yield from plain


def read_by_tarfile(shard: Shard | str, descriptor: int) -> Iterator[Member]:
    """Yield what `members` does, of tar files of any form."""
    try:
        with open(descriptor, "rb", closefd=False) as file, tarfile.open(fileobj=file, mode="r:") as archive:
            before, end = -1, os.fstat(descriptor).st_size
            for member in archive:
                if member.size < 0 or member.offset <= before or member.offset_data + member.size > end:
                    raise tarfile.ReadError("one of its files extends beyond its end")
                before = member.offset
                if member.isreg() and not member.issparse():
                    yield member.name, member.offset_data, member.size
    except (tarfile.TarError, OSError, ValueError, OverflowError) as error:
        # tarfile takes numbers with signs and spaces, so that any of these can come.
        begin = os.pread(descriptor, 6, 0)
        packed = [name for magic, name in COMPRESSED.items() if begin.startswith(magic)]
        reason = f"it is a {packed[0]} file: unpack it first" if packed else error
        raise InputError(f"{shard} is not a tar file that can be read: {reason}") from None


def split_name(name: str) -> tuple[str, str]:
    """Split a name: "a/0001.seg.jpg" -> ("a/0001", ".jpg"): WebDataset's stem ends at the first dot of the
    file name."""
    folder, file = os.path.split(name)
    stem, _, _ = file.partition(".")
    return f"{folder}/{stem}", os.path.splitext(file)[1].lower()


def image_of_sample(shard: Shard, found: Sequence[Member]) -> Member:
    """Return the image of a sample: of several the one with nothing between stem and extension, 0001.jpg and
    not 0001.seg.png. Raises InputError: there are two such, or none."""
    plain = [each for each in found if os.path.basename(each[0]).count(".") == 1] or found
    if len(plain) > 1:
        raise InputError(
            f"{shard} has two images in one sample, {plain[0][0]} and {plain[1][0]}: give them "
            "different names before the first dot, or leave one out"
        )
    return plain[0]


def read_label(suffix: str, data: bytes, name: str) -> Label | None:
    """Return a label as text; of JSON its "label", or None where it has none and describes the image."""
    try:
        text = data.decode("utf-8").strip()
        found = json.loads(text) if suffix == ".json" else {"label": text}
        if not isinstance(found, Mapping):
            raise ValueError
        label = found.get("label")
        if isinstance(label, list):
            return {str(each): 1.0 for each in label}
        if isinstance(label, dict):
            return {str(each): finite_number(str(number), 0, 1) for each, number in label.items()}
        return None if label is None else str(label)
    except (TypeError, ValueError, RecursionError):
        # A JSONDecodeError is a ValueError, too.
        raise InputError(
            f'{name} is not a label: write a class, or {{"label": class}} in JSON, where several classes are '
            "a list, or an object of weights between 0 and 1"
        ) from None
