"""The tensors of a file by name, of .safetensors and of NumPy's .npz files (a zip archive of arrays): read
one by one, when they are asked for. No header is believed before it was compared with the size of the file,
nothing is unpickled, and an archive that would unfold into far more than its own size is refused."""

from __future__ import annotations

import json
import mmap
import os
import re
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from io import BufferedIOBase
from math import prod
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from vitreous.errors import InputError

LARGEST_HEADER = 16 * 2**20  # bytes; that of a model with 10,000 tensors takes about one million
# What zipfile raises of an archive with other bytes, and of a member with another header: of a name that is
# not UTF-8, or a flag that says that it is encrypted, as well.
DAMAGED_ARCHIVE = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError)
CHECKSUMS = "crc32"  # in the metadata of a .safetensors: the CRC-32 of each tensor's bytes, as JSON

SAFETENSORS_TYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
}


class Entry(NamedTuple):
    """One tensor of a file that has not been read yet."""

    shape: tuple[int, ...]
    read: Callable[[], Tensor]


# The tensors of a file by name. Each is read when it is asked for, so that a whole file is never in memory
# next to the model made from it; names and shapes are known without reading.
Tensors = dict[str, Entry]


def read_safetensors(path: Path) -> Tensors:
    """Return the tensors of a .safetensors file: eight bytes for the header's length, the header (JSON), the
    data. Raises InputError: the file is truncated, its header is damaged, or a tensor is not inside the
    file."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if not 2 <= length <= min(size - 8, LARGEST_HEADER):
                raise InputError(
                    f"{path} is not a safetensors file, or it is truncated: header of {length} bytes"
                )
            header = json.loads(file.read(length))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise InputError(f"{path}: the safetensors header is damaged") from None
    if not isinstance(header, dict):
        raise InputError(f"{path}: the safetensors header is damaged")
    metadata = header.pop("__metadata__", None)
    if isinstance(metadata, dict) and metadata.get("format") == "mlx":
        raise InputError(
            f"{path} is an MLX file, whose convolutions have their axes in another order: pass the model "
            "that it was converted from"
        )
    checksums = stored_checksums(metadata if isinstance(metadata, dict) else {})
    tensors: Tensors = {}
    for name, fields in header.items():
        tensors[name] = header_entry(path, name, fields, 8 + length, size, checksums.get(name))
    check_apart(path, {name: fields["data_offsets"] for name, fields in header.items()})
    return tensors


def stored_checksums(metadata: Mapping[str, str]) -> dict[str, int]:
    """Return the checksums that `write_safetensors` stores; none of a file by others."""
    try:
        found = json.loads(metadata[CHECKSUMS])
    except (KeyError, TypeError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def check_apart(path: Path, places: Mapping[str, Sequence[int]]) -> None:
    """Raise InputError where two tensors share bytes: many layers could be made of those of one."""
    last, before = 0, ""
    for (begin, end), name in sorted((tuple(place), name) for name, place in places.items()):
        if begin < min(last, end):
            raise InputError(f"{path}: {before!r} and {name!r} share bytes of the file: it is damaged")
        if end > last:
            last, before = end, name


def header_entry(path: Path, name: str, fields: Any, start: int, size: int, checksum: int | None) -> Entry:
    """Return one tensor of a safetensors header, checked against the file's size; its bytes are compared with
    the checksum, if there is one, when they are read."""
    try:
        dtype, shape = SAFETENSORS_TYPES[fields["dtype"]], tuple(fields["shape"])
        begin, end = fields["data_offsets"]
        fits = len(shape) <= 8 and all(type(n) is int and n >= 0 for n in (*shape, begin, end))
        fits = fits and prod(shape) * dtype.itemsize == end - begin
    except (KeyError, TypeError, ValueError):
        fits = False
    if fits and start + end > size:
        raise InputError(
            f"{path}: {name!r} is damaged: the file ends {start + end - size} bytes too early; its download "
            "may be incomplete"
        )
    if not fits:
        raise InputError(f"{path}: {name!r} is damaged: its type, shape or position in the file is wrong")

    def read() -> Tensor:
        read_here = (
            map_tensor if (end - begin) >= LARGE and not (start + begin) % dtype.itemsize else read_block
        )
        tensor = read_here(path, start + begin, dtype, shape)
        if checksum is not None and crc32(tensor) != checksum:
            raise InputError(f"{path}: {name!r} is damaged: its checksum does not match its bytes")
        return tensor

    return Entry(shape, read)


def crc32(tensor: Tensor, before: bytes = b"") -> int:
    """Return the CRC-32 of a tensor's bytes, which follow those `before`."""
    flat = tensor.detach().cpu().contiguous().view(-1)
    return zlib.crc32(flat.view(torch.uint8).numpy().data if flat.numel() else b"", zlib.crc32(before))


def read_block(path: Path, offset: int, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    """Return a tensor whose bytes lie in a file from `offset` on."""
    with path.open("rb") as file:
        file.seek(offset)
        return read_stream(file, dtype, shape, where=path)


def read_stream(file: BufferedIOBase, dtype: torch.dtype, shape: tuple[int, ...], *, where: Path) -> Tensor:
    """Return a tensor from the next bytes of `file`, written straight to where it will stay."""
    tensor = torch.empty(shape, dtype=dtype)
    if not tensor.numel():
        return tensor
    target = memoryview(tensor.view(-1).view(torch.uint8).numpy())  # type: ignore[arg-type]
    done = 0
    while done < len(target):
        count = file.readinto(target[done:])
        if not count:
            raise InputError(f"{where} is truncated: {len(target) - done} bytes are missing")
        done += count
    return tensor


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
BOMB = 2**28  # bytes that an archive may unfold to, whatever its own size ...
UNFOLDED = 3  # ... and how many times its own size beyond that


def is_npz(path: Path) -> bool:
    """Return whether a zip archive holds NumPy arrays (and not a PyTorch pickle)."""
    with path.open("rb") as file:
        local_header = file.read(30)
        name = file.read(int.from_bytes(local_header[26:28], "little"))
    return name.endswith(b".npy")


def read_npz(path: Path) -> Tensors:
    """Return the arrays of an .npz file by name, each read when it is asked for. Raises InputError: the
    archive is damaged, holds Python objects, or unfolds into more than can be meant."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = [info for info in archive.infolist() if info.filename.endswith(".npy")]
            size, stored, unfolded = path.stat().st_size, 0, 0
            for info in members:
                unfolded += info.file_size
                if info.compress_type == zipfile.ZIP_STORED:
                    stored += info.file_size
            if stored > size or unfolded > max(BOMB, UNFOLDED * size):
                raise InputError(f"{path} would unpack from {size} bytes to an absurd size: refused")
            return {flat_name(info.filename): member(path, archive, info) for info in members}
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or 'it is damaged'}") from None
    except DAMAGED_ARCHIVE:
        raise InputError(f"{path} is a damaged .npz archive") from None


def flat_name(file: str) -> str:
    """Return the name of an array, as flax flattens a tree: also of one that was saved by the keys of a leaf
    as JAX writes them (`['params']['head']['kernel'].value`), or with dots between them."""
    name = file.removesuffix(".npy").removesuffix(".value")
    if keys := re.findall(r"\['?(\w+)'?\]", name):
        return "/".join(keys)
    flax = "/" not in name and re.search(r"\.(kernel|scale|bias|pos_embedding|probe)$|\.cls$", name)
    return name.replace(".", "/") if flax and re.search(r"(^|\.)params\.", name) else name


def member(path: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Entry:
    """Return one array: its type and shape are read and compared with its size; the numbers are left for
    later."""
    name = info.filename.removesuffix(".npy")
    with archive.open(info) as stream:
        dtype, shape, start, columns_first = array_header(stream, f"{path}: {name!r}")
    numbers = prod(shape) * dtype.itemsize
    stored = info.compress_type == zipfile.ZIP_STORED
    if start + numbers != info.file_size or info.file_size > (1 if stored else FOLDED) * info.compress_size:
        raise InputError(f"{path}: {name!r} is damaged: its size does not fit an array of shape {shape}")
    if not columns_first:
        return entry(path, info, dtype, shape, start)
    # in Fortran's order, as NumPy writes a transposed view
    backwards = entry(path, info, dtype, shape[::-1], start)
    return Entry(shape, lambda: backwards.read().permute(*range(len(shape))[::-1]))


def entry(path: Path, info: zipfile.ZipInfo, dtype: torch.dtype, shape: tuple[int, ...], start: int) -> Entry:
    """Return the array whose numbers begin `start` bytes into a member of the archive."""
    if info.compress_type == zipfile.ZIP_STORED:
        begin = data_offset(path, info)
        read_here = map_tensor if prod(shape) * dtype.itemsize >= LARGE else read_block

        def checked() -> Tensor:
            tensor = read_here(path, begin + start, dtype, shape)
            header = bytes(read_block(path, begin, torch.uint8, (start,)).numpy())
            if crc32(tensor, header) != info.CRC:
                raise InputError(
                    f"{path}: {info.filename!r} is damaged: its checksum does not match its bytes"
                )
            return tensor

        return Entry(shape, checked)

    def read() -> Tensor:
        try:
            with zipfile.ZipFile(path) as archive, opened_member(path, archive, info) as stream:
                stream.read(start)
                return read_stream(stream, dtype, shape, where=path)
        except (zipfile.BadZipFile, zlib.error, EOFError):
            raise InputError(f"{path}: {info.filename!r} is damaged") from None

    return Entry(shape, read)


def opened_member(path: Path, archive: zipfile.ZipFile, member: str | zipfile.ZipInfo) -> BufferedIOBase:
    """Open a member of an archive. Raises InputError: its header is damaged."""
    try:
        return cast(BufferedIOBase, archive.open(member))
    except DAMAGED_ARCHIVE as error:
        name = member if isinstance(member, str) else member.filename
        raise InputError(f"{path}: {name!r} in it is damaged: {error}") from None


def map_tensor(path: Path, offset: int, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    """Return a tensor that lies in the file, as a private copy on write: its pages are read when they are
    first used, and what is copied in any case (a matrix of Google's, transposed) is not copied twice. A file
    that is replaced by another, as `save` does it, stays what it was."""
    count = prod(shape)
    first = offset - offset % mmap.ALLOCATIONGRANULARITY
    length = offset - first + count * dtype.itemsize
    with path.open("rb") as file:
        if first + length > path.stat().st_size:
            raise InputError(f"{path} is truncated: {first + length - path.stat().st_size} bytes are missing")
        pages = mmap.mmap(file.fileno(), length, access=mmap.ACCESS_COPY, offset=first)
    return torch.frombuffer(pages, dtype=dtype, count=count, offset=offset - first).view(shape)


def data_offset(path: Path, info: zipfile.ZipInfo) -> int:
    """Return where a stored member's bytes begin: after its local header, which has its own length in it."""
    with path.open("rb") as file:
        file.seek(info.header_offset)
        header = file.read(30)
    name, extra = (int.from_bytes(header[at : at + 2], "little") for at in (26, 28))
    return info.header_offset + 30 + name + extra


def array_header(
    stream: BufferedIOBase | IO[bytes], what: str
) -> tuple[torch.dtype, tuple[int, ...], int, bool]:
    """Return type, shape, length of the header of one .npy, and whether its numbers are in Fortran's
    order."""
    header = np.lib.format
    try:
        first = header.read_magic(stream) == (1, 0)
        read_header = header.read_array_header_1_0 if first else header.read_array_header_2_0
        shape, fortran, dtype = read_header(stream, max_header_size=LARGEST_ARRAY_HEADER)
    except Exception:
        # Damaged bytes can make this parser fail in any way.
        raise InputError(f"{what} is not a NumPy array, or its header is damaged") from None
    if dtype.str not in NUMPY_TYPES:
        raise InputError(f"{what} holds {dtype.str!r}: only plain numbers are read, no Python objects")
    if len(shape) > 8 or not all(type(n) is int and n >= 0 for n in shape):
        raise InputError(f"{what} has an impossible shape: {shape!r}")
    return NUMPY_TYPES[dtype.str], shape, stream.tell(), fortran


def write_npz(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Write an uncompressed .npz, as Google's own."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for name, tensor in tensors.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as stream:
                np.lib.format.write_array(stream, np.ascontiguousarray(tensor.numpy()), allow_pickle=False)


def write_safetensors(
    tensors: Mapping[str, Tensor], path: Path, metadata: Mapping[str, str] | None = None
) -> None:
    """Write tensors with a checksum of each, which `read_safetensors` compares. Raises OSError where the file
    cannot be written. metadata: more of the file's header."""
    checksums = json.dumps({name: crc32(tensor) for name, tensor in tensors.items()})
    if not path.exists():
        path.touch()
    mode = path.stat().st_mode
    try:
        save_file(dict(tensors), path, metadata={"format": "pt", **(metadata or {}), CHECKSUMS: checksums})
    except SafetensorError as error:
        number = re.search(r"\(os error (\d+)\)", str(error))
        if number is None:
            raise
        code = int(number[1])
        raise OSError(code, os.strerror(code), str(path)) from error
    # The library writes the metadata in an order that changes from call to call, and equal weights are to be
    # equal files.
    with path.open("r+b") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
        header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
        text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
        assert len(text) <= length, "the library writes JSON in another way"
        file.seek(8)
        file.write(text.ljust(length))
    # The library makes files that only their owner may read: a server that runs as another user could not
    # open the model. Suppressed: the file system has no such modes.
    with suppress(OSError):
        path.chmod(mode)
