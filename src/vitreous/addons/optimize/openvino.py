"""OpenVINO: exported models that it computes, the fastest engine on CPUs."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vitreous.addons.optimize.processor import has_bf16, processor_flags
from vitreous.deployment.programs import PIXELS, ProgramFormat, damaged_file
from vitreous.errors import InputError, cache_folder, require_packages
from vitreous.outside import read_text

if TYPE_CHECKING:
    from types import ModuleType

    import openvino
    from torch import nn

    from vitreous.models.model import Compute

GRAPH, DESCRIPTION = "model.xml", "about.json"  # in a folder
FOLDER = frozenset({GRAPH, "model.bin", DESCRIPTION})
STEADY = 3  # calls, from which on batches of fixed sizes are computed
PIECE = 8  # images of such a batch, beside 1; what a CPU computes fastest, or nearly so
FEW = 5  # images that are computed one by one in less time than a whole piece


def open_openvino(path: Path) -> tuple[Mapping[str, str], Compute]:
    """Open a folder with OpenVINO, in the precision that the folder names: with int8 what is not quantized is
    bf16 where the processor has it and images are not prepared inside. What OpenVINO has compiled is cached
    for the next time."""
    require_packages("openvino", extra="cpu", what=str(path))
    try:
        described = read_text(path / DESCRIPTION)
        metadata = {name: json.dumps(value) for name, value in json.loads(described).items()}
    except (OSError, ValueError, AttributeError):
        raise InputError(
            f"{path} does not describe its model: export it again with vitreous export"
        ) from None
    lower = json.loads(metadata.get("precision", "null")) in ("bf16", "int8")
    full = not lower or json.loads(metadata.get("inputs", "null")) == PIXELS
    return metadata, openvino_compute(path / GRAPH, full=full)


def openvino_compute(graph: Path | openvino.Model, *, full: bool) -> Compute:
    """Return what computes a graph, a file or a model of OpenVINO, in fp32 if `full`.

    The graph is compiled for batches of any size, which is there at once from the cache. Where it is called
    again and again, it is compiled for 1 and for `PIECE` images, too, with the wanted outputs alone: that
    takes three quarters of the time of one image of a ViT-Ti/16, and five sixths of that of sixteen. With
    the features as an output, OpenVINO keeps the tokens in fp32 from layer to layer.
    """
    ov = import_openvino()
    core, calls = ov.Core(), count()
    hints = {"PERFORMANCE_HINT": "LATENCY", **({"INFERENCE_PRECISION_HINT": "f32"} if full else {})}
    cached = {"CACHE_DIR": str(compiled_folder(graph))} if isinstance(graph, Path) else {}
    try:
        compiled = core.compile_model(graph, "CPU", {**hints, **cached})
    except Exception as error:
        # openvino has one class of errors for all causes.
        raise damaged_file(graph, error) from None
    sides = list(compiled.input(0).partial_shape)[1:]

    @cache
    def fixed(size: int, outputs: int) -> openvino.InferRequest:
        model = core.read_model(graph) if isinstance(graph, Path) else graph.clone()
        part = ov.Model(model.outputs[:outputs], model.get_parameters())
        part.reshape({part.input(0): [size, *(each.get_length() for each in sides)]})
        return core.compile_model(part, "CPU", hints).create_infer_request()

    def compute(images: NDArray[np.generic], outputs: int | None = None) -> list[NDArray[np.float32]]:
        if next(calls) < STEADY or any(each.is_dynamic for each in sides):
            found = compiled(images)
            return [np.asarray(found[each]) for each in range(len(found))][:outputs]
        wanted, start = outputs or len(compiled.outputs), 0
        parts: list[list[NDArray[np.float32]]] = [[] for _ in range(wanted)]  # of each output
        while start < len(images):
            size = PIECE if len(images) - start > FEW else 1
            piece = images[start : start + size]
            if len(piece) < size:
                piece = np.concatenate([piece, np.zeros((size - len(piece), *piece.shape[1:]), piece.dtype)])
            found = fixed(size, wanted).infer(np.ascontiguousarray(piece))
            for number in range(wanted):
                parts[number].append(np.asarray(found[number]))
            start += size
        return [np.concatenate(each)[: len(images)] for each in parts]

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


def import_openvino() -> ModuleType:
    """Import OpenVINO without its converter: that takes two thirds of the time, and reports the import."""
    converter = "openvino.tools.ovc"
    if "openvino" not in sys.modules:
        sys.modules[converter] = None  # type: ignore[assignment]
        try:
            return import_module("openvino")
        finally:
            del sys.modules[converter]
    return import_module("openvino")


def write_openvino(
    outputs: nn.Module, path: Path, metadata: dict[str, Any], samples: Sequence[NDArray[np.float32]]
) -> float:
    """Write a folder in fp32, bf16 or int8. Returns how far its outputs are from the model's."""
    require_packages("openvino", extra="cpu", what="export to OpenVINO")
    from openvino.tools.ovc import convert_model

    from vitreous.addons.optimize.quantization import exact_operations, quantized
    from vitreous.deployment.export import TOLERANCE, FromPixels, checked, inputs, signature, traced

    ov = import_openvino()
    source, names, _ = signature(outputs)
    graph = convert_model(traced(outputs))
    if not isinstance(outputs, FromPixels):  # the converter forgets the sides
        graph.reshape({graph.input(0): [-1, *inputs(outputs, 1).shape[1:]]})
    graph.input(0).get_tensor().set_names({source})
    for output, name in zip(graph.outputs, names, strict=True):
        output.get_tensor().set_names({name})
    if metadata["precision"] == "int8":
        exact = exact_operations(graph, metadata["task"], prepares=source == PIXELS)
        graph = quantized(graph, samples, exact)
    # Before it is rounded to a lower precision it must be the model.
    difference = (
        checked(outputs, openvino_compute(graph, full=True)) if metadata["precision"] == "bf16" else 0.0
    )
    path.mkdir()
    ov.save_model(graph, path / GRAPH, compress_to_fp16=False)
    described = json.dumps(metadata, ensure_ascii=False, indent=1)
    (path / DESCRIPTION).write_text(described, encoding="utf-8")
    if metadata["precision"] == "bf16" and not has_bf16(processor_flags()):
        return difference
    return checked(
        outputs, open_openvino(path)[1], TOLERANCE if metadata["precision"] == "fp32" else math.inf
    )


OPENVINO = ProgramFormat("openvino", "openvino", open_openvino, package="openvino", holds=FOLDER)
