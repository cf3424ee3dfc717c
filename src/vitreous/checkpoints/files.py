"""A checkpoint's files, opened: its tensors by name, and the descriptions beside them. Files from outside are
read without trusting them: nothing is executed, and a header is not believed before it has been compared with
the size of the file."""

from __future__ import annotations

import json
import re
import tarfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import SupportsFloat

from torch import Tensor

from vitreous.checkpoints.distributed_files import METADATA, read_distributed
from vitreous.checkpoints.download import SUFFIXES, hub_hint
from vitreous.checkpoints.hdf5_files import SIGNATURE, archive_description, is_keras_archive, read_hdf5
from vitreous.checkpoints.tensors import LARGEST_HEADER, Entry, Tensors, is_npz, read_npz, read_safetensors
from vitreous.checkpoints.torch_files import Parts, parts_in_memory, read_torch
from vitreous.errors import InputError
from vitreous.outside import read_regular

WEIGHTS = ("model.safetensors", "pytorch_model.bin", "open_clip_model.safetensors")
# Of training programs: accelerate with FSDP, DeepSpeed, torch.distributed.
OTHER_WEIGHTS = ("pytorch_model_fsdp.bin", "mp_rank_00_model_states.pt", METADATA)
KERAS_WEIGHTS = ("task.weights.h5", "model.weights.h5")  # of a preset of keras-hub
INDICES = tuple(f"{name}.index.json" for name in WEIGHTS)


@dataclass(frozen=True)
class Source:
    """An opened checkpoint, of a format that may not be known yet.

    Attributes:
        config, preprocessor: config.json (with what is in open_clip_config.json) and
            preprocessor_config.json, empty where there is none.
        overrides: what the user gave by keyword.
        assumed: what none of these says and a reader had to assume, in words.
        left_out: the weights that belong to something else, by name.
        inside: what was before their names in the file, with the keys that lead to them.
        parts: the state dicts that a file holds deeper inside, each by the keys that lead to it.
        place: where it was found, for `model.origin`, where that is not what the user gave.
    """

    where: str
    tensors: Tensors
    config: dict[str, object] = field(default_factory=dict)
    preprocessor: dict[str, object] = field(default_factory=dict)
    overrides: Mapping[str, object] = field(default_factory=dict)
    assumed: list[str] = field(default_factory=list)
    left_out: Mapping[str, Entry] = field(default_factory=dict)
    inside: str = ""
    parts: Mapping[str, Tensors] = field(default_factory=dict)
    place: str = ""

    @classmethod
    def of(cls, where: str, tensors: Mapping[str, Tensor]) -> Source:
        """Tensors in memory, which are copied when they are read."""
        return cls.of_parts(where, {"": parts_in_memory(tensors).get("", Tensors({}))})

    @classmethod
    def of_parts(
        cls,
        where: str,
        parts: Mapping[str, Tensors],
        config: dict[str, object] | None = None,
        preprocessor: dict[str, object] | None = None,
    ) -> Source:
        """The state dicts of one file, whose most probable is taken until a format recognizes another."""
        first = min(parts, key=likelihood)
        several = {} if set(parts) == {""} else parts
        return cls(where, parts[first], config or {}, preprocessor or {}, parts=several)

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor. Raises InputError: there is no tensor of this name."""
        if name not in self.tensors:
            raise InputError(f"{self.where}: missing weights: {name}")
        return self.tensors.shape(name)

    def size(self, name: str, axis: int, *, ndim: int) -> int:
        """The length of one axis of a tensor that must have `ndim` of them."""
        shape = self.shape(name)
        if len(shape) != ndim or 0 in shape:
            raise InputError(f"{self.where}: {name} has shape {shape}, it should have {ndim} axes")
        return shape[axis]

    def size_if_there(self, name: str, axis: int, *, ndim: int) -> int | None:
        """The same; None where there is no such tensor."""
        return self.size(name, axis, ndim=ndim) if name in self.tensors else None

    def positions(self, name: str) -> int:
        """The rows of a position table (n, D) or (1, n, D); 0 for another shape."""
        shape = self.shape(name)
        return shape[-2] if len(shape) in (2, 3) else 0

    def count(self, name: str, *stage: int, first: int = 0) -> int:
        """How many layers, or units of a stage, there are: `name` with their number in the last braces.
        Raises InputError: there is not one."""
        number = first
        while name.format(*stage, number) in self.tensors:
            number += 1
        if number == first:
            raise InputError(f"{self.where}: missing weights: {name.format(*stage, first)}")
        return number - first

    def units(self, name: str, first: int) -> tuple[int, ...]:
        """How many units each stage of a ResNet has: `name` with the numbers of stage and unit, which count
        from `first`."""
        layers: list[int] = []
        while name.format(stage := first + len(layers), first) in self.tensors:
            layers.append(self.count(name, stage, first=first))
        return tuple(layers)

    def prefix(self, what: str, prefixes: Iterable[str], *names: str) -> str:
        """The first of `prefixes` that is before one of `names` in this file. Raises InputError: none is, so
        the file is not `what` it should be."""
        for prefix in prefixes:
            if any(prefix + name in self.tensors for name in names):
                return prefix
        raise InputError(f"{self.where} is not {what}: it has no {' or '.join(names)}")

    def renamed(self, rename: Callable[[str], str | None]) -> Source:
        """The same tensors under other names; those whose new name is None are left out."""
        named = ((rename(name), entry) for name, entry in self.tensors.entries.items())
        return replace(self, tensors=Tensors({name: entry for name, entry in named if name is not None}))

    def without(self, names: Iterable[str]) -> Source:
        """The same, but for tensors that belong to something else."""
        out = set(names)
        left = {name: entry for name, entry in self.tensors.entries.items() if name in out}
        rest = self.renamed(lambda name: None if name in out else name)
        return replace(rest, left_out={**self.left_out, **left})

    def below(self, prefix: str, *kept: str) -> Source:
        """The tensors whose names begin with `prefix`, without it, and those whose names begin with one of
        `kept`; others are left out."""
        within = self.without(name for name in self.tensors if not name.startswith((prefix, *kept)))
        return replace(within.renamed(lambda name: name.removeprefix(prefix)), inside=self.inside + prefix)


def model_folder(path: Path) -> Path:
    """The `model/` of a run directory; any other path as it is."""
    run = not (path / "config.json").is_file() and (path / "model" / "config.json").is_file()
    return path / "model" if run else path


def open_source(path: Path) -> Source:
    """The checkpoint at `path`, a file or a folder. Raises InputError: nothing is there, or no file of
    weights, or it is damaged."""
    if not path.exists():
        raise InputError(f"there is no checkpoint at {path}; {hub_hint(str(path))}")
    if path.is_dir():
        path = first_module(path)
        weights = weights_of_folder(path)
        return Source.of_parts(str(path), read_weights(weights), *descriptions(path))
    if path.suffix == ".keras" and is_keras_archive(path):
        return Source.of_parts(str(path), read_weights(path), archive_description(path))
    usual = path.name in WEIGHTS + INDICES + KERAS_WEIGHTS
    described = descriptions(path.parent) if usual else (open_clip_description(path.parent), {})
    return Source.of_parts(str(path), read_weights(path), *described)


def descriptions(folder: Path) -> tuple[dict[str, object], dict[str, object]]:
    """config.json and preprocessor_config.json (or that part of processor_config.json), each empty where it
    is missing."""
    names = ("config.json", "preprocessor_config.json", "processor_config.json", "task.json")
    paths = (folder / name for name in names)
    config, preprocessor, processor, task = (read_json(path) if path.is_file() else {} for path in paths)
    images = processor.get("image_processor")
    # a task of keras-hub has its backbone in it
    config = open_clip_description(folder) | (task or config)
    return config, preprocessor or (images if isinstance(images, dict) else {})


def open_clip_description(folder: Path) -> dict[str, object]:
    """open_clip_config.json, empty where it is missing. Raises InputError: it describes no tower."""
    path = folder / "open_clip_config.json"
    described = read_json(path) if path.is_file() else {}
    model = described.get("model_cfg", {})
    if not (isinstance(model, dict) and isinstance(model.get("vision_cfg", {}), dict)):
        raise InputError(f"{path} is not understood: it has no model_cfg with a vision_cfg")
    return described


IN_PYTORCH = "load it with transformers and write it with save_pretrained, as PyTorch or safetensors"
ORBAX = (
    "a checkpoint of orbax (JAX): restore it there, and write its parameters with numpy.savez, by names like "
    "params/Transformer/encoder_norm/scale"
)
# What folders hold instead of weights that are read here, by the name of a file.
OTHER_FILES = {
    "adapter_config.json": "an adapter of PEFT, not a model: merge it into its model (merge_and_unload), "
    "and write that",
    "flax_model.msgpack": f"the weights of Flax (flax_model.msgpack): {IN_PYTORCH}",
    "tf_model.h5": f"the weights of TensorFlow (tf_model.h5): {IN_PYTORCH}",
    "saved_model.pb": f"a SavedModel of TensorFlow: {IN_PYTORCH}",
    **dict.fromkeys(("_CHECKPOINT_METADATA", "manifest.ocdbt", "*/_CHECKPOINT_METADATA"), ORBAX),
    "*.index": f"a checkpoint of TensorFlow: {IN_PYTORCH}",
}
# What files are that are not read here, by their first bytes.
OTHER_BEGINNINGS = {
    b"GGUF": "a GGUF file of llama.cpp: its weights are quantized, and not read here",
    b"\x08": "an ONNX program: vitreous.predict takes it as it is, and its weights are not read",
    b"<!DOCTYPE": "a web page, not a checkpoint: the download failed, perhaps for want of a login",
    b"<!doctype": "a web page, not a checkpoint: the download failed, perhaps for want of a login",
    b"<html": "a web page, not a checkpoint: the download failed, perhaps for want of a login",
    b"<?xml": "an XML file, as exported programs have it: give the model that it was made from",
    b"\xff\xd8\xff": "a JPEG image, not a checkpoint",
    b"\x89PNG": "a PNG image, not a checkpoint",
    b"{": "text in JSON, which may describe a model: give the file of its weights",
    b"\x1f\x8b": "compressed with gzip: unpack it",
    b"BZh": "compressed with bzip2: unpack it",
    b"\xfd7zXZ": "compressed with xz: unpack it",
    b"(\xb5/\xfd": "compressed with zstd: unpack it",
    b"\x93NUMPY": "one NumPy array, not a checkpoint: an .npz holds arrays by name",
}


def first_module(folder: Path) -> Path:
    """The folder of the first module of sentence-transformers, which lists them in modules.json; any other
    folder as it is. Raises InputError: the list is not understood."""
    listed = folder / "modules.json"
    if not listed.is_file():
        return folder
    try:
        inside = json.loads(read_small(listed))[0]["path"]
        found = folder / str(inside)
        known = found.resolve().is_relative_to(folder.resolve())
    except (ValueError, LookupError, TypeError, RecursionError):
        known = False
    if not known:
        raise InputError(f"{listed} is not understood: it has no list of modules with a path")
    return found if found.is_dir() else folder


def weights_of_folder(folder: Path) -> Path:
    """The file of weights in a folder: one of the usual names, or the only one there is."""
    for name in (*WEIGHTS[:1], *INDICES[:1], *WEIGHTS[1:], *INDICES[1:], *OTHER_WEIGHTS, *KERAS_WEIGHTS):
        if (folder / name).is_file():
            return folder / name
    found = sorted(path for path in folder.iterdir() if path.name.endswith(SUFFIXES) and path.is_file())
    if len(found) == 1:
        return found[0]
    for name, kind in OTHER_FILES.items():
        if any(folder.glob(name)):
            raise InputError(f"{folder} holds {kind}")
    what = f"several files of weights ({', '.join(path.name for path in found)})" if found else "no weights"
    raise InputError(f"{folder} holds {what}: give the path of one file")


# Where training code puts the weights among the rest of its state, the likelier first: averages of them, then
# the model itself, then what is trained beside an average. Of MoCo, ALBEF and BLIP the momentum encoder only
# gives the keys, and their own code goes on with the other.
LIKELIER = (
    re.compile(r"ema|averag|swa|teacher|target", re.IGNORECASE),
    re.compile(r"^$|state_dict|model|net|module|weights|params|encoder|backbone", re.IGNORECASE),
)


def likelihood(name: str) -> int:
    """The place of a state dict, or of a prefix, in `LIKELIER`; less for a likelier one."""
    if re.search(r"optim|student|online|discriminator|sched|momentum|encoder_k|_m\b", name, re.IGNORECASE):
        return len(LIKELIER) + 1
    return next((i for i, pattern in enumerate(LIKELIER) if pattern.search(name)), len(LIKELIER))


def read_weights(path: Path) -> Parts:
    """The state dicts of a file, whose kind its first bytes tell and not its name."""
    if path.exists() and not path.is_file():
        raise InputError(f"cannot read {path}: it is not a regular file")
    if path.name == METADATA:
        return read_distributed(path)
    if path.name.endswith(".index.json"):
        return {"": read_shards(path)}
    try:
        with path.open("rb") as file:
            start = file.read(9)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    if not start:
        raise InputError(f"{path} is empty: its download may have failed, or the disk was full")
    if start[8:9] == b"{" and start[:2] != b"PK":
        return {"": read_safetensors(path)}
    if start[:8] == SIGNATURE or (start[:2] == b"PK" and is_keras_archive(path)):
        return {"": read_hdf5(path)}
    if start[:2] == b"PK" and is_npz(path):
        return {"": read_npz(path)}
    if start[:2] == b"PK" or start[:1] == b"\x80":
        return read_torch(path)
    if start[4:8] == b"TFL3":
        raise InputError(f"{path} is a program of TensorFlow Lite: give the model that it was made from")
    if start == b"version h":
        raise InputError(f"{path} is a Git-LFS pointer and not the file itself: fetch that with git lfs pull")
    if re.match(rb"[\x81-\x8f][\xa1-\xbf]", start):  # a mapping whose first key is a short text
        raise InputError(f"{path} is a file of msgpack, as Flax writes its weights: {IN_PYTORCH}")
    for beginning, kind in OTHER_BEGINNINGS.items():
        if start.startswith(beginning):
            raise InputError(f"{path} is {kind}")
    if path.name.endswith(".index") or ".data-0" in path.name:
        raise InputError(f"{path} is a part of {OTHER_FILES['*.index']}")
    if tarfile.is_tarfile(path):
        raise InputError(f"{path} is a tar archive: unpack it, and give the file of weights in it")
    raise InputError(
        f"{path} is not a checkpoint that is known here: not a .safetensors, .npz or PyTorch file"
    )


def read_shards(index: Path) -> Tensors:
    """The tensors of a model in several files, by its index. A shard must be beside its index."""
    places = read_json(index).get("weight_map")
    if not isinstance(places, dict) or not all(isinstance(name, str) for name in places.values()):
        raise InputError(f"{index} holds no weight_map from names to files")
    shards: dict[str, Tensors] = {}
    for name in sorted(set(places.values())):
        if Path(name).name != name or name in ("", ".", "..") or name.endswith(".index.json"):
            raise InputError(f"{index} points at {name!r}: a shard must be in the folder of its index")
        shards[name] = next(iter(read_weights(index.with_name(name)).values()))
    for tensor, name in places.items():
        if tensor not in shards[name]:
            raise InputError(f"{index}: {tensor} is not in {name}")
    return Tensors({tensor: shards[name].entries[tensor] for tensor, name in places.items()})


def read_small(path: Path) -> bytes:
    """The bytes of a file that describes a model."""
    try:
        if path.stat().st_size > LARGEST_HEADER:
            raise InputError(f"{path} is far larger than any description of a model: it is refused")
        return read_regular(path)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None


def read_json(path: Path) -> dict[str, object]:
    content = read_small(path)
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        raise InputError(f"{path} is not JSON: the file is damaged, or not what its name says") from None
    if not isinstance(value, dict):
        raise InputError(f"{path} holds no JSON object")
    return value


def part_of(described: Mapping[str, object], name: str, where: object) -> dict[str, object]:
    """A description inside the description of `where`; empty where it is missing or empty. Raises InputError:
    it is something else."""
    part = described.get(name) or {}
    if not isinstance(part, dict):
        raise InputError(f"{where}: {name}={part!r:.60} of its description is not an object")
    return part


def tower_description(source: Source) -> dict[str, object]:
    """What open_clip_config.json says of the tower that sees images; empty where it says nothing."""
    return part_of(part_of(source.config, "model_cfg", source.where), "vision_cfg", source.where)


def number_of(value: object, what: str) -> float:
    """A number in a description, also one that is written as text. Raises InputError: something else."""
    try:
        if isinstance(value, SupportsFloat | str):
            return float(value)
    except (TypeError, ValueError):  # also of an array
        pass
    raise InputError(f"{what}={value!r:.60} is not a number")


def whole_number_of(value: object, what: str, *, least: int = 1) -> int:
    """A whole number in a description, also as 64.0 or as text. Raises InputError: something else, or one
    below `least`."""
    number = number_of(value, what)
    if not number.is_integer() or number < least:
        raise InputError(f"{what}={value!r:.60} is not a whole number of {least} or more")
    return int(number)
