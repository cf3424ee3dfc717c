"""State dicts in PyTorch's own files (.pth, .pt, .bin) and TorchScript archives, read without running what a
pickle or a program may hold; and how these and safetensors are written."""

from __future__ import annotations

import argparse
import errno
import json
import logging
import os
import pickle
import re
import zipfile
from collections.abc import Iterator, Mapping
from functools import partial
from math import prod
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from vitreous.checkpoints.tensors import CHECKSUMS, Entry, Tensors, crc32, read_stream
from vitreous.errors import InputError

# Where training code puts the weights among the rest of its state; the first that is there is taken.
WRAPPINGS = (
    *("state_dict_ema", "model_ema", "ema_state_dict", "state_dict", "model", "model_state_dict", "net"),
    *("teacher", "student"),
)
# Classes of training code's settings beside the weights; making one runs nothing.
HARMLESS: list[Any] = [argparse.Namespace]
LARGEST_PICKLE = 8 * 2**20  # bytes of the objects in a file: of 10,000 tensors about 1.5 million
# What TorchScript's own writer uses, and what else makes nothing larger than what the file holds of it.
OPCODES = (
    *(pickle.PROTO, pickle.STOP, pickle.MARK, pickle.GLOBAL, pickle.NEWOBJ, pickle.REDUCE, pickle.BUILD),
    pickle.BINPERSID,
    *(pickle.NONE, pickle.NEWTRUE, pickle.NEWFALSE, pickle.BININT, pickle.BININT1, pickle.BININT2),
    *(pickle.LONG1, pickle.LONG4, pickle.BINFLOAT, pickle.BINUNICODE),
    *(pickle.BINPUT, pickle.LONG_BINPUT, pickle.BINGET, pickle.LONG_BINGET),
    *(pickle.EMPTY_TUPLE, pickle.TUPLE, pickle.TUPLE1, pickle.TUPLE2, pickle.TUPLE3),
    *(pickle.EMPTY_LIST, pickle.APPEND, pickle.APPENDS, pickle.EMPTY_DICT, pickle.SETITEM, pickle.SETITEMS),
)
log = logging.getLogger(__name__)


def read_torch(path: Path) -> Tensors:
    """The tensors of a PyTorch file. Raises InputError: it is damaged, holds anything but plain tensors and
    containers, or no state dict."""
    try:
        with path.open("rb") as file:
            zipped = file.read(2) == b"PK"
        if zipped:
            check_pickles(path)
        if zipped and (folder := torchscript_folder(path)):
            return read_torchscript(path, folder)
        with torch.serialization.safe_globals(HARMLESS):
            loaded = torch.load(path, map_location="cpu", weights_only=True, mmap=zipped or None)
    except InputError:
        raise
    except pickle.UnpicklingError:
        raise InputError(
            f"{path} holds Python objects and not only tensors, or is damaged: save a state dict instead"
        ) from None
    except Exception:  # damaged bytes can make this parser fail in any way
        raise InputError(f"{path} is a damaged PyTorch file") from None
    state = unwrapped(loaded)
    if state is None:
        raise InputError(f"{path} holds no state dict: names and their tensors")
    if other := [name for name, tensor in state.items() if not is_plain(tensor)]:
        raise InputError(f"{path}: {other[0]!r} is not a plain tensor with all of its numbers in the file")
    return Tensors({name: entry(tensor) for name, tensor in state.items()})


def check_pickles(path: Path) -> None:
    """Raise InputError where the objects of an archive would unfold into far more than the file holds."""
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            if info.filename.endswith(".pkl") and (
                info.file_size > LARGEST_PICKLE or info.file_size > info.compress_size
            ):
                raise InputError(
                    f"{path}: {info.filename} is far larger than what describes tensors: refused"
                )


def torchscript_folder(path: Path) -> str | None:
    """The folder inside a TorchScript archive that all of it is in; None for any other file."""
    with zipfile.ZipFile(path) as archive:
        found = (name for name in archive.namelist() if name.endswith("/constants.pkl"))
        return next((name.removesuffix("constants.pkl") for name in found), None)


class Stored(NamedTuple):
    """A tensor of a TorchScript archive: where its numbers are, the arguments of `_rebuild_tensor_v2`."""

    storage: tuple[str, torch.dtype, str, str, int]  # "storage", type, name, device, length
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    requires_grad: bool = False
    hooks: Any = None

    def __setstate__(self, state: Any) -> None:
        """Keep the class as it is, which a hostile pickle could change otherwise."""


class Object:
    """A module of a TorchScript archive, or anything else in it that is not a tensor: inert."""

    state: Any = None

    def __init__(self, *args: Any) -> None: ...

    def __setstate__(self, state: Any) -> None:
        self.state = state


STORAGES = {
    "DoubleStorage": torch.float64,
    "FloatStorage": torch.float32,
    "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16,
    "LongStorage": torch.int64,
    "IntStorage": torch.int32,
    "ShortStorage": torch.int16,
    "CharStorage": torch.int8,
    "ByteStorage": torch.uint8,
    "BoolStorage": torch.bool,
}


class ObjectReader(pickle._Unpickler):
    """Unpickles the objects of a TorchScript archive into `Object` and `Stored`; no class but these two is
    made, and no function is called. (The faster unpickler in C refuses the enumerations of such archives.)"""

    def find_class(self, module: str, name: str) -> Any:
        if module == "torch" and name in STORAGES:
            return STORAGES[name]
        return Stored if (module, name) == ("torch._utils", "_rebuild_tensor_v2") else Object

    def persistent_load(self, pid: Any) -> Any:
        return pid

    def make(self) -> None:
        args = self.stack.pop()  # type: ignore[attr-defined]
        kind = self.stack[-1]  # type: ignore[attr-defined]
        self.stack[-1] = Stored(*args) if kind is Stored else Object()  # type: ignore[attr-defined]

    dispatch: ClassVar[dict[int, Any]] = {
        **{code[0]: pickle._Unpickler.dispatch[code[0]] for code in OPCODES},
        pickle.REDUCE[0]: make,
    }


def read_torchscript(path: Path, folder: str) -> Tensors:
    """The tensors of a TorchScript archive by the names of its modules. Its code is not read. Raises
    InputError: a tensor whose numbers are not in the archive."""
    with zipfile.ZipFile(path) as archive:
        with archive.open(f"{folder}data.pkl") as file:
            root = ObjectReader(file).load()
        entries: dict[str, Entry] = {}
        for name, tensor in stored_tensors(root, (), set()):
            try:
                _, dtype, key, _, length = tensor.storage
                info = archive.getinfo(f"{folder}data/{key}")
                fits = info.compress_type == zipfile.ZIP_STORED and info.file_size == length * dtype.itemsize
                last = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride, strict=True))
                numbers = (tensor.offset, *tensor.shape, *tensor.stride)
                fits = fits and all(type(n) is int and n >= 0 for n in numbers)
                fits = fits and prod(tensor.shape) <= length and tensor.offset + last < length
            except (KeyError, TypeError, ValueError, AttributeError):
                fits = False
            if not fits:
                raise InputError(f"{path}: {name!r} is damaged: its type, shape or place is not right")
            entries[name] = Entry(tensor.shape, partial(read_stored, path, folder, tensor))
    if not entries:
        raise InputError(f"{path} is a TorchScript archive that holds no tensors")
    return Tensors(entries)


def stored_tensors(part: Any, names: tuple[str, ...], seen: set[int]) -> Iterator[tuple[str, Stored]]:
    """Each tensor of a module and of the modules in it, with its name; what is shared has its first name."""
    state = part.state if isinstance(part, Object) else None
    if not isinstance(state, dict) or id(part) in seen:
        return
    seen.add(id(part))
    for name, value in state.items():
        if isinstance(value, Stored):
            yield ".".join((*names, str(name))), value
        else:
            yield from stored_tensors(value, (*names, str(name)), seen)


def read_stored(path: Path, folder: str, tensor: Stored) -> Tensor:
    _, dtype, key, _, length = tensor.storage
    with zipfile.ZipFile(path) as archive, archive.open(f"{folder}data/{key}") as file:
        numbers = read_stream(file, dtype, (length,), where=path)  # type: ignore[arg-type]
    return numbers.as_strided(tensor.shape, tensor.stride, tensor.offset)


def is_plain(tensor: Tensor) -> bool:
    """Dense, in memory, and not larger than what is stored of it."""
    if tensor.layout is not torch.strided or tensor.device.type != "cpu" or tensor.is_quantized:
        return False
    return tensor.numel() * tensor.element_size() <= tensor.untyped_storage().nbytes()


def entry(tensor: Tensor) -> Entry:
    return Entry(tuple(tensor.shape), lambda: tensor)


def unwrapped(loaded: Any) -> dict[str, Tensor] | None:
    """The state dict among what was loaded."""
    if not isinstance(loaded, Mapping):
        return None
    inner = {name: unwrapped(loaded[name]) for name in WRAPPINGS if isinstance(loaded.get(name), Mapping)}
    if found := [name for name, state in inner.items() if state]:
        if len(found) > 1:
            log.warning("the weights under %r are taken, not those under %s", found[0], ", ".join(found[1:]))
        return inner[found[0]]
    tensors = {name: value for name, value in loaded.items() if isinstance(value, Tensor)}
    return tensors if tensors and all(isinstance(name, str) for name in tensors) else None


def write_torch(state: Mapping[str, Any], path: Path) -> None:
    """Raises OSError where the file cannot be written."""
    with path.open("wb") as file:
        try:
            torch.save(dict(state), file)
        except RuntimeError as error:  # PyTorch's archive was cut short, and does not say by what
            reason = "the file cannot be written whole; is the disk full?"
            raise OSError(errno.EIO, reason, str(path)) from error


def write_safetensors(
    tensors: Mapping[str, Tensor], path: Path, metadata: Mapping[str, str] | None = None
) -> None:
    """Write tensors with a checksum of each, which `read_safetensors` compares. Raises OSError where the file
    cannot be written. metadata: more of the file's header."""
    checksums = json.dumps({name: crc32(tensor) for name, tensor in tensors.items()})
    try:
        save_file(dict(tensors), path, metadata={"format": "pt", **(metadata or {}), CHECKSUMS: checksums})
    except SafetensorError as error:
        number = re.search(r"\(os error (\d+)\)", str(error))
        if number is None:
            raise
        code = int(number[1])
        raise OSError(code, os.strerror(code), str(path)) from error
    order_metadata(path)


def order_metadata(path: Path) -> None:
    """Sort the metadata of a file. The library writes them in an order that changes from call to call, and
    equal weights are to be equal files."""
    with path.open("r+b") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
        header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
        text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
        assert len(text) <= length, "the library writes JSON in another way"
        file.seek(8)
        file.write(text.ljust(length))


def write_state_dict(tensors: Mapping[str, Tensor], path: Path) -> None:
    """A state dict alone: safetensors where the ending says so, PyTorch's own file otherwise."""
    tensors = {name: tensor.contiguous().clone() for name, tensor in tensors.items()}
    (write_safetensors if path.suffix == ".safetensors" else write_torch)(tensors, path)
