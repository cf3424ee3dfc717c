"""State dicts in PyTorch's own files (.pth, .pt, .bin) and TorchScript archives, read without running what a
pickle or a program may hold; and how these are written."""

from __future__ import annotations

import errno
import os
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from math import prod
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
import torch
from torch import Tensor

from vitreous.checkpoints.pickles import (
    Object,
    ObjectReader,
    StoredArray,
    StoredTensor,
    class_names_in,
    found_state_dicts,
    stored_module,
)
from vitreous.checkpoints.source import CONFIG, TRAINING, Documents, File
from vitreous.checkpoints.tensors import (
    Entry,
    Tensors,
    opened_member,
    read_block,
    read_stream,
    write_safetensors,
)
from vitreous.checkpoints.what_is_this import what_is_this
from vitreous.errors import InputError

LARGEST_PICKLE = 8 * 2**20  # bytes of the objects in a file: of 10,000 tensors about 1.5 million
MAGIC = 0x1950A86A20F9469CFC6C  # with which files of PyTorch before 1.6 begin
TensorReader = Callable[
    [StoredTensor], Callable[[], Tensor] | None
]  # what reads a tensor; None where it cannot be
StateDicts = dict[str, Tensors]  # the state dicts of a file, by the keys that lead to each


def read_torch(path: Path) -> File:
    """Return the state dicts in a PyTorch file, by the keys that lead to each, joined by dots, and what its
    training program saved beside them. Raises InputError: it is damaged, or holds none."""
    try:
        with path.open("rb") as file:
            zipped = file.read(2) == b"PK"
        if zipped:
            check_pickles(path)
            loaded, place = open_archive(path)
        else:
            loaded, place = open_legacy(path)
        parts = state_dicts_of(path, loaded, place)
        return File(str(path), parts, documents_of(loaded), module=stored_module(loaded))
    except InputError:
        raise
    except Exception:
        # Damaged bytes can make this parser fail in any way.
        raise InputError(f"{path} is a damaged PyTorch file") from None


def check_pickles(path: Path) -> None:
    """Raise InputError where the objects of an archive would unfold into far more than the file holds."""
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            if info.filename.endswith(".pkl") and (
                info.file_size > LARGEST_PICKLE or info.file_size > info.compress_size
            ):
                raise InputError(
                    f"{path}: {info.filename} is far larger than what describes tensors (NumPy arrays in "
                    "it?): refused"
                )


def open_archive(path: Path) -> tuple[object, TensorReader]:
    """Return the objects in a zip archive of PyTorch, or of TorchScript without its code; and where its
    tensors are. Raises InputError: an archive of another kind."""
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        found = [name for name in names if name.endswith("data.pkl") and name.count("/") <= 1]
        if not found:
            kind = what_is_this(inside=names)
            otherwise = "a zip archive without the data.pkl of PyTorch: not a checkpoint"
            raise InputError(f"{path} is {kind or otherwise}")
        folder = found[0].removesuffix("data.pkl")
        with archive.open(found[0]) as file:
            loaded = ObjectReader(file).load()
        if f"{folder}constants.pkl" in names:
            loaded = dict(script_tensors(loaded, (), set()))
            if not loaded:
                raise InputError(
                    f"{path} is a TorchScript archive that holds no tensors by name: a frozen program "
                    "(torch.jit.freeze) has its weights as constants in its code; pass the model that it was "
                    "made from"
                )
        sizes: dict[str, int] = {}
        for info in archive.infolist():
            if info.compress_type == zipfile.ZIP_STORED:
                sizes[info.filename] = info.file_size

    def place(tensor: StoredTensor) -> Callable[[], Tensor] | None:
        _, dtype, key, _, length, *_ = tensor.storage
        if sizes.get(f"{folder}data/{key}") != length * dtype.itemsize:
            return None
        return partial(read_stored, path, folder, tensor)

    return loaded, place


def open_legacy(path: Path) -> tuple[object, TensorReader]:
    """Return the objects in a file of PyTorch before 1.6, and where its tensors are. Raises InputError: a
    pickle of something else."""
    storages: dict[str, tuple[torch.dtype, int]] = {}
    places: dict[str, int] = {}
    size = path.stat().st_size
    with path.open("rb") as file:
        first = ObjectReader(file).load()
        if first != MAGIC:
            what = "Python objects"
            if any(kind.startswith("numpy") for kind in class_names_in(first)):
                what = "NumPy arrays, as PaddlePaddle (.pdparams) and scikit-learn write them"
            raise InputError(
                f"{path} is a pickle of {what}, not a file that torch.save wrote{held_kinds(first)}"
            )
        for _ in range(2):
            ObjectReader(file).load()  # the version, and facts of the machine
        reader = ObjectReader(file)

        def persistent(pid: Any) -> object:
            if pid[0] == "module":  # a class, with its source
                return pid[1]
            storages.setdefault(pid[2], (pid[1], pid[4]))
            return pid

        reader.persistent_load = persistent  # type: ignore[method-assign]
        loaded = reader.load()
        for key in ObjectReader(file).load():
            dtype, length = storages[key]
            stated = int.from_bytes(file.read(8), "little")
            if stated != length or file.tell() + length * dtype.itemsize > size:
                raise InputError(f"{path} is a damaged PyTorch file: a tensor is truncated")
            places[key] = file.tell()
            file.seek(length * dtype.itemsize, os.SEEK_CUR)

    def place(tensor: StoredTensor) -> Callable[[], Tensor] | None:
        _, dtype, key, _, length, *view = tensor.storage
        if key not in places or storages[key] != (dtype, length) or any(view):
            return None
        return lambda: strided(read_block(path, places[key], dtype, (length,)), tensor)

    return loaded, place


def state_dicts_of(path: Path, loaded: object, place: TensorReader) -> StateDicts:
    """Return the state dicts in what was loaded. Raises InputError: there is none, or a tensor whose numbers
    are not all in the file."""
    parts: StateDicts = {}
    if kind := what_is_this(classes=list(class_names_in(loaded, skip=OPTIMIZER))):
        raise InputError(f"{path} is {kind}")
    for key, state in found_state_dicts(loaded).items():
        entries: Tensors = {}
        for name, tensor in state.items():
            if isinstance(tensor, StoredArray):
                entries[name] = Entry(tensor.shape, tensor.read)
                continue
            read = place(tensor) if fits_into_storage(tensor) else None
            if read is None:
                raise InputError(f"{path}: {name!r} is {not_plain(tensor)}")
            entries[name] = Entry(tuple(tensor.shape), read)
        parts[key] = entries
    if parts:
        return parts
    keys = ", ".join(map(str, list(loaded)[:MOST_KEYS])) if isinstance(loaded, Mapping) and loaded else ""
    inside = f": its keys are {keys}" if keys else ""
    raise InputError(
        f"{path} holds no state dict (names and their tensors){inside}{held_kinds(loaded)}: save "
        "model.state_dict()"
    )


# The state of an optimizer, whose objects say nothing of the model.
OPTIMIZER = re.compile("optim|sched|scaler|callback|loops", re.IGNORECASE)


def not_plain(tensor: object) -> str:
    """Return what a tensor is that cannot be read, as the rest of a sentence."""
    if isinstance(tensor, StoredTensor) and 0 in tensor.stride and 0 not in tensor.shape:
        return "not a plain tensor but a view that repeats its numbers (expand): save it with .contiguous()"
    return "not a plain tensor with all of its numbers in the file"


def documents_of(loaded: object) -> Documents:
    """Return what is said beside state dicts, and by the configuration of a model of transformers that was
    stored whole."""
    documents: dict[str, Mapping[str, object]] = {}
    if isinstance(loaded, Mapping):
        documents[TRAINING] = {
            str(key): value for key, value in loaded.items() if not OPTIMIZER.search(str(key))
        }
    module = stored_module(loaded)
    config = getattr(module, "config", None)
    if isinstance(config, Object) and config.kind.startswith("transformers.models."):
        documents[CONFIG] = {"model_type": config.kind.split(".")[2], **plain_attributes(config.state or {})}
    return documents


def plain_attributes(state: Mapping[str, object]) -> dict[str, object]:
    """Return the attributes of a configuration that was stored whole, and of those in it."""
    found: dict[str, object] = {}
    for name, value in state.items():
        if isinstance(value, Object) and isinstance(value.state, dict):
            value = plain_attributes(value.state)
        found[name.removeprefix("_")] = value
    return found


MOST_KEYS = 12


def held_kinds(loaded: object) -> str:
    """Return what classes of Python objects were loaded, as the end of a sentence."""
    kinds = list(dict.fromkeys(class_names_in(loaded)))
    return f"; it holds Python objects of {', '.join(kinds[:MOST_KEYS])}" if kinds else ""


def fits_into_storage(tensor: object) -> TypeGuard[StoredTensor]:
    """Return whether a tensor lies within its storage, and is not larger."""
    if not isinstance(tensor, StoredTensor):
        return False
    dtype, length = tensor.storage[1], tensor.storage[4]
    numbers = (tensor.offset, *tensor.shape, *tensor.stride, length)
    if not isinstance(dtype, torch.dtype) or not all(type(n) is int and n >= 0 for n in numbers):
        return False
    last = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride, strict=True))
    count = prod(tensor.shape)
    return count == 0 or (count <= length and tensor.offset + last < length)


def script_tensors(
    part: object, names: tuple[str, ...], seen: set[int]
) -> Iterator[tuple[str, StoredTensor]]:
    """Yield each tensor of a module of TorchScript and of the modules in it, with its name; what is shared
    has its first name."""
    state = part.state if isinstance(part, Object) else None
    if not isinstance(state, dict) or id(part) in seen:
        return
    seen.add(id(part))
    for name, value in state.items():
        if isinstance(value, StoredTensor):
            yield ".".join((*names, str(name))), value
        else:
            yield from script_tensors(value, (*names, str(name)), seen)


def read_stored(path: Path, folder: str, tensor: StoredTensor) -> Tensor:
    """Return the numbers of a tensor. Raises InputError: they are damaged, as the archive's checksum says."""
    _, dtype, key, _, length, *_ = tensor.storage
    try:
        with zipfile.ZipFile(path) as archive, opened_member(path, archive, f"{folder}data/{key}") as file:
            return strided(read_stream(file, dtype, (length,), where=path), tensor)
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
        raise InputError(f"{path}: {key!r} in it is damaged: {error}") from None


def strided(numbers: Tensor, tensor: StoredTensor) -> Tensor:
    return numbers.as_strided(tensor.shape, tensor.stride, tensor.offset)


def parts_in_memory(state: Mapping[str, object]) -> StateDicts:
    """Return the state dicts in a mapping, by the keys that lead to each, joined by dots; their tensors are
    copied when they are read."""
    parts: StateDicts = {}
    for key, tensors in found_state_dicts(state).items():
        entries: Tensors = {}
        for name, tensor in tensors.items():
            entries[name] = Entry(tuple(tensor.shape), partial(copied_tensor, name, tensor))
        parts[key] = entries
    return parts


def copied_tensor(name: str, tensor: object) -> Tensor:
    """Return a copy. Raises InputError: an array of another library, or a tensor in shards."""
    if isinstance(tensor, np.ndarray) and tensor.dtype.kind in "fiub":
        return torch.from_numpy(tensor.copy())
    if hasattr(tensor, "full_tensor"):
        raise InputError(
            f"{name} of the state dict is a DTensor, sharded over the processes: pass full_tensor()"
        )
    if not isinstance(tensor, Tensor):
        kind = f"{type(tensor).__module__}.{type(tensor).__name__}"
        raise InputError(f"{name} of the state dict is a {kind}: pass a PyTorch tensor (torch.from_numpy)")
    return tensor.detach().clone()


def write_torch(state: Mapping[str, object], path: Path) -> None:
    """Write a file of PyTorch. Raises OSError where the file cannot be written."""
    with path.open("wb") as file:
        try:
            torch.save(dict(state), file)
        except RuntimeError as error:
            # The archive was cut short, and PyTorch does not say by what.
            reason = "the file cannot be written whole; is the disk full?"
            raise OSError(errno.EIO, reason, str(path)) from error


def write_state_dict(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Write a state dict alone: safetensors where the ending says so, PyTorch's own file otherwise."""
    tensors = {name: tensor.contiguous().clone() for name, tensor in tensors.items()}
    (write_safetensors if path.suffix == ".safetensors" else write_torch)(tensors, path)
