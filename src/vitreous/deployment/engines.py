"""Exported programs at work: a file that `vitreous.export` wrote, computed by its own engine as a model."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from pydantic import ValidationError
from torch import Tensor

from vitreous.checkpoints import open_model
from vitreous.checkpoints.native import KINDS
from vitreous.errors import InputError, nearest, require_packages
from vitreous.models.preprocessing import Preprocessing
from vitreous.models.program import Compute, Program

DESCRIPTION = ("kind", "task", "model", "preprocessing", "labels")  # of a model, in the file


class Engine(NamedTuple):
    """What runs programs of a format.

    Attributes:
        ending: of the files.
        package: whose version is the engine's.
        open: returns the description that is in a file, JSON by name, and what computes its outputs on the
            CPU.
    """

    ending: str
    package: str
    open: Callable[[Path], tuple[Mapping[str, str], Compute]]


def is_program(spec: Any) -> bool:
    """Return whether MODEL means an exported program, by the ending of a file."""
    return isinstance(spec, str | Path) and engine_of(Path(spec)) is not None and Path(spec).is_file()


def engine_of(path: Path) -> str | None:
    """Return the name of the engine for files with this ending."""
    return next((name for name, engine in ENGINES.items() if path.suffix == engine.ending), None)


def open_image_model(spec: str | Path, **overrides: Any) -> Any:
    """Open what MODEL means: an exported program, or what `vitreous.checkpoints.open_model` opens.

    Raises:
        InputError: none of these; or overrides, which a program cannot follow.
    """
    if not is_program(spec):
        return open_model(spec, **overrides)
    if overrides:
        raise InputError(
            f"{spec} is an exported program, whose {next(iter(overrides))} is fixed: export it again"
        )
    return open_program(Path(spec))


def open_program(path: Path) -> Program:
    """Open an exported program.

    Raises:
        InputError: its engine is not installed, the file is damaged, or its model is of another kind.
    """
    about, compute = ENGINES[engine_named(path)].open(path)
    try:
        described = {name: json.loads(about[name]) for name in DESCRIPTION}
        config = KINDS[described["kind"]].model_validate(described["model"])
        preprocessing = Preprocessing.model_validate(described["preprocessing"])
    except (KeyError, TypeError, ValueError, ValidationError):
        raise InputError(
            f"{path} does not say what its model is: write it again with vitreous export"
        ) from None
    if described["task"] == "segmentation":
        raise InputError(f"{path} is an exported segmenter, which other programs run: give its run instead")
    digest = hashlib.sha256(path.read_bytes()).digest()
    return Program(path, compute, config, preprocessing, described["labels"], described["task"], digest)


def check_weights(model: Any, what: str) -> None:
    """Raise InputError for a program where weights are needed."""
    if isinstance(model, Program) or is_program(model):
        path = getattr(model, "path", model)
        raise InputError(f"{what} needs weights, and {path} is an exported program: give the model it is of")


def open_onnx(path: Path) -> tuple[Mapping[str, str], Compute]:
    """Open a file with ONNX Runtime."""
    require_packages("onnxruntime", extra="export", what=str(path))
    import onnxruntime

    try:
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime has a class of its own for each cause
        raise damaged(path, error) from None

    def compute(images: Tensor) -> list[Tensor]:
        return [torch.from_numpy(each) for each in session.run(None, {"images": images.numpy()})]

    return session.get_modelmeta().custom_metadata_map, compute


def open_torch(path: Path) -> tuple[Mapping[str, str], Compute]:
    """Open a file with torch.export."""
    extra = {f"{name}.json": "" for name in DESCRIPTION}
    try:
        program = torch.export.load(path, extra_files=extra).module()
    except Exception as error:  # whatever a damaged archive makes it stumble on
        raise damaged(path, error) from None

    def compute(images: Tensor) -> list[Tensor]:
        found: Sequence[Tensor] = program(images)
        return list(found)

    return {name: extra[f"{name}.json"] for name in DESCRIPTION}, compute


def damaged(path: Path, error: Exception) -> InputError:
    return InputError(f"{path} is not a program that can be run: {' '.join(str(error).split())[:200]}")


ENGINES = {
    "onnx": Engine(".onnx", "onnxruntime", open_onnx),
    "torch": Engine(".pt2", "torch", open_torch),
}


def engine_named(path: Path, format: str | None = None) -> str:
    """Return the engine for a file, which must be the one that is wanted. Raises InputError."""
    if format is not None and format not in ENGINES:
        raise InputError(f"unknown format {format!r}: {nearest(format, list(ENGINES))}")
    found = engine_of(path)
    if found is not None and format in (None, found):
        return found
    if format:
        raise InputError(f"{path}: a file of format {format} ends in {ENGINES[format].ending}")
    endings = " or ".join(f"{engine.ending} ({name})" for name, engine in ENGINES.items())
    raise InputError(f"{path}: its ending names no format: end it in {endings}")
