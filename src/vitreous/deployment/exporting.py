"""A model as a file for other programs: ONNX, PyTorch's exported program, OpenVINO, or weights for
JavaScript.

A program takes any number of images of one size, as `model.preprocessing` makes them, or pixels. It is run by
its own engine and compared with the model before it is moved to its final name.
"""

from __future__ import annotations

import io
import json
import logging
import math
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn

from vitreous.checkpoints.native import description
from vitreous.checkpoints.saving import largest_difference, on_cpu
from vitreous.checkpoints.torch_files import write_safetensors
from vitreous.checkpoints.whole_files import whole
from vitreous.deployment.engines import (
    DESCRIPTION,
    ENGINES,
    GRAPH,
    PIXELS,
    engine_named,
    has_bf16,
    import_openvino,
    openvino_compute,
)
from vitreous.deployment.from_pixels import FromPixels, exact_nodes, exact_operations
from vitreous.errors import InputError, require_packages, writing_to
from vitreous.models.names import Model
from vitreous.models.with_encoder import WithEncoder
from vitreous.results import Result
from vitreous.training.precision import evaluation_mode, with_int8_products

TOLERANCE = 1e-4  # of the largest output, and of 1 where all are smaller: other engines add in another order
BATCHES = 1, 3  # images to compare with; the example that the program is traced with has two
LARGEST_ONNX = 1_900_000_000  # bytes of weights; a file of protocol buffers ends at 2 GiB
ENDINGS = {"onnx": ".onnx", "torch": ".pt2", "openvino": "-openvino", "safetensors": ".safetensors"}
PRECISIONS = {"onnx": ("fp32", "int8"), "torch": ("fp32", "int8"), "openvino": ("fp32", "bf16", "int8")}
FOLDER = {GRAPH, "model.bin", DESCRIPTION}  # of OpenVINO
OPSET = 18  # of ONNX files
LEAST = -3e38  # less than any number of an image
SIDES = 61, 47  # (H, W) of the pixels that a program with preprocessing is traced with


class Outputs(nn.Module):
    """What the program computes: the logits, and the features that they come from where there are any."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Float[Tensor, "B C H W"]) -> tuple[Tensor, ...]:
        if isinstance(self.model, WithEncoder):  # whose outputs are made of tokens, not of the features
            return (self.model(images),)
        features = self.model.features(images)
        return self.model.head(features), features


@dataclass(frozen=True)
class ExportedFile(Result):
    """What was written, and how far its outputs are from the model's."""

    path: Path
    format: str
    precision: str
    bytes: int
    max_abs_difference: float
    opset: int | None = None  # of an ONNX file


def export(
    model: Model,
    path: Path,
    format: str | None = None,
    *,
    precision: str = "fp32",
    samples: Sequence[NDArray[Any]] = (),
    with_preprocessing: bool = False,
) -> ExportedFile:
    """Write `model` as a file.

    Args:
        path: a file, or for OpenVINO a folder; its ending tells the format where `format` is None.
        format: "onnx", "torch", "openvino" or "safetensors".
        precision: "fp32"; "bf16" for OpenVINO; "int8", for ONNX and OpenVINO calibrated on `samples`.
        samples: prepared images (1, C, H, W), or pixels (1, H, W, C).
        with_preprocessing: take pixels, uint8 (B, H, W, C), and give probabilities.

    Raises:
        InputError: another ending, format or precision, a package is missing, the model is too large for the
            format, or the program computes something else; then nothing is written.
    """
    weights = path.suffix == ".safetensors" and format in (None, "safetensors")
    format = "safetensors" if weights else engine_named(path, format)
    check_replaceable(path, format)
    if with_preprocessing and format == "safetensors":
        raise InputError("`with_preprocessing` has no effect on weights alone: leave it out")
    known = PRECISIONS.get(format, ("fp32",))
    if with_preprocessing:  # OpenVINO would prepare images in bf16, too
        known = tuple(each for each in known if each != "bf16")
    if precision not in known:
        inside = " with preprocessing" if with_preprocessing else ""
        raise InputError(
            f"a file of format {format}{inside} computes in {' or '.join(known)}, not in {precision}: change "
            "`precision`"
        )
    if format == "onnx":
        check_onnx(model)
    if format == "openvino":
        require_packages("openvino", extra="cpu", what="export to OpenVINO")
    if precision == "int8" and format != "torch":
        require_packages("nncf", extra="cpu", what="int8")
    copied = on_cpu(model)
    about = {**export_metadata(copied), "precision": precision}
    about |= {"inputs": PIXELS} if with_preprocessing else {}
    ending = path.suffix or (".openvino" if format == "openvino" else "")
    outputs = (FromPixels if with_preprocessing else Outputs)(copied)
    with evaluation_mode(outputs), torch.no_grad(), quiet(), writing_to(path), whole(path, ending) as beside:
        path.parent.mkdir(parents=True, exist_ok=True)
        difference = WRITERS[format](outputs, beside, about, samples)
    size = sum(each.stat().st_size for each in (path.iterdir() if path.is_dir() else [path]))
    return ExportedFile(path, format, precision, size, difference, OPSET if format == "onnx" else None)


def check_replaceable(path: Path, format: str) -> None:
    """Raise InputError where something else than an exported model would be replaced."""
    with writing_to(path):
        others = {each.name for each in path.iterdir()} - FOLDER if path.is_dir() else set()
    if path.exists() and (others or path.is_dir() != (format == "openvino")):
        raise InputError(
            f"{path} exists, and is not an exported model of format {format}: choose another `out`"
        )


def check_onnx(model: Model) -> None:
    """Raises InputError where ONNX cannot be had, or cannot hold the model."""
    require_packages("onnx", "onnxruntime", "onnxscript", extra="export", what="export to ONNX")
    size = sum(parameter.numel() * 4 for parameter in model.parameters())
    if size > LARGEST_ONNX:
        raise InputError(
            f"the model has {size / 1e9:.1f} GB of weights, and ONNX files hold at most 2: write a .pt2 file"
        )


def traced(outputs: nn.Module) -> torch.export.ExportedProgram:
    """The model's operations, for any number of images; with the preprocessing for images of any size."""
    dynamic = {axis: torch.export.Dim(name, max=2**15) for axis, name in enumerate(signature(outputs)[2])}
    return torch.export.export(outputs, (inputs(outputs, 2),), dynamic_shapes=(dynamic,))


def inputs(outputs: nn.Module, count: int) -> Tensor:
    """Noise in place of images: pixels, or images that were normalized."""
    random = torch.Generator().manual_seed(count)
    model: Any = outputs.model
    if isinstance(outputs, FromPixels):
        height, width = (side + 7 * count for side in SIDES)
        shape = count, height, width, model.preprocessing.channels
        return torch.randint(0, 256, shape, dtype=torch.uint8, generator=random)
    return torch.randn(count, model.config.channels, *model.config.image_size, generator=random)


def checked(
    outputs: nn.Module,
    run: Callable[[NDArray[Any]], Sequence[NDArray[Any]]],
    tolerance: float = TOLERANCE,
) -> float:
    """The largest difference between what model and program make of the same images. Raises InputError: it is
    above the tolerance, a part of the largest output or of 1; or one alone gives NaN."""
    found = []
    for count in BATCHES:
        batch = inputs(outputs, count)
        theirs = [torch.from_numpy(each) for each in run(batch.numpy())]
        found.append(largest_difference(outputs(batch), theirs))
    difference, scale = (max(each) for each in zip(*found, strict=True))
    if not difference < tolerance * scale:
        raise InputError(
            f"the exported program differs from the model by {difference:.1e} (tolerance "
            f"{tolerance * scale:.1e}): nothing is written"
        )
    return difference


def export_metadata(model: Model) -> dict[str, Any]:
    """Return what the model is, what its outputs mean, how inputs are prepared, and its license."""
    parameters = sum(each.numel() for each in model.parameters())
    license = model.origin.license if model.origin else None
    return {**description(model), "license": license, "parameters": parameters}


def as_json(about: dict[str, Any]) -> dict[str, str]:
    return {name: json.dumps(value, ensure_ascii=False) for name, value in about.items()}


def signature(outputs: nn.Module) -> tuple[str, list[str], tuple[str, ...]]:
    """Return the names of the input, of the outputs, and of the input's axes that may have any length."""
    if isinstance(outputs, FromPixels):
        return PIXELS, ["probabilities"], ("batch", "height", "width")
    names = ["logits"] if isinstance(outputs.model, WithEncoder) else ["logits", "features"]
    return "images", names, ("batch",)


def verified(outputs: nn.Module, path: Path, format: str, precision: str = "fp32") -> float:
    """Return how far a file's outputs are from the model's; of a lower precision without a tolerance."""
    run: Any = ENGINES[format].open
    run = run(path)[1]
    return checked(outputs, run, TOLERANCE if precision == "fp32" else math.inf)


def write_onnx(outputs: nn.Module, path: Path, about: dict[str, Any], samples: Sequence[Any]) -> float:
    program = traced(outputs)
    keep_padding(program.graph)
    source, names, axes = signature(outputs)
    how: dict[str, Any] = {"verbose": False, "opset_version": OPSET}
    written = torch.onnx.export(program, input_names=[source], output_names=names, **how)
    assert written is not None
    graph = written.model
    name_axes(graph.graph, axes)
    graph.metadata_props.update(as_json(about))
    written.save(path)
    if about["precision"] == "int8":
        import onnx

        loaded = onnx.load(path)
        del loaded.graph.value_info[:]
        described = list(loaded.metadata_props)
        exact = exact_nodes(loaded.graph, about["task"], prepares=source == PIXELS)
        small = quantized(loaded, [{source: each} for each in samples], exact)
        del small.metadata_props[:]
        small.metadata_props.extend(described)
        onnx.save(small, path)
    return verified(outputs, path, "onnx", about["precision"])


def name_axes(graph: Any, names: Sequence[str]) -> None:
    """Give the axes of any length the names that people read, in the place of s77."""
    known = dict(zip((str(axis) for axis in graph.inputs[0].shape), names, strict=False))
    values = [*graph.inputs, *(value for node in graph for value in node.outputs)]
    for shape in (value.shape for value in values if value.shape is not None):
        for place, axis in enumerate(shape):
            if str(axis) in known:
                shape[place] = known[str(axis)]


def keep_padding(graph: torch.fx.Graph) -> None:
    """Insert an identity between a zero padding and the max-pooling after it, as BiT has them: ONNX Runtime
    (1.31) fuses the two into a pooling that ignores the zeros of the border."""
    aten = torch.ops.aten
    for pooling in graph.find_nodes(op="call_function", target=aten.max_pool2d.default):
        padded = pooling.args[0]
        if padded.target in (aten.pad.default, aten.constant_pad_nd.default):
            with graph.inserting_before(pooling):
                same = graph.call_function(aten.clamp_min.default, (padded, LEAST))
            same.meta = dict(padded.meta)
            pooling.replace_input_with(padded, same)


def write_torch(outputs: nn.Module, path: Path, about: dict[str, Any], samples: Sequence[Any]) -> float:
    extra = {f"{name}.json": value for name, value in as_json(about).items()}
    program = with_int8_products(outputs) if about["precision"] == "int8" else outputs
    written = io.BytesIO()  # into a file on a full disk PyTorch would end the process
    torch.export.save(traced(program), written, extra_files=extra)
    path.write_bytes(written.getbuffer())
    return verified(outputs, path, "torch", about["precision"])


def write_openvino(outputs: nn.Module, path: Path, about: dict[str, Any], samples: Sequence[Any]) -> float:
    from openvino.tools.ovc import convert_model

    openvino = import_openvino()
    source, names, _ = signature(outputs)
    graph = convert_model(traced(outputs))
    if not isinstance(outputs, FromPixels):  # the converter forgets the sides
        graph.reshape({graph.input(0): [-1, *inputs(outputs, 1).shape[1:]]})
    graph.input(0).get_tensor().set_names({source})
    for output, name in zip(graph.outputs, names, strict=True):
        output.get_tensor().set_names({name})
    if about["precision"] == "int8":
        exact = exact_operations(graph, about["task"], prepares=source == PIXELS)
        graph = quantized(graph, samples, exact)
    # Before it is rounded to a lower precision it must be the model.
    difference = checked(outputs, openvino_compute(graph, full=True)) if about["precision"] == "bf16" else 0.0
    path.mkdir()
    openvino.save_model(graph, path / GRAPH, compress_to_fp16=False)
    described = json.dumps(about, ensure_ascii=False, indent=1)
    (path / DESCRIPTION).write_text(described, encoding="utf-8")
    if about["precision"] == "bf16" and not has_bf16():
        return difference
    return verified(outputs, path, "openvino", about["precision"])


def write_weights(outputs: nn.Module, path: Path, about: dict[str, Any], samples: Sequence[Any]) -> float:
    """Write the weights under the model's own names in float32, with the description in the file's header."""
    model: Any = outputs.model
    state = {name: tensor.float().contiguous() for name, tensor in model.state_dict().items()}
    write_safetensors(state, path, metadata=as_json(about))
    return 0.0


def quantized(graph: Any, samples: Sequence[Any], exact: Sequence[str] = ()) -> Any:
    """Return a graph of OpenVINO or ONNX with products in int8, but for the nodes in `exact`, calibrated on
    samples, by NNCF."""
    if not samples:
        raise InputError("int8 needs images to calibrate on: give a run, or name DATA with `data`")
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        import nncf

        nncf.set_log_level(logging.ERROR)
        return nncf.quantize(
            graph,
            nncf.Dataset(samples),
            preset=nncf.QuantizationPreset.MIXED,
            model_type=nncf.ModelType.TRANSFORMER,
            subset_size=len(samples),
            ignored_scope=nncf.IgnoredScope(names=list(exact), validate=False) if exact else None,
        )


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the exporters' log messages and warnings."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "nncf")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


WRITERS: dict[str, Callable[[Any, Path, dict[str, Any], Sequence[Any]], float]] = {
    "onnx": write_onnx,
    "torch": write_torch,
    "openvino": write_openvino,
    "safetensors": write_weights,
}
