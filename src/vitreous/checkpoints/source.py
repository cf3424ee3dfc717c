"""What a user points at, opened: the tensors of a file or folder and the JSON that came with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isqrt
from pathlib import Path
from typing import Any, NamedTuple

from vitreous.checkpoints.files import Tensors, read_json, read_safetensors
from vitreous.checkpoints.numpy_files import read_npz
from vitreous.checkpoints.torch_files import read_torch
from vitreous.errors import InputError

WEIGHTS = ("model.safetensors", "pytorch_model.bin", "open_clip_model.safetensors")
INDICES = tuple(f"{name}.index.json" for name in WEIGHTS)


class Source(NamedTuple):
    """A checkpoint of a format that is not known yet."""

    where: str
    tensors: Tensors
    config: dict[str, Any]  # config.json, empty where there is none
    preprocessor: dict[str, Any]  # preprocessor_config.json, likewise

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor.

        Raises:
            InputError: there is no tensor of this name.
        """
        if name not in self.tensors:
            raise InputError(f"{self.where}: missing weights: {name}")
        return self.tensors.shape(name)

    def size(self, name: str, axis: int, *, ndim: int) -> int:
        """The length of one axis of a tensor that must have `ndim` of them."""
        shape = self.shape(name)
        if len(shape) != ndim or 0 in shape:
            raise InputError(f"{self.where}: {name} has shape {shape}, it should have {ndim} axes")
        return shape[axis]

    def count(self, name: Callable[[int], str]) -> int:
        """How many of name(0), name(1), ... there are: the depth.

        Raises:
            InputError: there is not one.
        """
        depth = 0
        while name(depth) in self.tensors:
            depth += 1
        if not depth:
            raise InputError(f"{self.where}: missing weights: {name(0)}")
        return depth

    def with_tensors(self, rename: Callable[[str], str | None]) -> Source:
        return self._replace(tensors=self.tensors.renamed(rename))

    def below(self, prefix: str) -> Source:
        """The tensors whose names begin with `prefix`, without it."""
        return self.with_tensors(lambda name: name.removeprefix(prefix) if name.startswith(prefix) else None)


def open_source(path: Path) -> Source:
    """The checkpoint at `path`, a file or a folder.

    Raises:
        InputError: nothing is there, or no file of weights, or it is damaged.
    """
    if not path.exists():
        raise InputError(f"there is no checkpoint at {path}")
    if path.is_dir():
        weights = weights_of_folder(path)
        return Source(str(path), read_weights(weights), *descriptions(path))
    told = descriptions(path.parent) if path.name in WEIGHTS + INDICES else ({}, {})
    return Source(str(path), read_weights(path), *told)


def descriptions(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """config.json and preprocessor_config.json, each empty where it is missing."""
    paths = folder / "config.json", folder / "preprocessor_config.json"
    config, preprocessor = (read_json(path) if path.is_file() else {} for path in paths)
    return config, preprocessor


def weights_of_folder(folder: Path) -> Path:
    """The file of weights in a folder: one of the usual names, or the only one there is."""
    for name in (*WEIGHTS[:1], *INDICES[:1], *WEIGHTS[1:], *INDICES[1:]):
        if (folder / name).is_file():
            return folder / name
    endings = (".safetensors", ".npz", ".pth", ".pt", ".bin")
    found = sorted(path for path in folder.iterdir() if path.suffix in endings and path.is_file())
    if len(found) == 1:
        return found[0]
    what = f"several files of weights ({', '.join(path.name for path in found)})" if found else "no weights"
    raise InputError(f"{folder} holds {what}: give the path of one file")


def read_weights(path: Path) -> Tensors:
    """The tensors of a file, whose kind is told by its first bytes and not by its name."""
    if path.name.endswith(".index.json"):
        return read_shards(path)
    try:
        with path.open("rb") as file:
            start = file.read(9)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    if start[:2] == b"PK":
        return read_npz(path) if is_npz(path) else read_torch(path)
    if start[8:9] == b"{":
        return read_safetensors(path)
    if start[:1] == b"\x80":
        return read_torch(path)
    raise InputError(f"{path} is no checkpoint that is known here: no .safetensors, .npz or PyTorch file")


def is_npz(path: Path) -> bool:
    """Whether a zip archive holds NumPy arrays (and not a PyTorch pickle)."""
    with path.open("rb") as file:
        local_header = file.read(30)
        name = file.read(int.from_bytes(local_header[26:28], "little"))
    return name.endswith(b".npy")


def read_shards(index: Path) -> Tensors:
    """The tensors of a model in several files, by its index. A shard must lie beside its index."""
    places = read_json(index).get("weight_map")
    if not isinstance(places, dict) or not all(isinstance(name, str) for name in places.values()):
        raise InputError(f"{index} holds no weight_map from names to files")
    shards: dict[str, Tensors] = {}
    for name in sorted(set(places.values())):
        if Path(name).name != name or name in ("", ".", ".."):
            raise InputError(f"{index} points at {name!r}: a shard must lie in the folder of its index")
        shards[name] = read_weights(index.with_name(name))
    for tensor, name in places.items():
        if tensor not in shards[name]:
            raise InputError(f"{index}: {tensor} is not in {name}")
    return Tensors({tensor: shards[name].entries[tensor] for tensor, name in places.items()})


def square_grid(
    source: Source, patches: int, told: Mapping[str, Any], patch: tuple[int, int]
) -> tuple[int, int]:
    """The image size of a file that tells only how many patches it has positions for.

    A square number is a square grid. For any other the user's `image_size` must be the checkpoint's own.
    """
    side = isqrt(patches)
    if side * side == patches and side:
        return side * patch[0], side * patch[1]
    size = told.get("image_size")
    height, width = (size, size) if isinstance(size, int) else size or (0, 0)
    if (height // patch[0]) * (width // patch[1]) != patches:
        raise InputError(
            f"{source.where}: {patches} positions are no square grid: pass image_size=(height, width) of the "
            f"images that it was made for, in patches of {patch[0]}x{patch[1]} pixels"
        )
    return height, width
