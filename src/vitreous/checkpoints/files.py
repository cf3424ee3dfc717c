"""A checkpoint's files, opened: its tensors by name, and the descriptions beside them. Files from outside are
read without trusting them: nothing is executed, and a header is not believed before it has been compared with
the size of the file."""

from __future__ import annotations

import json
import re
import tarfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from vitreous.checkpoints.download import SUFFIXES, hub_hint
from vitreous.checkpoints.source import ADAPTER, CONFIG, DESCRIPTIONS, OPEN_CLIP_CONFIG, Documents, File
from vitreous.checkpoints.tensors import LARGEST_HEADER, Tensors, is_npz, read_npz, read_safetensors
from vitreous.checkpoints.torch_files import read_torch
from vitreous.checkpoints.what_is_this import IN_PYTORCH, OPENVINO, shard_of, what_is_this
from vitreous.errors import InputError
from vitreous.outside import read_regular, read_text

WEIGHTS = ("model.safetensors", "pytorch_model.bin", "open_clip_model.safetensors")
# Of training programs: accelerate with FSDP, DeepSpeed, torch.distributed.
OTHER_WEIGHTS = ("pytorch_model_fsdp.bin", "mp_rank_00_model_states.pt")
# Of an adapter of PEFT, which `adapters` merges into its model.
ADAPTER_WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin")
INDICES = tuple(f"{name}.index.json" for name in WEIGHTS)
# What a folder has that is a checkpoint itself, and no training program's output.
OWN = (*WEIGHTS, *INDICES, *ADAPTER_WEIGHTS, ".metadata", "modules.json")
# Folders inside that have the checkpoints, or the weights beside the optimizer's state.
INSIDE = ("lightning_logs", "checkpoints", "checkpoint", "pytorch_model_fsdp_0", "weights")
# A checkpoint, a step or a run of several, each a folder: checkpoint-500, step_1000, version_3.
NUMBERED = re.compile(r"(?:checkpoint|step|global_step|epoch|version|iter|iteration)[-_]?(\d+)")
# Lightning's files (or folders, of shards): epoch=9-step=100.ckpt, and the last of them.
LIGHTNING = re.compile(r"(?:.*-)?(?:epoch=\d+-)?step=(\d+).*\.ckpt")
LAST = "last.ckpt"
MOST_FOLDERS = 5


def model_folder(path: Path) -> Path:
    """Return the `model/` of a run directory, the newest snapshot in a folder of the hub's cache
    (models--org--name); any other path as it is."""
    if (path / "snapshots").is_dir() and path.name.startswith("models--"):
        main = path / "refs" / "main"
        snapshots = sorted((path / "snapshots").iterdir(), key=lambda each: each.stat().st_mtime)
        named = path / "snapshots" / read_text(main).strip() if main.is_file() else path
        return named if named.is_dir() and named != path else (snapshots or [path])[-1]
    run = not (path / "config.json").is_file() and (path / "model" / "config.json").is_file()
    return path / "model" if run else path


def read_checkpoint(path: Path) -> File:
    """Return the checkpoint at `path`, a file or a folder. Raises InputError: nothing is there, or no file of
    weights, or it is damaged."""
    if not path.exists():
        raise InputError(f"there is no checkpoint at {path}; {hub_hint(str(path))}")
    if path.is_dir():
        path = first_module(path)
        found, described = read_weights(weights_of_folder(path)), documents_in(path)
        return replace(found, where=str(path), documents={**found.documents, **described})
    if part := shard_of(path):
        raise InputError(f"{path} is {part}")
    own = path.name in WEIGHTS + INDICES or is_alone(path)
    described = documents_in(path.parent, DESCRIPTIONS if own else (OPEN_CLIP_CONFIG,))
    if not own or (path.name not in WEIGHTS and described.get(CONFIG, {}).get("format") == "vitreous"):
        described = {name: said for name, said in described.items() if name == OPEN_CLIP_CONFIG}
    found = read_weights(path)
    return replace(found, documents={**found.documents, **described})


def is_alone(path: Path) -> bool:
    """Return whether a file of weights is the only one in its folder, whose descriptions are then its own."""
    others = [each for each in path.parent.iterdir() if each.name.endswith(SUFFIXES) and each != path]
    return path.name.endswith(SUFFIXES) and not others


def is_adapter(path: Path) -> bool:
    """Return whether a folder holds an adapter and no model, or a file is the weights of one."""
    folder = path if path.is_dir() else path.parent
    named = path.is_dir() or path.name in ADAPTER_WEIGHTS
    weights = any((folder / name).is_file() for name in ADAPTER_WEIGHTS)
    return named and weights and (folder / ADAPTER).is_file()


def documents_in(folder: Path, names: Sequence[str] = DESCRIPTIONS) -> Documents:
    """Return the descriptions in a folder, by the names of their files. Raises InputError: one is not
    JSON."""
    return {name: read_json(folder / name) for name in names if (folder / name).is_file()}


def newest_checkpoint(path: Path) -> Path:
    """Return the newest checkpoint in the output of a training program (transformers' Trainer, accelerate,
    Lightning, DeepSpeed, torchtitan and others that number them); any other path as it is."""
    for _ in range(MOST_FOLDERS):
        if not path.is_dir() or any((path / name).exists() for name in OWN):
            return path
        if (path / LAST).exists():
            return path / LAST
        found: list[tuple[int, Path]] = []
        for each in path.iterdir():
            match = LIGHTNING.fullmatch(each.name) or (each.is_dir() and NUMBERED.fullmatch(each.name))
            if match:
                found.append((int(match[1]), each))
        within = [max(found)[1]] if found else [path / name for name in INSIDE if (path / name).is_dir()]
        if not within:
            return path
        path = within[0]
    return path


def first_module(folder: Path) -> Path:
    """Return the folder of the first module of sentence-transformers, which lists them in modules.json; any
    other folder as it is. Raises InputError: the list is not understood."""
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
        raise InputError(f"{listed} is not valid: it has no list of modules with a path")
    return found if found.is_dir() else folder


def weights_of_folder(folder: Path) -> Path:
    """Return the file of weights in a folder: one of the usual names, or the only one there is."""
    for name in (*WEIGHTS[:1], *INDICES[:1], *WEIGHTS[1:], *INDICES[1:], *OTHER_WEIGHTS):
        if (folder / name).is_file():
            return folder / name
    found = sorted(path for path in folder.iterdir() if path.name.endswith(SUFFIXES) and path.is_file())
    if len(found) == 1:
        return found[0]
    names = [path.name for depth in ("*", "*/*") for path in folder.glob(depth)]
    if kind := what_is_this(files=names):
        raise InputError(f"{folder} holds {kind}")
    what = f"several files of weights ({', '.join(path.name for path in found)})" if found else "no weights"
    raise InputError(f"{folder} contains {what}: pass the path of one file")


def read_weights(path: Path) -> File:
    """Return what a file of weights holds, whose kind its first bytes tell and not its name. Raises
    InputError: it is not a checkpoint, or one that is not supported."""
    if path.exists() and not path.is_file():
        raise InputError(f"cannot read {path}: it is not a regular file")
    if path.name.endswith(".index.json"):
        return File(str(path), {"": read_shards(path)})
    try:
        with path.open("rb") as file:
            start = file.read(9)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    if not start:
        raise InputError(f"{path} is empty: its download may have failed, or the disk was full")
    if start[8:9] == b"{" and start[:2] != b"PK":
        return File(str(path), {"": read_safetensors(path)})
    if start[:2] == b"PK" and is_npz(path):
        return File(str(path), {"": read_npz(path)})
    if start[:2] == b"PK" or start[:1] == b"\x80":
        return read_torch(path)
    if start[4:8] == b"TFL3":
        raise InputError(f"{path} is a TensorFlow Lite program: pass the model that it was converted from")
    if path.suffix == ".bin" and path.with_suffix(".xml").is_file():
        raise InputError(f"{path} holds the weights of {OPENVINO}")
    if kind := what_is_this(files=[path.name], start=start):
        raise InputError(f"{path} is {kind}")
    if re.match(rb"[\x81-\x8f][\xa1-\xbf]", start):  # a mapping whose first key is a short text
        raise InputError(f"{path} is a msgpack file, as Flax writes them: {IN_PYTORCH}")
    if tarfile.is_tarfile(path):
        raise InputError(f"{path} is a tar archive: unpack it, and pass the file of weights in it")
    raise InputError(f"{path} is not a known kind of checkpoint: not a .safetensors, .npz or PyTorch file")


def read_shards(index: Path) -> Tensors:
    """Return the tensors of a model in several files, by its index. A shard must be beside its index."""
    places = read_json(index).get("weight_map")
    if not isinstance(places, dict) or not all(isinstance(name, str) for name in places.values()):
        raise InputError(f"{index} holds no weight_map from names to files")
    shards: dict[str, Tensors] = {}
    for name in sorted(set(places.values())):
        if Path(name).name != name or name in ("", ".", "..") or name.endswith(".index.json"):
            raise InputError(f"{index} points to {name!r}: a shard must be in the folder of its index")
        shards[name] = next(iter(read_weights(index.with_name(name)).parts.values()))
    for tensor, name in places.items():
        if tensor not in shards[name]:
            raise InputError(f"{index}: {tensor} is not in {name}")
    return {tensor: shards[name][tensor] for tensor, name in places.items()}


def read_small(path: Path) -> bytes:
    """Return the bytes of a file that describes a model."""
    try:
        if path.stat().st_size > LARGEST_HEADER:
            raise InputError(f"{path} is far too large for a description of a model: refused")
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
