"""Exported models: opening the files that `vitreous.export` wrote, and what computes their outputs. Add-ons
contribute further formats."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from vitreous.errors import InputError, LazyModule, Param, nearest, require_packages
from vitreous.extensions import contributed, kinds
from vitreous.models.preprocessing import Preprocessing

if TYPE_CHECKING:
    import torch

    from vitreous.models.model import Compute, Program
else:  # exported models answer without it
    torch = LazyModule("torch")

ABOUT = ("kind", "task", "model", "preprocessing", "labels", "license", "parameters", "inputs", "precision")
PIXELS = "pixels"  # inputs that are images as they are, uint8 (B, H, W, C), for probabilities


class ProgramFormat(NamedTuple):
    """A format of exported models.

    Attributes:
        name: of the format, as --format has it.
        ending: of its files; of a folder the end of its name.
        open: returns the description that is in a file, JSON by name, and what computes its outputs.
        package: what computes them; None: PyTorch.
        holds: the names of the files in a folder of the format; none where it is a file.
    """

    name: str
    ending: str
    open: Callable[[Path], tuple[Mapping[str, str], Compute]]
    package: str | None = None
    holds: frozenset[str] = frozenset()

    def matches(self, path: Path) -> bool:
        """Return whether a path is one of these, by its ending or by what is in it."""
        return path.name.endswith(self.ending) or (bool(self.holds) and self.is_one(path))

    def is_one(self, path: Path) -> bool:
        """Return whether there is such a file, or such a folder."""
        if self.holds:
            return path.is_dir() and self.holds <= {each.name for each in path.iterdir()}
        return path.is_file() and path.name.endswith(self.ending)


class Exported(NamedTuple):
    """An exported file that is open: what it says of itself, and what computes its outputs."""

    path: Path
    metadata: dict[str, Any]  # from JSON
    compute: Compute

    @property
    def preprocessing(self) -> Preprocessing:
        return Preprocessing.model_validate(self.metadata["preprocessing"])

    @property
    def labels(self) -> list[str]:
        """The labels of the outputs, or their numbers."""
        return list(self.metadata["labels"] or map(str, range(self.metadata["model"]["num_classes"])))


class Substitute(NamedTuple):
    """What computes a model in its place, as an add-on has chosen.

    Attributes:
        sentence: about it.
        file: an exported model; None where PyTorch computes.
        open: returns the model as PyTorch computes it then.
    """

    sentence: str
    file: Path | None
    open: Callable[[Any], Any]


def substitute(model: object) -> Substitute | None:
    """Return what computes MODEL faster, in its place; None where nothing was chosen for it."""
    for choose in contributed("substitutes"):
        found: Substitute | None = choose(model)
        if found:
            return found
    return None


def is_program(spec: object) -> TypeGuard[str | Path]:
    """Return whether MODEL means an exported file or folder that is there."""
    return isinstance(spec, str | Path) and format_of(Path(spec)) is not None


def format_of(path: Path) -> ProgramFormat | None:
    """Return the format of an exported file or folder that is there."""
    return next((format for format in program_formats() if format.is_one(path)), None)


def format_named(path: Path, name: str | None = None) -> ProgramFormat:
    """Return the format that a path is to have, which must be the one that is wanted. Raises InputError."""
    known = {each.name: each for each in program_formats()}
    if name is not None and name not in known:
        raise InputError(f"unknown format {name!r}: {nearest(name, list(known))}")
    matching = [format for format in known.values() if format.matches(path)]
    found = matching[0] if matching else None
    if name is not None and found is None and known[name].holds and not path.suffix:
        return known[name]  # a folder may have any name
    if found is not None and name in (None, found.name):
        return found
    if name:
        raise InputError(f"{path}: a file of format {name} ends in {known[name].ending}")
    endings = " or ".join(f"{each.ending} ({each.name})" for each in known.values())
    raise InputError(f"{path}: its extension does not name a format: use {endings}")


def open_image_model(spec: str | Path, **overrides: Any) -> Any:
    """Open what MODEL means: an exported program, or what `checkpoints.loading.open_model` opens. Raises
    InputError: none of these; or overrides, which a program cannot follow."""
    from vitreous.checkpoints.loading import open_model

    if not is_program(spec):
        return open_model(spec, **overrides)
    if overrides:
        raise InputError(
            f"{spec} is an exported program, whose {next(iter(overrides))} is fixed: export it again"
        )
    return open_program(Path(spec))


def open_exported(path: Path) -> Exported:
    """Open an exported file, without PyTorch unless that computes it. Raises InputError: what
    computes it is not installed, the file is damaged, or does not say what it is."""
    described, compute = format_named(path).open(path)
    try:
        metadata = {name: json.loads(described.get(name, "null")) for name in ABOUT}
        found = Exported(path, metadata, compute)
        found.preprocessing, metadata["kind"], metadata["model"].get("num_classes")
    except (AttributeError, TypeError, ValueError, ValidationError):
        raise InputError(
            f"{path} does not describe its model: export it again with vitreous export"
        ) from None
    if metadata["kind"] in kinds():
        raise InputError(
            f"{path} is an exported {metadata['kind']}, which vitreous does not run: pass its run instead"
        )
    return found


def open_program(path: Path) -> Program:
    """Open an exported file as a module. Raises InputError if `open_exported` does, or if its model is of
    another kind."""
    from vitreous.checkpoints.native import CONFIGS
    from vitreous.models.model import Program

    found = open_exported(path)
    if found.metadata["inputs"] == PIXELS:
        raise InputError(
            f"{path} takes pixels and gives probabilities: {Param('threshold')}, {Param('out')} and commands "
            "other than predict need normalized images, as does every .pt2: export it without "
            f"{Param('with_preprocessing')}"
        )
    try:
        config = CONFIGS[found.metadata["kind"]].model_validate(found.metadata["model"])
    except (KeyError, ValidationError):
        raise InputError(f"{path} holds an unknown kind of model: export it again") from None
    weights = path / "model.bin" if path.is_dir() else path
    digest = hashlib.sha256(weights.read_bytes()).digest()
    metadata = found.metadata
    return Program(
        path, found.compute, config, found.preprocessing, metadata["labels"], metadata["task"], digest
    )


def check_weights(model: object, what: str) -> None:
    """Raise InputError for a program where weights are needed."""
    if is_program(model) or (hasattr(model, "compute") and hasattr(model, "digest")):
        path = getattr(model, "path", model)
        raise InputError(
            f"{what} needs weights, but {path} is an exported program: pass the model it came from"
        )


def open_onnx(path: Path) -> tuple[Mapping[str, str], Compute]:
    """Open a file with ONNX Runtime."""
    require_packages("onnxruntime", extra="export", what=str(path))
    import onnxruntime

    try:
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    except Exception as error:
        # onnxruntime has a class of errors for each cause.
        raise damaged_file(path, error) from None
    name, outputs = session.get_inputs()[0].name, [each.name for each in session.get_outputs()]

    def compute(images: NDArray[np.number], wanted: int | None = None) -> list[NDArray[np.float32]]:
        found: list[NDArray[np.float32]] = session.run(outputs[:wanted], {name: images})
        return found

    return session.get_modelmeta().custom_metadata_map, compute


def open_torch(path: Path) -> tuple[Mapping[str, str], Compute]:
    """Open a file with torch.export."""
    extra = {f"{name}.json": "null" for name in ABOUT}
    try:
        program = torch.export.load(path, extra_files=extra).module()
    except Exception as error:
        # A damaged archive may make PyTorch stumble on anything.
        raise damaged_file(path, error) from None

    def compute(images: NDArray[np.number], wanted: int | None = None) -> list[NDArray[np.float32]]:
        with torch.inference_mode():
            found: Sequence[torch.Tensor] = program(torch.from_numpy(images))
        return [each.numpy() for each in found[:wanted]]

    return {name: extra[f"{name}.json"] for name in ABOUT}, compute


def damaged_file(path: Path, error: Exception) -> InputError:
    return InputError(f"{path} is not a program that can be run: {in_one_line(error)}")


def in_one_line(error: Exception) -> str:
    """Return the beginning of an engine's error, in one line."""
    return " ".join(str(error).split())[:200]


@cache
def program_formats() -> tuple[ProgramFormat, ...]:
    """Return the formats of exported models: those of the core, and those of add-ons."""
    onnx = ProgramFormat("onnx", ".onnx", open_onnx, package="onnxruntime")
    torch = ProgramFormat("torch", ".pt2", open_torch)
    return (onnx, torch, *contributed("programs"))
