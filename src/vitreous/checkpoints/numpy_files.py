"""NumPy's .npz, in and out: a zip archive of arrays. Nothing is unpickled, and an archive that would unfold
into far more than its own size is refused."""

from __future__ import annotations

import mmap
import zipfile
import zlib
from collections.abc import Mapping
from io import BufferedIOBase
from math import prod
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from vitreous.checkpoints.tensors import Entry, Tensors, read_block, read_stream
from vitreous.errors import InputError

NUMPY_TYPES = {
    "<f4": torch.float32,
    "<f8": torch.float64,
    "<f2": torch.float16,
    "|V2": torch.bfloat16,  # NumPy has no bfloat16; big_vision's files hold its two bytes as "void"
    "<i8": torch.int64,
    "<i4": torch.int32,
    "|u1": torch.uint8,
    "|i1": torch.int8,
    "|b1": torch.bool,
}
LARGEST_ARRAY_HEADER = 65536
LARGE = 2**20  # bytes, from which on an array is mapped
FOLDED = 1100  # the most that deflate can fold: 1032 to 1
BOMB = 2**31  # bytes that an archive may unfold to, whatever its own size ...
UNFOLDED = 20  # ... and how many times its own size beyond that


def is_npz(path: Path) -> bool:
    """Whether a zip archive holds NumPy arrays (and not a PyTorch pickle)."""
    with path.open("rb") as file:
        local_header = file.read(30)
        name = file.read(int.from_bytes(local_header[26:28], "little"))
    return name.endswith(b".npy")


def read_npz(path: Path) -> Tensors:
    """The arrays of an .npz file by name, each read when it is asked for.

    Raises:
        InputError: the archive is damaged, holds Python objects, or unfolds into more than can be meant.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = [info for info in archive.infolist() if info.filename.endswith(".npy")]
            size = path.stat().st_size
            if sum(info.file_size for info in members) > max(BOMB, UNFOLDED * size):
                raise InputError(f"{path} would unfold from {size} bytes into an absurd size: it is refused")
            return Tensors(
                {info.filename.removesuffix(".npy"): member(path, archive, info) for info in members}
            )
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or 'it is damaged'}") from None
    except (zipfile.BadZipFile, zlib.error, ValueError, NotImplementedError, RuntimeError, EOFError):
        raise InputError(f"{path} is a damaged .npz archive") from None


def member(path: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Entry:
    """One array: its type and shape are read and compared with its size; the numbers are left for later."""
    name = info.filename.removesuffix(".npy")
    with archive.open(info) as stream:
        dtype, shape, start, columns_first = array_header(stream, f"{path}: {name!r}")
    numbers = prod(shape) * dtype.itemsize
    stored = info.compress_type == zipfile.ZIP_STORED
    if start + numbers != info.file_size or info.file_size > (1 if stored else FOLDED) * info.compress_size:
        raise InputError(f"{path}: {name!r} is damaged: its size is not that of an array of shape {shape}")
    if not columns_first:
        return entry(path, info, dtype, shape, start)
    # in Fortran's order, as NumPy writes a transposed view
    backwards = entry(path, info, dtype, shape[::-1], start)
    return Entry(shape, lambda: backwards.read().permute(*range(len(shape))[::-1]))


def entry(path: Path, info: zipfile.ZipInfo, dtype: torch.dtype, shape: tuple[int, ...], start: int) -> Entry:
    """The array whose numbers begin `start` bytes into a member of the archive."""
    if info.compress_type == zipfile.ZIP_STORED:
        offset = data_offset(path, info) + start
        read_here = mapped if prod(shape) * dtype.itemsize >= LARGE else read_block
        return Entry(shape, lambda: read_here(path, offset, dtype, shape))

    def read() -> Tensor:
        try:
            with zipfile.ZipFile(path) as archive, archive.open(info) as stream:
                stream.read(start)
                return read_stream(cast(BufferedIOBase, stream), dtype, shape, where=path)
        except (zipfile.BadZipFile, zlib.error, EOFError):
            raise InputError(f"{path}: {info.filename!r} is damaged") from None

    return Entry(shape, read)


def mapped(path: Path, offset: int, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    """A tensor that lies in the file, as a private copy on write. Google's matrices are transposed, so each
    is copied once in any case, and this saves the copy before."""
    count = prod(shape)
    first = offset - offset % mmap.ALLOCATIONGRANULARITY
    length = offset - first + count * dtype.itemsize
    with path.open("rb") as file:
        if first + length > path.stat().st_size:
            raise InputError(f"{path} is cut: {first + length - path.stat().st_size} bytes are missing")
        pages = mmap.mmap(file.fileno(), length, access=mmap.ACCESS_COPY, offset=first)
    return torch.frombuffer(pages, dtype=dtype, count=count, offset=offset - first).view(shape)


def data_offset(path: Path, info: zipfile.ZipInfo) -> int:
    """Where a stored member's bytes begin: after its local header, which has its own length in it."""
    with path.open("rb") as file:
        file.seek(info.header_offset)
        header = file.read(30)
    name, extra = (int.from_bytes(header[at : at + 2], "little") for at in (26, 28))
    return info.header_offset + 30 + name + extra


def array_header(stream: Any, what: str) -> tuple[torch.dtype, tuple[int, ...], int, bool]:
    """Type, shape, length of the header of one .npy, and whether its numbers are in Fortran's order."""
    header = np.lib.format
    try:
        first = header.read_magic(stream) == (1, 0)
        read_header = header.read_array_header_1_0 if first else header.read_array_header_2_0
        shape, fortran, dtype = read_header(stream, max_header_size=LARGEST_ARRAY_HEADER)
    except Exception:  # damaged bytes can make this parser fail in any way
        raise InputError(f"{what} is not a NumPy array, or its header is damaged") from None
    if dtype.str not in NUMPY_TYPES:
        raise InputError(f"{what} holds {dtype.str!r}: only plain numbers are read, no Python objects")
    if len(shape) > 8 or not all(type(n) is int and n >= 0 for n in shape):
        raise InputError(f"{what} has no shape that an array can have: {shape!r}")
    return NUMPY_TYPES[dtype.str], shape, stream.tell(), fortran


def write_npz(tensors: Mapping[str, Tensor], path: Path) -> None:
    """An uncompressed .npz, as Google's own."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for name, tensor in tensors.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as stream:
                np.lib.format.write_array(stream, np.ascontiguousarray(tensor.numpy()), allow_pickle=False)
