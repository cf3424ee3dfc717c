"""A model as a program that runs without this package: ONNX, or PyTorch's own exported program.

Both take any number of images of one size, as `model.preprocessing` makes them, and carry labels and
preprocessing with them. The exported file is run by its own engine and compared with the model
before it is moved to its final name.
"""

from __future__ import annotations

import json
import logging
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vitreous.checkpoints.native import description
from vitreous.checkpoints.saving import on_cpu
from vitreous.deployment.engines import ENGINES, engine_named
from vitreous.errors import InputError, require_packages, writing_to
from vitreous.models.names import Model
from vitreous.models.segmenter import Segmenter
from vitreous.results import Result

TOLERANCE = 1e-4  # of the largest output, and of 1 where all are smaller: other engines add in another order
BATCHES = 1, 3  # images to compare with; the example that the program is traced with has two
LARGEST_ONNX = 1_900_000_000  # bytes of weights; a file of protocol buffers ends at 2 GiB
LEAST = -3e38  # less than any number of an image


class Outputs(nn.Module):
    """What the program computes: the logits, and the features that they come from where there are any."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Float[Tensor, "B C H W"]) -> tuple[Tensor, ...]:
        if isinstance(self.model, Segmenter):
            return (self.model(images),)
        features = self.model.features(images)
        return self.model.head(features), features


@dataclass(frozen=True)
class Exported(Result):
    """What was written, and how far its outputs are from the model's."""

    path: Path
    format: str
    bytes: int
    max_abs_difference: float


def export(model: Model, path: Path, format: str | None = None) -> Exported:
    """Write `model` as a program.

    Args:
        path: a file; its ending tells the format where `format` is None.
        format: "onnx" or "torch".

    Raises:
        InputError: another ending or format, a package is missing, the model is too large for the format, or
            the program computes something else; then nothing is written.
    """
    format = engine_named(path, format)
    engine = ENGINES[format]
    if format == "onnx":
        check_onnx(model)
    outputs = Outputs(on_cpu(model)).eval()
    unfinished = path.with_name(f".{path.stem}.{os.getpid()}.tmp{engine.ending}")
    try:
        with torch.no_grad(), quiet(), writing_to(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            WRITERS[format](outputs, traced(outputs), unfinished)
            difference = checked(outputs, engine.open(unfinished)[1])
            os.replace(unfinished, path)
    finally:
        if unfinished.exists():
            unfinished.unlink()
    return Exported(path, format, path.stat().st_size, difference)


def check_onnx(model: Model) -> None:
    """Raises InputError where ONNX cannot be had, or cannot hold the model."""
    require_packages("onnx", "onnxruntime", "onnxscript", extra="export", what="export to ONNX")
    size = sum(parameter.numel() * 4 for parameter in model.parameters())
    if size > LARGEST_ONNX:
        raise InputError(
            f"the model has {size / 1e9:.1f} GB of weights, and ONNX files hold at most 2: write a .pt2 file"
        )


def traced(outputs: Outputs) -> torch.export.ExportedProgram:
    """The model's operations, for any number of images."""
    batch = {0: torch.export.Dim("batch")}
    return torch.export.export(outputs, (images(outputs.model, 2),), dynamic_shapes=(batch,))


def images(model: Model, count: int) -> Float[Tensor, "B C H W"]:
    """Noise in place of images that were normalized."""
    random = torch.Generator().manual_seed(count)
    return torch.randn(count, model.config.channels, *model.config.image_size, generator=random)


def checked(outputs: Outputs, run: Callable[[Tensor], list[Tensor]]) -> float:
    """The largest difference between what model and program make of the same images.

    Raises:
        InputError: it is above the tolerance.
    """
    difference, scale = 0.0, 1.0
    for count in BATCHES:
        batch = images(outputs.model, count)
        for ours, theirs in zip(outputs(batch), run(batch), strict=True):
            difference = max(difference, (ours - theirs).abs().max().item())
            scale = max(scale, ours.abs().max().item())
    if not difference <= TOLERANCE * scale:
        raise InputError(
            f"the exported program differs from the model by {difference:.1e} (tolerance "
            f"{TOLERANCE * scale:.1e}): nothing is written"
        )
    return difference


def export_metadata(model: Model) -> dict[str, str]:
    """Return what the model is, what its outputs mean and how inputs are prepared, as JSON."""
    return {name: json.dumps(value, ensure_ascii=False) for name, value in description(model).items()}


def write_onnx(outputs: Outputs, program: torch.export.ExportedProgram, path: Path) -> None:
    keep_padding(program.graph)
    names = ["logits"] if isinstance(outputs.model, Segmenter) else ["logits", "features"]
    onnx = torch.onnx.export(program, input_names=["images"], output_names=names, verbose=False)
    assert onnx is not None
    onnx.model.metadata_props.update(export_metadata(outputs.model))
    onnx.save(path)


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


def write_torch(outputs: Outputs, program: torch.export.ExportedProgram, path: Path) -> None:
    torch.export.save(
        program, path, extra_files={f"{k}.json": v for k, v in export_metadata(outputs.model).items()}
    )


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the exporter's log messages and warnings."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


WRITERS = {"onnx": write_onnx, "torch": write_torch}
