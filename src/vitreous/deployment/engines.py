"""Engines: what computes a model. Two compute a PyTorch module, the others a file that `vitreous.export`
wrote; that of ONNX Runtime or OpenVINO is opened and computed without importing PyTorch."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import cache
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from vitreous.errors import InputError, LazyModule, cache_folder, nearest, require_packages
from vitreous.extensions import kinds
from vitreous.models.preprocessing import Preprocessing

if TYPE_CHECKING:
    import torch

    from vitreous.models.program import Program
else:  # exported models answer without it
    torch = LazyModule("torch")

ABOUT = ("kind", "task", "model", "preprocessing", "labels", "license", "parameters", "inputs", "precision")
PIXELS = "pixels"  # inputs that are images as they are, uint8 (B, H, W, C), for probabilities
GRAPH, DESCRIPTION = "model.xml", "about.json"  # in a folder of OpenVINO
BF16_FLAGS = {"amx_bf16", "avx512_bf16", "bf16"}  # of /proc/cpuinfo
STEADY = 3  # calls, from which on OpenVINO computes batches of fixed sizes
PIECE = 8  # images of such a batch, beside 1; what a CPU computes fastest, or nearly so
FEW = 5  # images that are computed one by one in less time than a whole piece
Compute = Callable[..., list[NDArray[np.float32]]]  # of images, and of how many outputs: all, by default


class Engine(NamedTuple):
    """What computes a model.

    Attributes:
        package: whose version is the engine's.
        prepare: returns a module in evaluation mode, or a copy, with a forward pass that this engine
            computes; None where it computes files.
        ending: of its files; of a folder the end of its name, where nothing else tells the format.
        open: returns the description that is in a file, JSON by name, and what computes its outputs.
    """

    package: str
    prepare: Callable[[torch.nn.Module], torch.nn.Module] | None = None
    ending: str = ""
    open: Callable[[Path], tuple[Mapping[str, str], Compute]] | None = None


class Exported(NamedTuple):
    """An exported file that is open: what it says of itself, and what computes its outputs."""

    path: Path
    about: dict[str, Any]
    compute: Compute

    @property
    def preprocessing(self) -> Preprocessing:
        return Preprocessing.model_validate(self.about["preprocessing"])

    @property
    def labels(self) -> list[str]:
        """The labels of the outputs, or their numbers."""
        return list(self.about["labels"] or map(str, range(self.about["model"]["num_classes"])))


def is_program(spec: Any) -> bool:
    """Return whether MODEL means an exported file or folder that is there."""
    if not isinstance(spec, str | Path):
        return False
    path = Path(spec)
    return (path / GRAPH).is_file() or (path.is_file() and engine_of(path) is not None)


def engine_of(path: Path) -> str | None:
    """Return the name of the engine for files with this ending, or for a folder that is one of OpenVINO."""
    if (path / GRAPH).is_file():
        return "openvino"
    files = ((name, engine.ending) for name, engine in ENGINES.items() if engine.ending)
    return next((name for name, ending in files if path.name.endswith(ending)), None)


def open_image_model(spec: str | Path, **overrides: Any) -> Any:
    """Open what MODEL means: an exported program, or what `vitreous.checkpoints.open_model` opens. Raises
    InputError: none of these; or overrides, which a program cannot follow."""
    from vitreous.checkpoints import open_model

    if not is_program(spec):
        return open_model(spec, **overrides)
    if overrides:
        raise InputError(
            f"{spec} is an exported program, whose {next(iter(overrides))} is fixed: export it again"
        )
    return open_program(Path(spec))


def open_exported(path: Path) -> Exported:
    """Open an exported file, without PyTorch unless that computes it. Raises InputError: its engine is not
    installed, the file is damaged, or does not say what it is."""
    opened = ENGINES[engine_named(path)].open
    assert opened  # of every engine that has an ending
    described, compute = opened(path)
    try:
        about = {name: json.loads(described.get(name, "null")) for name in ABOUT}
        found = Exported(path, about, compute)
        found.preprocessing, about["kind"], about["model"].get("num_classes")
    except (AttributeError, TypeError, ValueError, ValidationError):
        raise InputError(
            f"{path} does not say what its model is: write it again with vitreous export"
        ) from None
    if about["kind"] in kinds():
        raise InputError(
            f"{path} is an exported {about['kind']}, which other programs run: give its run instead"
        )
    return found


def open_program(path: Path) -> Program:
    """Open an exported file as a module. Raises InputError: as `open_exported`, or its model is of another
    kind."""
    from vitreous.checkpoints.native import CONFIGS
    from vitreous.models.program import Program

    found = open_exported(path)
    if found.about["inputs"] == PIXELS:
        raise InputError(
            f"{path} takes pixels and gives probabilities: `threshold`, `out` and commands but for predict "
            "and serve need normalized images, as any .pt2 does: export it without `with_preprocessing`"
        )
    try:
        config = CONFIGS[found.about["kind"]].model_validate(found.about["model"])
    except (KeyError, ValidationError):
        raise InputError(f"{path} is of a kind of model that is not known here: export it again") from None
    weights = path / "model.bin" if path.is_dir() else path
    digest = hashlib.sha256(weights.read_bytes()).digest()
    about = found.about
    return Program(path, found.compute, config, found.preprocessing, about["labels"], about["task"], digest)


def check_weights(model: Any, what: str) -> None:
    """Raise InputError for a program where weights are needed."""
    if is_program(model) or (hasattr(model, "compute") and hasattr(model, "digest")):
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
    name, outputs = session.get_inputs()[0].name, [each.name for each in session.get_outputs()]

    def compute(images: NDArray[Any], wanted: int | None = None) -> list[NDArray[np.float32]]:
        found: list[NDArray[np.float32]] = session.run(outputs[:wanted], {name: images})
        return found

    return session.get_modelmeta().custom_metadata_map, compute


def open_openvino(path: Path) -> tuple[Mapping[str, str], Compute]:
    """Open a folder with OpenVINO, in the precision that the folder names: with int8 what is not quantized is
    bf16 where the processor has it and images are not prepared inside. What OpenVINO has compiled is cached
    for the next time."""
    require_packages("openvino", extra="cpu", what=str(path))
    try:
        described = (path / DESCRIPTION).read_text(encoding="utf-8")
        about = {name: json.dumps(value) for name, value in json.loads(described).items()}
    except (OSError, ValueError, AttributeError):
        raise InputError(
            f"{path} does not say what its model is: write it again with vitreous export"
        ) from None
    lower = json.loads(about.get("precision", "null")) in ("bf16", "int8")
    full = not lower or json.loads(about.get("inputs", "null")) == PIXELS
    return about, openvino_compute(path / GRAPH, full=full)


def openvino_compute(graph: Any, *, full: bool) -> Compute:
    """Return what computes a graph, a file or a model of OpenVINO, in fp32 if `full`.

    The graph is compiled for batches of any size, which is there at once from the cache. Where it is called
    again and again, it is compiled for 1 and for `PIECE` images, too, with the wanted outputs alone: that
    takes three quarters of the time of one image of a ViT-Ti/16, and five sixths of that of sixteen. With
    the features as an output, OpenVINO keeps the tokens in fp32 from layer to layer.
    """
    openvino = import_openvino()
    core, calls = openvino.Core(), count()
    hints = {"PERFORMANCE_HINT": "LATENCY", **({"INFERENCE_PRECISION_HINT": "f32"} if full else {})}
    cached = {"CACHE_DIR": str(compiled_folder(graph))} if isinstance(graph, Path) else {}
    try:
        compiled = core.compile_model(graph, "CPU", {**hints, **cached})
    except Exception as error:  # openvino has one class for all causes
        raise damaged(graph, error) from None
    sides = list(compiled.input(0).partial_shape)[1:]

    @cache
    def fixed(size: int, outputs: int) -> Any:
        model = core.read_model(graph) if isinstance(graph, Path) else graph.clone()
        part = openvino.Model(model.outputs[:outputs], model.get_parameters())
        part.reshape({part.input(0): [size, *(each.get_length() for each in sides)]})
        return core.compile_model(part, "CPU", hints).create_infer_request()

    def compute(images: NDArray[Any], outputs: int | None = None) -> list[NDArray[np.float32]]:
        if next(calls) < STEADY or any(each.is_dynamic for each in sides):
            found = compiled(images)
            return [np.asarray(found[each]) for each in range(len(found))][:outputs]
        wanted, parts, start = outputs or len(compiled.outputs), list[Any](), 0
        while start < len(images):
            size = PIECE if len(images) - start > FEW else 1
            piece = images[start : start + size]
            if len(piece) < size:
                piece = np.concatenate([piece, np.zeros((size - len(piece), *piece.shape[1:]), piece.dtype)])
            found = fixed(size, wanted).infer(np.ascontiguousarray(piece))
            parts.append([np.asarray(found[each]) for each in range(wanted)])
            start += size
        return [np.concatenate(each)[: len(images)] for each in zip(*parts, strict=True)]

    return compute


def compiled_folder(graph: Path) -> Path:
    """Return the cache's folder for what OpenVINO compiles of a file, and remove that of the weights that the
    file had before: OpenVINO does not look at the weights, and graphs of one architecture are equal."""
    weights = graph.with_suffix(".bin")
    found = weights.stat() if weights.exists() else None
    stamp = (found.st_size, found.st_mtime_ns, found.st_ctime_ns) if found else ()
    name, now = (hashlib.sha256(repr(each).encode()).hexdigest()[:16] for each in (graph.resolve(), stamp))
    folder = cache_folder() / "engines" / name
    for before in folder.iterdir() if folder.is_dir() else ():
        if before.name != now:
            shutil.rmtree(before, ignore_errors=True)
    return folder / now


def import_openvino() -> Any:
    """Import OpenVINO without its converter: that takes two thirds of the time, and reports the import."""
    converter = "openvino.tools.ovc"
    if "openvino" not in sys.modules:
        sys.modules[converter] = None  # type: ignore[assignment]
        try:
            return import_module("openvino")
        finally:
            del sys.modules[converter]
    return import_module("openvino")


def open_torch(path: Path) -> tuple[Mapping[str, str], Compute]:
    """Open a file with torch.export."""
    extra = {f"{name}.json": "null" for name in ABOUT}
    try:
        program = torch.export.load(path, extra_files=extra).module()
    except Exception as error:  # whatever a damaged archive makes it stumble on
        raise damaged(path, error) from None

    def compute(images: NDArray[Any], wanted: int | None = None) -> list[NDArray[np.float32]]:
        with torch.inference_mode():
            found: Sequence[torch.Tensor] = program(torch.from_numpy(images))
        return [each.numpy() for each in found[:wanted]]

    return {name: extra[f"{name}.json"] for name in ABOUT}, compute


def damaged(path: Path, error: Exception) -> InputError:
    return InputError(f"{path} is not a program that can be run: {' '.join(str(error).split())[:200]}")


def eager(model: torch.nn.Module) -> torch.nn.Module:
    """Return a model as it is: PyTorch computes operation by operation."""
    return model


def compiled(model: torch.nn.Module) -> torch.nn.Module:
    """Return a model, with the same weights, whose forward pass is compiled: on a CPU with them as constants
    ("freezing"), which are laid out once as the products want them; on a GPU replayed as CUDA graphs."""
    from torch._inductor import config

    cuda = next(model.parameters()).is_cuda
    forward = torch.compile(model.forward, mode="reduce-overhead" if cuda else None)

    def frozen(images: torch.Tensor) -> torch.Tensor:
        with config.patch(freezing=not cuda):  # an option of torch.compile of this name has no effect
            return forward(images)

    copied = copy(model)  # which stays as it is, to be measured beside this one and prepared otherwise
    copied.forward = frozen
    return copied


def has_bf16() -> bool:
    """Return whether the processor multiplies in bf16, as far as the system says."""
    try:
        flags = re.search(r"^(?:flags|Features)\s*:(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        return False
    return bool(flags and BF16_FLAGS & set(flags[1].split()))


ENGINES = {
    "eager": Engine("torch", prepare=eager),
    "compiled": Engine("torch", prepare=compiled),
    "onnx": Engine("onnxruntime", ending=".onnx", open=open_onnx),
    "openvino": Engine("openvino", ending="openvino", open=open_openvino),
    "torch": Engine("torch", ending=".pt2", open=open_torch),
}


def engine_named(path: Path, format: str | None = None) -> str:
    """Return the engine for a file, which must be the one that is wanted. Raises InputError."""
    files = {name: engine.ending for name, engine in ENGINES.items() if engine.ending}
    if format is not None and format not in files:
        raise InputError(f"unknown format {format!r}: {nearest(format, list(files))}")
    found = engine_of(path)
    if format == "openvino" and found is None and not path.suffix:
        return format
    if found is not None and format in (None, found):
        return found
    if format:
        raise InputError(f"{path}: a file of format {format} ends in {files[format]}")
    endings = " or ".join(f"{ending} ({name})" for name, ending in files.items())
    raise InputError(f"{path}: its ending names no format: end it in {endings}")
