"""The tensors of a file by name, and those of .safetensors files: read one by one, when they are asked for,
and no header is believed before it has been compared with the size of the file."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, KeysView, Mapping
from io import BufferedIOBase
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from vitreous.errors import InputError

LARGEST_HEADER = 64 * 2**20  # bytes; that of a model with 10,000 tensors takes about one million

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


class Tensors:
    """The tensors of a file by name. Each is read when it is asked for, so that a whole file is never in
    memory next to the model made from it; names and shapes are known without reading."""

    def __init__(self, entries: Mapping[str, Entry]) -> None:
        self.entries = dict(entries)

    def __getitem__(self, name: str) -> Tensor:
        return self.entries[name].read()

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def __contains__(self, name: object) -> bool:
        return name in self.entries

    def keys(self) -> KeysView[str]:
        return self.entries.keys()

    def items(self) -> Iterator[tuple[str, Tensor]]:
        return ((name, entry.read()) for name, entry in self.entries.items())

    def shape(self, name: str) -> tuple[int, ...]:
        return self.entries[name].shape


def read_safetensors(path: Path) -> Tensors:
    """The tensors of a .safetensors file: eight bytes for the header's length, the header (JSON), the data.

    Raises:
        InputError: the file is cut, its header is damaged, or a tensor does not lie inside the file.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if not 2 <= length <= min(size - 8, LARGEST_HEADER):
                raise InputError(f"{path} is not a safetensors file, or it is cut: header of {length} bytes")
            header = json.loads(file.read(length))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise InputError(f"{path}: the safetensors header is damaged") from None
    if not isinstance(header, dict):
        raise InputError(f"{path}: the safetensors header is damaged")
    header.pop("__metadata__", None)
    return Tensors(
        {name: header_entry(path, name, fields, 8 + length, size) for name, fields in header.items()}
    )


def header_entry(path: Path, name: str, fields: Any, start: int, size: int) -> Entry:
    """One tensor of a safetensors header, checked against the file's size."""
    try:
        dtype, shape = SAFETENSORS_TYPES[fields["dtype"]], tuple(fields["shape"])
        begin, end = fields["data_offsets"]
        fits = len(shape) <= 8 and all(type(n) is int and n >= 0 for n in (*shape, begin, end))
        fits = fits and start + end <= size
        fits = fits and prod(shape) * dtype.itemsize == end - begin
    except (KeyError, TypeError, ValueError):
        fits = False
    if not fits:
        raise InputError(f"{path}: {name!r} is damaged: its type, shape or place in the file is not right")
    return Entry(shape, lambda: read_block(path, start + begin, dtype, shape))


def read_block(path: Path, offset: int, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    """A tensor whose bytes lie in a file from `offset` on."""
    with path.open("rb") as file:
        file.seek(offset)
        return read_stream(file, dtype, shape, where=path)


def read_stream(file: BufferedIOBase, dtype: torch.dtype, shape: tuple[int, ...], *, where: Path) -> Tensor:
    """A tensor from the next bytes of `file`, written straight to where it will stay."""
    tensor = torch.empty(shape, dtype=dtype)
    if not tensor.numel():
        return tensor
    target = memoryview(tensor.view(-1).view(torch.uint8).numpy())  # type: ignore[arg-type]
    done = 0
    while done < len(target):
        count = file.readinto(target[done:])
        if not count:
            raise InputError(f"{where} is cut: {len(target) - done} bytes are missing")
        done += count
    return tensor
