"""A model as a file for other programs: ONNX, PyTorch's exported program, weights for JavaScript, and the
formats of add-ons.

A program takes any number of images of one size, as `model.preprocessing` makes them, or pixels. It is run
and compared with the model before it is moved to its final name.
"""

from __future__ import annotations

import io
import json
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from jaxtyping import Float, UInt8
from numpy.typing import NDArray
from torch import Tensor, nn

from vitreous.checkpoints.native import check_labels, description
from vitreous.checkpoints.saving import largest_difference, no_warnings, on_cpu
from vitreous.checkpoints.tensors import write_safetensors
from vitreous.data.dataset import ImageDataset
from vitreous.deployment.int8 import with_int8_products
from vitreous.deployment.programs import PIXELS, format_named, in_one_line, program_formats
from vitreous.errors import InputError, Param, require_packages, writing_to
from vitreous.extensions import CLASSES, contributed, outputs_of
from vitreous.layers.resnet import with_standardized_kernels
from vitreous.models.model import Model, WithEncoder, as_probabilities, modes_restored
from vitreous.models.preprocessing import Preprocessing
from vitreous.results import Result
from vitreous.whole_files import whole

TOLERANCE = 1e-4  # of the largest output, and of 1 where all are smaller: other engines add in another order
BATCHES = 1, 3  # images to compare with; the example that the program is traced with has two
LARGEST_ONNX = 1_900_000_000  # bytes of weights; a file of protocol buffers ends at 2 GiB
WEIGHTS = "safetensors"  # the format of weights alone
OPSET = 18  # of ONNX files
CALIBRATION = 128  # images that a lower precision is calibrated on
LEAST = -3e38  # less than any number of an image
SIDES = 61, 47  # (H, W) of the pixels that a program with preprocessing is traced with


Samples = Sequence[NDArray[Any]]  # images that a lower precision is calibrated on, prepared or as pixels


class Writer(NamedTuple):
    """What writes an exported model of one format and precision.

    Attributes:
        write: takes what the program computes, a path, the description, and samples; returns how far the
            outputs of what it wrote are from the model's.
        calibrated: whether it needs samples.
        prepares: whether the preprocessing may be in the program.
    """

    write: Callable[[nn.Module, Path, dict[str, object], Samples], float]
    calibrated: bool = False
    prepares: bool = True


class ExportedOutputs(nn.Module):
    """What the program computes: the logits, and the features that they come from where there are any."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Float[Tensor, "B C H W"]) -> tuple[Tensor, ...]:
        if isinstance(self.model, WithEncoder):  # whose outputs are made of tokens, not of the features
            return (self.model(images),)
        features = self.model.features(images)
        logits = self.model.head(features)
        # The model has no head, and OpenVINO does not give one tensor twice.
        if logits is features:
            logits = features.reshape(-1, features.shape[1])
        return logits, features


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
    samples: Samples = (),
    with_preprocessing: bool = False,
    new: bool = False,
) -> ExportedFile:
    """Write `model` as a file.

    Args:
        path: a file or a folder; its ending tells the format where `format` is None.
        format: "onnx", "torch", "safetensors", or that of an add-on.
        precision: "fp32", or another that the format has.
        samples: what a lower precision is calibrated on: prepared images (1, C, H, W), or pixels
            (1, H, W, C).
        with_preprocessing: take pixels, uint8 (B, H, W, C), and give probabilities.
        new: replace nothing, as in `whole`; else an exported model of this format alone.

    Raises:
        InputError: another ending, format or precision, a package is missing, the number of labels differs
            from that of the outputs, the model is too large for the format, or the program computes something
            else; then nothing is written.
    """
    weights = path.suffix == ".safetensors" and format in (None, WEIGHTS)
    program = None if weights else format_named(path, format)
    format = program.name if program else WEIGHTS
    holds = program.holds if program else frozenset()
    check_replaceable(path, format, holds)
    writer = writer_of(format, precision, with_preprocessing)
    check_labels(model)
    copied = on_cpu(model)
    metadata: dict[str, object] = {
        **description(copied),
        "license": copied.origin.license if copied.origin else None,
        "parameters": sum(each.numel() for each in copied.parameters()),
        "precision": precision,
    }
    metadata |= {"inputs": PIXELS} if with_preprocessing else {}
    ending = path.suffix or (f".{format}" if holds else "")
    outputs = (FromPixels if with_preprocessing else ExportedOutputs)(copied)
    with (
        modes_restored(outputs),
        torch.no_grad(),
        no_warnings("torch.onnx"),
        warnings.catch_warnings(action="ignore"),
        writing_to(path),
        whole(path, ending, new=new) as temporary,
    ):
        outputs.eval()
        path.parent.mkdir(parents=True, exist_ok=True)
        difference = writer.write(outputs, temporary, metadata, samples)
    size = sum(each.stat().st_size for each in (path.iterdir() if path.is_dir() else [path]))
    return ExportedFile(path, format, precision, size, difference, OPSET if format == "onnx" else None)


def writer_of(format: str, precision: str, with_preprocessing: bool) -> Writer:
    """Return what writes a format in a precision. Raises InputError: nothing does."""
    if with_preprocessing and format == WEIGHTS:
        raise InputError(f"{Param('with_preprocessing')} has no effect on bare weights: leave it out")
    known: dict[str, Writer] = {}
    for (of, named), writer in writers().items():
        if of == format and (writer.prepares or not with_preprocessing):
            known[named] = writer
    if precision not in known:
        inside = " with preprocessing" if with_preprocessing else ""
        raise InputError(
            f"a file of format {format}{inside} can be in {' or '.join(known)}, not in {precision}: change "
            f"{Param('precision')}"
        )
    return known[precision]


def default_export_path(stem: str, format: str | None) -> Path:
    """Return where a model of this name is written in a format, ONNX by default."""
    for each in program_formats():
        if each.name == (format or "onnx"):
            return Path(f"{stem}-{each.ending}" if each.holds else f"{stem}{each.ending}")
    return Path(f"{stem}.safetensors" if format == WEIGHTS else f"{stem}.onnx")


def check_replaceable(path: Path, format: str, holds: frozenset[str]) -> None:
    """Raise InputError where something else than an exported model would be replaced."""
    with writing_to(path):
        others = {each.name for each in path.iterdir()} - holds if path.is_dir() else set()
    if path.exists() and (others or path.is_dir() != bool(holds)):
        raise InputError(
            f"{path} exists, but is not an exported model of format {format}: choose another {Param('out')}"
        )


def traced(outputs: nn.Module) -> torch.export.ExportedProgram:
    """Return the model's operations, for any number of images; with the preprocessing for images of any
    size."""
    dynamic = {axis: torch.export.Dim(name, max=2**15) for axis, name in enumerate(signature(outputs)[2])}
    program = with_standardized_kernels(outputs)  # of kernels that are computed NNCF makes nothing
    return torch.export.export(program, (inputs(outputs, 2),), dynamic_shapes=(dynamic,))


def inputs(outputs: nn.Module, count: int) -> Tensor:
    """Return noise in place of images: pixels, or images that were normalized."""
    random = torch.Generator().manual_seed(count)
    model: Any = outputs.model
    if isinstance(outputs, FromPixels):
        height, width = (side + 7 * count for side in SIDES)
        shape = count, height, width, model.preprocessing.channels
        return torch.randint(0, 256, shape, dtype=torch.uint8, generator=random)
    return torch.randn(count, model.config.channels, *model.config.image_size, generator=random)


def checked(
    outputs: nn.Module,
    run: Callable[[NDArray[np.generic]], Sequence[NDArray[np.generic]]],
    tolerance: float = TOLERANCE,
) -> float:
    """Return the largest difference between what model and program make of the same images. Raises
    InputError: it is above the tolerance, a part of the largest output or of 1; one alone gives NaN; or its
    engine cannot run the program."""
    found = []
    for count in BATCHES:
        batch = inputs(outputs, count)
        try:
            theirs = [torch.from_numpy(each) for each in run(batch.numpy())]
        except Exception as error:
            # Engines have classes of errors of their own for each cause.
            raise InputError(
                f"the exported program cannot be run, and nothing is written: change {Param('precision')} or "
                f"{Param('format')} ({in_one_line(error)})"
            ) from error
        found.append(largest_difference(outputs(batch), theirs))
    difference, scale = (max(each) for each in zip(*found, strict=True))
    if not difference < tolerance * scale:
        raise InputError(
            f"the exported program differs from the model by {difference:.1e} (tolerance "
            f"{tolerance * scale:.1e}): nothing is written"
        )
    return difference


def calibration_images(model: Model, images: ImageDataset) -> list[NDArray[np.float32]]:
    """Return some images, evenly spaced, as the model takes them, each (1, C, H, W)."""
    rows = images.sample(CALIBRATION)
    return [model.preprocessing([image]).numpy() for _, image in images.readable(rows)]


def calibration_pixels(model: Model, images: ImageDataset) -> list[NDArray[np.uint8]]:
    """Return some images, evenly spaced, as their pixels, each (1, H, W, C)."""
    rows = images.readable(images.sample(CALIBRATION))
    return [model.preprocessing.opened(image).array()[None] for _, image in rows]


def as_json(metadata: dict[str, object]) -> dict[str, str]:
    return {name: json.dumps(value, ensure_ascii=False) for name, value in metadata.items()}


def signature(outputs: nn.Module) -> tuple[str, list[str], tuple[str, ...]]:
    """Return the names of the input, of the outputs, and of the input's axes that may have any length."""
    if isinstance(outputs, FromPixels):
        return PIXELS, ["probabilities"], ("batch", "height", "width")
    names = ["logits"] if isinstance(outputs.model, WithEncoder) else ["logits", "features"]
    return "images", names, ("batch",)


def verified(outputs: nn.Module, path: Path, *, exact: bool = True) -> float:
    """Return how far a file's outputs are from the model's; without a tolerance where it is not exact."""
    compute: Any = format_named(path).open(path)[1]
    return checked(outputs, compute, TOLERANCE if exact else math.inf)


def write_onnx(outputs: nn.Module, path: Path, metadata: dict[str, object], samples: Samples) -> float:
    save_onnx(outputs, path, metadata)
    return verified(outputs, path)


def save_onnx(outputs: nn.Module, path: Path, metadata: dict[str, object]) -> None:
    """Write an ONNX file in fp32. Raises InputError: ONNX cannot be had, or cannot hold the model."""
    require_packages("onnx", "onnxruntime", "onnxscript", extra="export", what="export to ONNX")
    model: Any = outputs.model
    size = sum(parameter.numel() * 4 for parameter in model.parameters())
    if size > LARGEST_ONNX:
        raise InputError(
            f"the model has {size / 1e9:.1f} GB of weights, and ONNX files hold at most 2: write a .pt2 file"
        )
    program = traced(outputs)
    keep_padding(program.graph)
    source, names, axes = signature(outputs)
    how: dict[str, Any] = {"verbose": False, "opset_version": OPSET}
    written = torch.onnx.export(program, input_names=[source], output_names=names, **how)
    assert written is not None
    graph = written.model
    name_axes(graph.graph, axes)
    graph.metadata_props.update(as_json(metadata))
    written.save(path)


def name_axes(graph: Any, names: Sequence[str]) -> None:
    """Give the axes of any length the names that people read, in the place of s77."""
    known = dict(zip((str(axis) for axis in graph.inputs[0].shape), names, strict=False))
    values = list(graph.inputs)
    for node in graph:
        values += node.outputs
    for value in values:
        for place, axis in enumerate(value.shape or ()):
            if str(axis) in known:
                value.shape[place] = known[str(axis)]


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


def write_torch_program(
    outputs: nn.Module, path: Path, metadata: dict[str, object], samples: Samples
) -> float:
    extra = {f"{name}.json": value for name, value in as_json(metadata).items()}
    program = with_int8_products(outputs) if metadata["precision"] == "int8" else outputs
    # PyTorch would end the process if it wrote into a file on a full disk.
    written = io.BytesIO()
    torch.export.save(traced(program), written, extra_files=extra)
    path.write_bytes(written.getbuffer())
    return verified(outputs, path, exact=metadata["precision"] == "fp32")


def write_weights(outputs: nn.Module, path: Path, metadata: dict[str, object], samples: Samples) -> float:
    """Write the weights under the model's own names in float32, with the description in the file's header."""
    model: Any = outputs.model
    state = {name: tensor.float().contiguous() for name, tensor in model.state_dict().items()}
    write_safetensors(state, path, metadata=as_json(metadata))
    return 0.0


def writers() -> dict[tuple[str, str], Writer]:
    """Return what writes each format in each precision: what the core has, and add-ons."""
    found = {
        ("onnx", "fp32"): Writer(write_onnx),
        ("torch", "fp32"): Writer(write_torch_program),
        ("torch", "int8"): Writer(write_torch_program),
        (WEIGHTS, "fp32"): Writer(write_weights),
    }
    for more in contributed("writers"):
        found |= more
    return found


SUPPORT = {"bilinear": 1.0, "bicubic": 2.0}  # of Pillow's filters, in pixels
FIXED = 2.0**22  # Pillow's weights are multiples of 1 / FIXED
Node = TypeVar("Node")  # of a graph


class FromPixels(nn.Module):
    """A model with its preprocessing inside: from images of any one size to probabilities.

    Resizing is what Pillow (13) does: a weighted mean of columns, rounded to bytes, then one of rows; or the
    other way round where that is less work. Each is a product with a matrix of weights that is computed from
    the size of the image. Raises InputError: the model's images are resized in a way that is not supported.
    """

    def __init__(self, model: Model) -> None:
        super().__init__()
        how: Preprocessing = model.preprocessing
        if how.resize == "fit" or how.interpolation not in SUPPORT or isinstance(model, WithEncoder):
            raise InputError(
                f"{Param('with_preprocessing')} cannot express {how.resize} and {how.interpolation}: it can "
                "crop and squash, bilinear and bicubic, for classifiers"
            )
        if outputs_of(model) not in CLASSES or model.config.num_classes is None:
            raise InputError(
                f"{Param('with_preprocessing')} writes a program that gives probabilities, but the model has "
                f"none: its task is {model.task}, with {model.config.num_classes or 'no'} classes"
            )
        self.model, self.how = model, how
        factor, shift = how.factor_and_shift()
        self.register_buffer("factor", factor)
        self.register_buffer("shift", shift)

    def forward(self, pixels: UInt8[Tensor, "B H W C"]) -> tuple[Tensor]:
        one = torch.scalar_tensor(1.0, dtype=torch.float64)
        height, width = one * pixels.shape[1], one * pixels.shape[2]
        least_height, least_width = (float(each) for each in self.how.enlarged)
        if self.how.resize == "crop":  # the longer side is rounded down
            scale = torch.maximum(least_height / height, least_width / width)
            to_height = torch.clamp_min(torch.floor(height * scale + 1e-6), least_height)
            to_width = torch.clamp_min(torch.floor(width * scale + 1e-6), least_width)
        else:
            to_height = torch.full_like(height, least_height)
            to_width = torch.full_like(width, least_width)
        down = self.weights(pixels.shape[1], height, to_height, self.how.size[0])
        across = self.weights(pixels.shape[2], width, to_width, self.how.size[1])
        # In 53 bits, the sums are exactly those of Pillow.
        images = pixels.permute(0, 3, 1, 2).double()
        across = across.transpose(0, 1)
        columns_first = as_bytes(down @ as_bytes(images @ across))
        rows_first = as_bytes(as_bytes(down @ images) @ across)
        lost_rows, lost_columns = height - to_height, width - to_width
        images = torch.where(lost_rows > torch.clamp_min(2 * lost_columns, 0.0), rows_first, columns_first)
        factor, shift = self.get_buffer("factor"), self.get_buffer("shift")
        logits = self.model(images.float() * factor + shift)
        return (as_probabilities(logits, outputs_of(self.model)),)

    def weights(self, count: int, size: Tensor, target: Tensor, kept: int) -> Float[Tensor, "kept count"]:
        """Return the weight of each of `count` lines in each of the `kept` lines in the middle of
        `target`."""
        cut = (target - kept) / 2
        start = torch.floor(cut) if self.how.crop_start == "floored" else torch.round(cut)
        step = size / target
        wide = torch.clamp_min(step, 1.0)
        centers = (torch.arange(kept, dtype=torch.float64) + start + 0.5) * step
        support = SUPPORT[self.how.interpolation] * wide
        first = torch.clamp_min(torch.floor(centers - support + 0.5), 0.0)[:, None]
        last = torch.minimum(torch.floor(centers + support + 0.5), size)[:, None]
        lines = torch.arange(count, dtype=torch.float64)[None]
        distance = torch.abs(lines - centers[:, None] + 0.5) / wide
        values = FILTERS[self.how.interpolation](distance) * ((lines >= first) & (lines < last))
        shares = values / values.sum(dim=1, keepdim=True)
        return torch.floor(shares * FIXED + 0.5) / FIXED


def bilinear(x: Tensor) -> Tensor:
    return torch.clamp_min(1 - x, 0.0)


def keys_cubic(x: Tensor) -> Tensor:
    """Return Keys' cubic with a = -0.5."""
    near, far = (1.5 * x - 2.5) * x * x + 1, ((-0.5 * x + 2.5) * x - 4) * x + 2
    return torch.where(x < 1, near, torch.where(x < 2, far, torch.zeros_like(x)))


FILTERS: dict[str, Callable[[Tensor], Tensor]] = {"bilinear": bilinear, "bicubic": keys_cubic}


def as_bytes(values: Tensor) -> Tensor:
    return torch.clamp(torch.floor(values + 0.5), 0.0, 255.0)
