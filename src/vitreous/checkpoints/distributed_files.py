"""Folders of torch.distributed.checkpoint (DCP), as FSDP writes them: `.metadata`, a pickle that says which
part of each tensor is where, read inertly; and files that hold the parts, each a file of torch.save."""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from vitreous.checkpoints.pickles import Object, ObjectReader, Stored, found_state_dicts
from vitreous.checkpoints.tensors import Entry, Tensors, check_apart, read_block
from vitreous.checkpoints.torch_files import LARGEST_PICKLE, Parts, check_pickles, fits, open_archive
from vitreous.errors import InputError

METADATA = ".metadata"
# By the name of a tensor and the place of a part of it: what `.metadata` says of where that is. What is wrong
# with it is caught where it is read.
Storage = dict[tuple[str, tuple[int, ...] | None], Mapping[str, Any]]
MOST_AXES = 8


class Shard(NamedTuple):
    """A part of a tensor, and where its file of torch.save is."""

    offsets: tuple[int, ...]
    shape: tuple[int, ...]
    file: Path
    begin: int
    length: int

    def read(self, dtype: torch.dtype) -> Tensor:
        content = BytesIO(read_block(self.file, self.begin, torch.uint8, (self.length,)).numpy().tobytes())
        try:
            check_pickles(content, self.file)
            loaded, place = open_archive(content, self.file)
            read = place(loaded) if isinstance(loaded, Stored) and fits(loaded) else None
            tensor = read() if read else None
        except InputError:
            raise
        except Exception:  # damaged bytes can make this parser fail in any way
            tensor = None
        if tensor is None or tensor.shape != self.shape or tensor.dtype != dtype:
            raise InputError(f"{self.file} is damaged: the part of a tensor at byte {self.begin} is another")
        return tensor


class Sharded(NamedTuple):
    """A tensor in parts."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    shards: tuple[Shard, ...]

    def read(self) -> Tensor:
        whole = torch.empty(self.shape, dtype=self.dtype)
        for shard in self.shards:
            places = zip(shard.offsets, shard.shape, strict=True)
            whole[tuple(slice(begin, begin + count) for begin, count in places)] = shard.read(self.dtype)
        return whole


def read_distributed(path: Path) -> Parts:
    """The state dicts of the folder of a `.metadata`, by the keys that lead to each. Raises InputError: it is
    damaged, or holds none."""
    try:
        size = path.stat().st_size
        if size > LARGEST_PICKLE:
            raise InputError(f"{path} is far larger than what describes tensors: refused")
        with path.open("rb") as file:
            stated = ObjectReader(file).load().state
        storage: Storage = {}
        for index, info in stated["storage_data"].items():  # of a tensor, and of a part of it
            storage[index.state["fqn"], index.state["offset"]] = info.state
        tensors: dict[str, Sharded] = {}
        for name, described in stated["state_dict_metadata"].items():
            if kind_of(described) == "TensorStorageMetadata":
                tensors[name] = sharded(path.parent, name, described.state, storage)
        tree = nested(tensors, stated.get("planner_data"))
    except InputError:
        raise
    except Exception:  # damaged bytes can make this parser fail in any way
        raise InputError(f"{path} is not the .metadata of torch.distributed.checkpoint, or damaged") from None
    check_shards(path, tensors)
    parts: Parts = {}
    for key, state in found_state_dicts(tree).items():
        entries = {}
        for name, each in state.items():
            assert isinstance(each, Sharded)  # the tree has no others
            entries[name] = Entry(each.shape, each.read)
        parts[key] = Tensors(entries)
    if not parts:
        raise InputError(f"{path.parent} holds no state dict (names and their tensors)")
    return parts


def kind_of(value: object) -> str:
    """The name of its class, without that of the module."""
    return value.kind.rpartition(".")[2] if isinstance(value, Object) else ""


def sharded(folder: Path, name: str, described: Mapping[str, Any], storage: Storage) -> Sharded:
    """A tensor from what `.metadata` says of it. Raises InputError: it lies elsewhere, or is compressed."""
    dtype = described["properties"].state[0]
    shards = []
    for chunk in described["chunks"]:
        offsets, shape = chunk.state["offsets"], chunk.state["sizes"]
        info = storage.get((name, offsets)) or storage[name, None]
        file = info["relative_path"]
        if Path(file).name != file or not Path(file).suffix:
            raise InputError(f"{folder}: .metadata points at {file!r}: parts must be in this folder")
        if info.get("transform_descriptors"):
            raise InputError(f"{folder}: {name} is compressed, which is not read here")
        shards.append(Shard(offsets, shape, folder / file, info["offset"], info["length"]))
    return Sharded(described["size"], dtype, tuple(shards))


def check_shards(path: Path, tensors: Mapping[str, Sharded]) -> None:
    """Raise InputError where the parts of a tensor are not the whole of it, or not in their files."""
    sizes: dict[Path, int] = {}
    for each in tensors.values():
        for shard in each.shards:
            if shard.file in sizes:
                continue
            if not shard.file.is_file():
                raise InputError(f"{path.parent}: {shard.file.name}, which .metadata names, is missing")
            sizes[shard.file] = shard.file.stat().st_size
    places: dict[Path, dict[str, tuple[int, int]]] = {}
    for name, each in tensors.items():
        whole = isinstance(each.dtype, torch.dtype) and are_counts(each.shape)
        whole = whole and sum(prod(shard.shape) for shard in each.shards) == prod(each.shape)
        for number, (offsets, shape, file, begin, length) in enumerate(each.shards):
            whole = whole and are_counts(offsets, shape, (begin, length)) and begin + length <= sizes[file]
            whole = whole and len(offsets) == len(shape) == len(each.shape)
            whole = whole and all(
                first + count <= size for first, count, size in zip(offsets, shape, each.shape, strict=True)
            )
            whole = whole and prod(shape) * each.dtype.itemsize <= length
            places.setdefault(file, {})[f"{name} ({number})"] = (begin, begin + length)
        if not whole:
            raise InputError(f"{path.parent}: {name!r} is damaged: its parts are not the whole of it")
    for file, inside in places.items():
        check_apart(file, inside)


def are_counts(*several: object) -> bool:
    """Whether each is a tuple of a few numbers that are not negative."""
    for each in several:
        if not isinstance(each, tuple) or len(each) > MOST_AXES:
            return False
        if not all(type(n) is int and n >= 0 for n in each):
            return False
    return True


def nested(tensors: Mapping[str, Sharded], paths: object) -> dict[str, Any]:
    """The tensors in the mappings that they were in before their keys were joined.

    Args:
        paths: by the name of a tensor the keys that lead to it, where `.metadata` has them.
    """
    tree: dict[str, Any] = {}
    for name, tensor in tensors.items():
        *keys, last = paths.get(name, (name,)) if isinstance(paths, dict) else (name,)
        inner = tree
        for key in keys:
            inner = inner.setdefault(str(key), {})
        inner[str(last)] = tensor
    return tree
