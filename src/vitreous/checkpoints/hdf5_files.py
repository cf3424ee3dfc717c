"""The arrays of an HDF5 file by name, as Keras writes its weights: groups and contiguous arrays of
floating-point numbers in the first version of the file format (what h5py writes by default). A file is not
trusted: every address is compared with the size of the file, and no object is visited twice."""

from __future__ import annotations

import json
import struct
import zipfile
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import NamedTuple

import torch

from vitreous.checkpoints.tensors import (
    LARGEST_HEADER,
    Entry,
    Tensors,
    check_apart,
    data_offset,
    read_block,
)
from vitreous.errors import InputError

SIGNATURE = b"\x89HDF\r\n\x1a\n"
IN_ARCHIVE = "model.weights.h5"  # of a .keras, which is a zip archive
DESCRIPTION = "config.json"
DEEPEST, MOST_OBJECTS, MOST_AXES, LONGEST_NAME = 32, 2**17, 8, 1024
# Messages of an object's header.
DATASPACE, DATATYPE, LAYOUT, CONTINUATION, SYMBOL_TABLE = 0x01, 0x03, 0x08, 0x10, 0x11
CONTIGUOUS = 1
# Floating-point types by their bytes and the bits of their exponent.
TYPES = {(2, 5): torch.float16, (4, 8): torch.float32, (8, 11): torch.float64, (2, 8): torch.bfloat16}


class Damaged(Exception):
    """An address outside the file, or anything else that is not as the format says."""


class Array(NamedTuple):
    """An array, and where its numbers begin; without a type where they are not floating-point numbers."""

    shape: tuple[int, ...]
    dtype: torch.dtype | None
    address: int


class HDF5:
    """The structure of a file, or of a part of one.

    Args:
        begin, size: of the part.
    """

    def __init__(self, path: Path, begin: int, size: int) -> None:
        self.begin, self.size = begin, size
        self.file = path.open("rb")
        self.visited: set[int] = set()

    def bytes_at(self, address: int, count: int) -> bytes:
        if not 0 <= address <= address + count <= self.size:
            raise Damaged
        self.file.seek(self.begin + address)
        return self.file.read(count)

    def numbers_at(self, address: int, layout: str) -> tuple[int, ...]:
        return struct.unpack(f"<{layout}", self.bytes_at(address, struct.calcsize(f"<{layout}")))

    def arrays(self) -> Iterator[tuple[str, Array]]:
        """Every array with its name, the names of its groups before it."""
        version, *_, offsets, lengths = self.numbers_at(8, "6B")[:1] + self.numbers_at(13, "2B")
        if version or (offsets, lengths) != (8, 8):
            raise Damaged
        (root,) = self.numbers_at(64, "Q")
        yield from self.inside(root, ())

    def inside(self, address: int, names: tuple[str, ...]) -> Iterator[tuple[str, Array]]:
        """What is at an object's header, and in it."""
        if address in self.visited or len(names) > DEEPEST or len(self.visited) > MOST_OBJECTS:
            raise Damaged
        self.visited.add(address)
        messages = dict(self.messages(address))
        if SYMBOL_TABLE in messages:
            tree, heap = struct.unpack_from("<2Q", messages[SYMBOL_TABLE])
            if self.bytes_at(heap, 4) != b"HEAP":
                raise Damaged
            *_, texts = self.numbers_at(heap + 8, "3Q")
            for place, child in self.links(tree, 0):
                text = self.bytes_at(texts + place, min(LONGEST_NAME, self.size - texts - place))
                yield from self.inside(child, (*names, text.partition(b"\0")[0].decode()))
        elif {DATASPACE, DATATYPE, LAYOUT} <= messages.keys():
            yield "/".join(names), array_of(messages)

    def messages(self, address: int) -> Iterator[tuple[int, bytes]]:
        """The messages of an object's header: what kind each is of, and its content."""
        version, _, count, _, length = self.numbers_at(address, "BBHII")
        if version != 1:
            raise Damaged
        blocks = [(address + 16, length)]
        while blocks and count > 0:
            place, length = blocks.pop(0)
            end = place + length
            while place + 8 <= end and count > 0:
                kind, size = self.numbers_at(place, "HH")
                content = self.bytes_at(place + 8, size)
                place, count = place + 8 + size, count - 1
                if kind == CONTINUATION:
                    blocks.append(struct.unpack_from("<QQ", content))
                yield kind, content

    def links(self, node: int, depth: int) -> Iterator[tuple[int, int]]:
        """Of a group the place of each name among its texts, and the header of what it names."""
        if node in self.visited or depth > DEEPEST:
            raise Damaged
        self.visited.add(node)
        if self.bytes_at(node, 4) == b"TREE":
            _, _, count = self.numbers_at(node + 4, "BBH")
            for number in range(count):
                (child,) = self.numbers_at(node + 32 + 16 * number, "Q")
                yield from self.links(child, depth + 1)
            return
        if self.bytes_at(node, 4) != b"SNOD":
            raise Damaged
        (count,) = self.numbers_at(node + 6, "H")
        for number in range(count):
            place, child = self.numbers_at(node + 8 + 40 * number, "QQ")
            yield place, child


def array_of(messages: dict[int, bytes]) -> Array:
    """An array from the messages of its header."""
    version, rank = messages[DATASPACE][:2]
    shape = struct.unpack_from(f"<{rank}Q", messages[DATASPACE], 8 if version == 1 else 4)
    layout = messages[LAYOUT]
    if layout[0] != 3 or layout[1] != CONTIGUOUS or rank > MOST_AXES:
        return Array(shape, None, 0)
    (address,) = struct.unpack_from("<Q", layout, 2)
    kind, order = messages[DATATYPE][:2]
    dtype = None
    if kind & 15 == 1 and not order & 1:  # floating-point, the least significant byte first
        (width,) = struct.unpack_from("<I", messages[DATATYPE], 4)
        dtype = TYPES.get((width, messages[DATATYPE][13]))
    return Array(shape, dtype, address)


def read_hdf5(path: Path) -> Tensors:
    """The arrays of an HDF5 file, or of that in a .keras, each read when it is asked for; those of other than
    floating-point numbers are not among them. Raises InputError: it is damaged, or of another form."""
    begin, size = 0, path.stat().st_size
    if is_keras_archive(path):
        with zipfile.ZipFile(path) as archive:  # which has been opened before
            info = archive.getinfo(IN_ARCHIVE)
        if info.compress_type != zipfile.ZIP_STORED or info.file_size > size:
            raise InputError(f"{path}: {IN_ARCHIVE} in it is compressed, which is not read here: unpack it")
        begin, size = data_offset(path, info), info.file_size
    try:
        structure = HDF5(path, begin, size)
        with structure.file:
            if structure.bytes_at(0, 8) != SIGNATURE:
                raise Damaged
            arrays = dict(structure.arrays())
    except (Damaged, struct.error, UnicodeDecodeError, IndexError, OSError):
        raise InputError(
            f"{path} is a damaged HDF5 file, or of a later version of the format than Keras writes"
        ) from None
    entries, places = {}, {}
    for name, (shape, dtype, address) in arrays.items():
        count = prod(shape)
        if dtype is None or not count:
            continue
        end = address + count * dtype.itemsize
        if end > size:
            raise InputError(f"{path}: {name!r} is damaged: its numbers are not all in the file")
        entries[name] = Entry(
            shape,
            lambda a=address, d=dtype, s=shape: read_block(path, begin + a, d, s),  # type: ignore[misc]
        )
        places[name] = (address, end)
    check_apart(path, places)
    return Tensors(entries)


def is_keras_archive(path: Path) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            return IN_ARCHIVE in archive.namelist()
    except Exception:  # damaged bytes can make this parser fail in any way
        return False


def archive_description(path: Path) -> dict[str, object]:
    """The config.json in a .keras. Raises InputError: it is not understood."""
    try:
        with zipfile.ZipFile(path) as archive:
            if archive.getinfo(DESCRIPTION).file_size > LARGEST_HEADER:
                raise ValueError
            described = json.loads(archive.read(DESCRIPTION))
    except Exception:  # as above
        described = None
    if not isinstance(described, dict):
        raise InputError(f"{path}: the {DESCRIPTION} in it is missing, or not understood")
    return described
