"""A checkpoint of a foreign format, opened (`Source`) and understood (`Reading`) by the `Format` of its
codebase; and the questions that several formats must ask."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from math import isqrt
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel
from torch import Tensor, nn

from vitreous.checkpoints.files import Entry, Tensors, read_json, read_safetensors
from vitreous.checkpoints.numpy_files import read_npz
from vitreous.checkpoints.torch_files import read_torch
from vitreous.checkpoints.weights import AnyConfig, Row, meta_model
from vitreous.errors import InputError
from vitreous.models.bit import BiTConfig
from vitreous.models.config import ViTConfig
from vitreous.models.names import Model, build
from vitreous.models.preprocessing import Preprocessing

WEIGHTS = ("model.safetensors", "pytorch_model.bin", "open_clip_model.safetensors")
INDICES = tuple(f"{name}.index.json" for name in WEIGHTS)

Overrides = Mapping[str, Any]  # what the user gave by keyword

# Overrides that change the model after it was read, where every other one answers what the file leaves open.
AFTERWARDS = ("image_size", "patch_size", "num_classes")

# Of each field of the configuration, what a format can hold; None for anything. A dot goes into the stem or
# the positions. The first value is what the field becomes when it is dropped. Fields not named are free.
Limits = Mapping[str, Collection[Any] | None]

# What most codebases' only ViT is; a format says where it differs.
PLAIN_VIT: dict[str, Collection[Any] | None] = {
    "mlp": ("gelu",),
    "norm_eps": (1e-6,),
    "norm": ("pre",),
    "position.where": ("stem",),
    "position.kind": ("learned",),
    "stem.kind": ("patch",),
    "stem.norm_before": (False,),
    "stem.norm_after": (False,),
    "pad": (False,),
    "class_token": (True,),
    "distillation_token": (False,),
    "registers": (0,),
    "embedding_norm": (False,),
    "pooling": ("class",),
    "final_norm": ("tokens",),
    "qk_norm": (False,),
    "head_dim": (None,),
    "representation_size": (None,),
}


class Source(NamedTuple):
    """An opened checkpoint, of a format that may not be known yet."""

    where: str
    tensors: Tensors
    config: dict[str, Any]  # config.json, empty where there is none
    preprocessor: dict[str, Any]  # preprocessor_config.json, likewise

    @classmethod
    def of(cls, where: str, tensors: Mapping[str, Tensor]) -> Source:
        """Tensors in memory, which are copied when they are read."""

        def entry(tensor: Tensor) -> Entry:
            return Entry(tuple(tensor.shape), lambda: tensor.detach().clone())

        return cls(where, Tensors({name: entry(tensor) for name, tensor in tensors.items()}), {}, {})

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


class Reading(NamedTuple):
    """A foreign checkpoint, understood: enough to build our model and load its weights."""

    source: Source  # its tensors under the names that the rows use
    config: AnyConfig
    rows: list[Row]
    preprocessing: Preprocessing | None = None
    labels: list[str] | None = None
    assumed: tuple[str, ...] = ()  # what the file did not say, in words
    ignored: tuple[str, ...] = ()  # tensors that are known and not needed
    task: str | None = "classification"  # what the head's outputs mean, where there is a head
    make: Callable[..., nn.Module] = meta_model  # from the configuration to the model without weights


@dataclass(frozen=True)
class Format:
    """How one codebase stores its models.

    Attributes:
        name, about: for `--format`, and in one line.
        read: from an opened checkpoint and the user's overrides to what it holds.
        keys: regular expressions; a file is of this format if each matches the whole name of some weight.
        entries: of config.json, each of which means this format whatever the weights are called.
        overridable: the fields that a user may override; None where `read` checks them itself.
        write: a model to a path; None where the format is only read.
        limits: what a model can be to be written; a function where that depends on the model.
        interpolation: how the codebase resamples positions, by the name that `resize` knows.
        suffixes: of its files; none for a folder.
        bare_suffixes: with which a format that is a folder is written as a state dict alone.
        unsaid: fields that its files do not tell and that the reader must be given; `bare_unsaid` likewise.
    """

    name: str
    about: str
    read: Callable[[Source, Overrides], Reading]
    keys: tuple[str, ...] = ()
    entries: tuple[tuple[str, str], ...] = ()
    overridable: type[BaseModel] | None = ViTConfig
    write: Callable[[Model, Path], None] | None = None
    limits: Limits | Callable[[Model], Limits] = field(default_factory=dict)
    interpolation: str = "timm"
    suffixes: tuple[str, ...] = ()
    bare_suffixes: tuple[str, ...] = ()
    unsaid: tuple[str, ...] = ()
    bare_unsaid: tuple[str, ...] = ()

    def recognizes(self, source: Source, names: str) -> bool:
        """Whether `source`, the names of whose weights are the lines of `names`, is of this format."""
        if any(source.config.get(key) == value for key, value in self.entries):
            return True
        return bool(self.keys) and all(re.search(rf"(?m)^{key}$", names) for key in self.keys)

    def limits_of(self, model: Model) -> Limits:
        return self.limits(model) if callable(self.limits) else self.limits

    def unsaid_at(self, path: Path) -> tuple[str, ...]:
        """The fields that a reader of what is written at `path` must be given."""
        return self.bare_unsaid if path.suffix in self.bare_suffixes else self.unsaid


def model_folder(path: Path) -> Path:
    """The `model/` of a run directory; any other path as it is."""
    run = not (path / "config.json").is_file() and (path / "model" / "config.json").is_file()
    return path / "model" if run else path


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
    described = descriptions(path.parent) if path.name in WEIGHTS + INDICES else ({}, {})
    return Source(str(path), read_weights(path), *described)


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
    """The tensors of a file, whose kind its first bytes tell and not by its name."""
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
    raise InputError(
        f"{path} is not a checkpoint that is known here: not a .safetensors, .npz or PyTorch file"
    )


def is_npz(path: Path) -> bool:
    """Whether a zip archive holds NumPy arrays (and not a PyTorch pickle)."""
    with path.open("rb") as file:
        local_header = file.read(30)
        name = file.read(int.from_bytes(local_header[26:28], "little"))
    return name.endswith(b".npy")


def read_shards(index: Path) -> Tensors:
    """The tensors of a model in several files, by its index. A shard must be beside its index."""
    places = read_json(index).get("weight_map")
    if not isinstance(places, dict) or not all(isinstance(name, str) for name in places.values()):
        raise InputError(f"{index} holds no weight_map from names to files")
    shards: dict[str, Tensors] = {}
    for name in sorted(set(places.values())):
        if Path(name).name != name or name in ("", ".", ".."):
            raise InputError(f"{index} points at {name!r}: a shard must be in the folder of its index")
        shards[name] = read_weights(index.with_name(name))
    for tensor, name in places.items():
        if tensor not in shards[name]:
            raise InputError(f"{index}: {tensor} is not in {name}")
    return Tensors({tensor: shards[name].entries[tensor] for tensor, name in places.items()})


def vit_config(fields: Mapping[str, Any], overrides: Overrides) -> ViTConfig:
    """The configuration that a file describes; what the user gave wins."""
    config: ViTConfig = build(ViTConfig, fields, {k: v for k, v in overrides.items() if k not in AFTERWARDS})
    return config


# Where heads are not 64 wide: SigLIP's So400m, ViT-H, ViT-g, ViT-G.
USUAL_HEADS = {1152: 16, 1280: 16, 1408: 16, 1664: 16}


def usual_heads(width: int) -> int:
    """The number of heads that published models of this width have."""
    return USUAL_HEADS.get(width, max(width // 64, 1))


def asked_heads(source: Source, overrides: Overrides, width: int) -> int:
    """The number of heads, which no state dict tells.

    Raises:
        InputError: the user has not said it; the likely value is given.
    """
    if "heads" in overrides:
        return int(overrides["heads"])
    likely = usual_heads(width)
    raise InputError(
        f"{source.where}: a state dict does not tell the number of heads: pass heads={likely} "
        f"(width {width} / {width // likely}), or --set model.heads={likely} of a command, or what it was "
        "made with"
    )


def asked_image_size(source: Source, overrides: Overrides) -> Any:
    """The image size, where positions are computed and the file tells nothing of it."""
    if "image_size" not in overrides:
        raise InputError(
            f"{source.where}: positions are computed, so the file does not tell the image size: pass "
            f"image_size=224 or what the model was made with"
        )
    return overrides["image_size"]


def square_grid(
    source: Source, patches: int, overrides: Overrides, patch: tuple[int, int]
) -> tuple[int, int]:
    """The image size of a file that tells only how many patches it has positions for.

    A square number is a square grid. For any other the user's `image_size` must be the checkpoint's own.
    """
    side = isqrt(patches)
    if side * side == patches and side:
        return side * patch[0], side * patch[1]
    size = overrides.get("image_size")
    height, width = (size, size) if isinstance(size, int) else size or (0, 0)
    if (height // patch[0]) * (width // patch[1]) != patches:
        raise InputError(
            f"{source.where}: {patches} positions are not a square grid: pass image_size=(height, width) of "
            f"the images that it was made for, in patches of {patch[0]}x{patch[1]} pixels"
        )
    return height, width


def check_no_overrides(source: Source, overrides: Overrides) -> None:
    """Raise an InputError where something is to be changed of a model that is loaded as it is."""
    if overrides:
        raise InputError(
            f"{source.where} writes text, and its kind of model is loaded as it is: leave out "
            f"{', '.join(overrides)}"
        )


def assumed_preprocessing(
    config: ViTConfig | BiTConfig, family: str, **fields: Any
) -> tuple[Preprocessing, tuple[str, ...]]:
    """The preprocessing that a family of models is used with, and the sentence that says it is assumed."""
    channels = config.channels
    if channels != 3:
        fields |= {"mean": (0.5,) * channels, "std": (0.5,) * channels}
    preprocessing = Preprocessing(size=config.image_size, channels=channels, **fields)
    return preprocessing, (
        f"preprocessing as {family}: {preprocessing.resize}, {preprocessing.interpolation}, mean "
        f"{preprocessing.mean}, std {preprocessing.std}",
    )
