"""`vitreous calibrate`, `optimize` and `export`: from a trained model to one that is used."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, TypedDict, Unpack

from cyclopts import Parameter, Token

import vitreous as vt
from vitreous.cli.options import (
    BatchSizes,
    ConfigFile,
    Device,
    ImageSize,
    Int,
    Json,
    Model,
    Precision,
    Settings,
    Text,
    Texts,
    Workers,
)
from vitreous.cli.printing import print_json, print_table
from vitreous.errors import InputError
from vitreous.results import byte_size, percent

WithOut = Annotated[str, Parameter(help="a run directory; or, with --out, any checkpoint of a classifier")]


class CalibrateOptions(TypedDict, total=False):
    out: Annotated[
        Path,
        Parameter(
            help="the folder for the calibrated model; by default that of the run, whose model is replaced"
        ),
    ]
    batch_size: BatchSizes
    workers: Workers
    device: Device
    settings: Settings
    config: ConfigFile


def calibrate(
    run: WithOut,
    data: Annotated[
        str | None,
        Parameter(
            help="images that the model did not learn from and is not evaluated on, in any form that "
            "vitreous train takes; by default those that a training fits the temperature on"
        ),
    ] = None,
    /,
    *,
    json: Json = False,
    **options: Unpack[CalibrateOptions],
) -> None:
    """Fit a temperature of a classifier's probabilities, and store the model with it."""
    found = vt.calibrate(run, data, **options)
    if json:
        print_json(found.to_json())
        return
    learned = ", and training images as far as they agree" if data is None else ""
    print(
        f"temperature {found.temperature:.3g}, fitted on {found.count} images: {found.source}, {found.part}"
        f"{learned}\nexpected calibration error there: {percent(found.error_before)} before, "
        f"{percent(found.error_after)} after\nmodel   {found.folder}"
    )
    if found.thresholds:
        rows = [(label, f"{value:.3f}") for label, value in found.thresholds.items()]
        print_table(("\nlabel", "threshold"), rows)


def parse_part(_: object, tokens: Sequence[Token]) -> float:
    """0.003 from "0.3%" or "0.003"."""
    text = tokens[0].value.replace(" ", "")
    try:
        return float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        raise InputError(f"--budget {text!r} is not a part: write 0.3% or 0.003") from None


Stored = Annotated[str, Parameter(help="a run directory, or a folder of weights in the vitreous format")]
Budget = Annotated[
    float,
    Parameter(
        converter=parse_part, n_tokens=1, metavar="PART", help="accuracy that may be lost: 0.3% or 0.003"
    ),
]


class OptimizeOptions(TypedDict, total=False):
    budget: Annotated[Budget, Parameter(help="accuracy that may be lost: 0.3% or 0.003 [default: 0.003]")]
    engines: Annotated[
        Texts,
        Parameter(
            help="eager, compiled, onnx, openvino; by default those that are installed, and on a CPU without "
            "compiled, which takes minutes"
        ),
    ]
    timed_batch: Annotated[Int, Parameter(help="images in the batches whose time decides [default: 8]")]
    batch_size: BatchSizes
    workers: Workers
    device: Device
    settings: Settings
    config: ConfigFile


def optimize(
    run: Stored,
    data: Annotated[
        str | None,
        Parameter(
            help="images that the model did not learn from; by default the validation part of the run's data"
        ),
    ] = None,
    /,
    *,
    json: Json = False,
    **options: Unpack[OptimizeOptions],
) -> None:
    """Measure engines, bf16, int8 and token merging here; keep the fastest that is accurate enough."""
    found = vt.optimize(run, data, **options)
    if json:
        print_json(found.to_json())
        return
    rows = [
        (
            f"{'* ' if each.name == found.chosen else ''}{each.name}",
            f"{100 * each.metric:.2f} %",
            f"{100 * each.agreement:.1f} %",
            f"{each.images_per_second:.1f}",
            f"{each.times:.2f}",
            f"{each.milliseconds:.1f}",
            byte_size(each.memory) if each.memory else "-",
        )
        for each in found.rows
    ]
    print(f"{found.count} images: {found.source}, {found.part}; batches of {found.batch_size}\n")
    headers = ("", "accuracy", "as fp32", "images/s", "times", "ms of one", "memory")
    print_table(headers, rows)
    where = f", written to {found.file}" if found.file else ""
    print(f"\nkept    {found.chosen}{where}\npredict, evaluate and serve use it; --precision fp32 does not")


class ExportOptions(TypedDict, total=False):
    format: Annotated[Text, Parameter(help="onnx, torch or openvino, if the name of the file does not say")]
    precision: Annotated[Precision, Parameter(help="fp32; bf16 for OpenVINO; int8 [default: fp32]")]
    data: Annotated[
        Text,
        Parameter(
            help="images to calibrate int8 of ONNX and OpenVINO on; by default the run's validation part"
        ),
    ]
    with_preprocessing: Annotated[
        bool,
        Parameter(
            help="include the preprocessing: the program takes pixels, uint8 (B, H, W, C) of any size, and "
            "gives probabilities"
        ),
    ]
    image_size: ImageSize
    settings: Settings
    config: ConfigFile


def export(
    model: Model,
    /,
    *,
    out: Annotated[
        Path | None,
        Parameter(
            help=".onnx (ONNX), .pt2 (torch.export), .safetensors (weights for JavaScript), or a folder "
            "whose name ends in openvino; by default the model's name with .onnx"
        ),
    ] = None,
    json: Json = False,
    **options: Unpack[ExportOptions],
) -> None:
    """Write a model as a program for other engines, and compare what both make of the same images."""
    started = time.perf_counter()
    written = vt.export(model, out, **options)
    seconds = time.perf_counter() - started
    if json:
        print_json({"model": model, **written.to_json(), "seconds": round(seconds, 2)})
        return
    print(
        f"{written.path} ({written.format}{f', opset {written.opset}' if written.opset else ''}, "
        f"{written.precision}), {written.bytes / 1e6:.1f} MB, largest difference "
        f"{written.max_abs_difference:.1e}"
    )
