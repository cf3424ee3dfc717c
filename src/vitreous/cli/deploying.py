"""`vitreous calibrate`, `optimize` and `export`: from a trained model to one that is used."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, TypedDict, Unpack

from cyclopts import Parameter, Token

import vitreous as vt
from vitreous.cli.options import (
    BATCH_HELP,
    BatchSize,
    ConfigFile,
    Device,
    Int,
    Json,
    Model,
    ModelOptions,
    Settings,
    TrainedModel,
    Workers,
)
from vitreous.cli.printing import print_json, print_table
from vitreous.errors import InputError
from vitreous.results import byte_size, percent


class HeldOutOptions(TypedDict, total=False):
    """How images are computed that a model did not learn from."""

    batch_size: Annotated[BatchSize, Parameter(help=BATCH_HELP)]
    workers: Workers
    device: Device
    settings: Settings
    config: ConfigFile


class CalibrateOptions(HeldOutOptions, total=False):
    """Where a calibrated model is written."""

    out: Annotated[Path, Parameter(name="--out", help="the folder for the model; by default the run's own")]


def calibrate(
    run: TrainedModel,
    data: Annotated[
        str | None,
        Parameter(help="images that it did not learn from; by default as at the end of the run's training"),
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


def optimize(
    run: TrainedModel,
    data: Annotated[
        str | None,
        Parameter(help="images that it did not learn from; by default the validation part of the run's data"),
    ] = None,
    /,
    *,
    budget: Annotated[
        float, Parameter(converter=parse_part, n_tokens=1, help="accuracy that may be lost: 0.3%, or 0.003")
    ] = 0.003,
    engines: Annotated[
        list[str] | None,
        Parameter(
            consume_multiple=True,
            help="eager, compiled, onnx, openvino; by default those that are installed, on a CPU without "
            "compiled, which takes minutes",
        ),
    ] = None,
    timed_batch: Annotated[Int, Parameter(help="images in the batch whose time decides")] = 8,
    json: Json = False,
    **options: Unpack[HeldOutOptions],
) -> None:
    """Measure engines, bf16, int8 and token merging here; keep the fastest that is accurate enough."""
    found = vt.optimize(run, data, budget=budget, engines=engines, timed_batch=timed_batch, **options)
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


def export(
    model: Model,
    /,
    *,
    out: Annotated[
        Path | None,
        Parameter(
            help="the file: .onnx (ONNX), .pt2 (torch.export), .safetensors (weights for JavaScript), or a "
            "folder NAME-openvino; by default MODEL.onnx"
        ),
    ] = None,
    format: Annotated[
        str | None, Parameter(help="onnx, torch or openvino, where the name of the file does not say")
    ] = None,
    precision: Annotated[str, Parameter(help="fp32; bf16 for OpenVINO; or int8")] = "fp32",
    data: Annotated[
        str | None,
        Parameter(
            help="images that int8 of ONNX and OpenVINO is calibrated on; by default the validation part "
            "of the run's data"
        ),
    ] = None,
    with_preprocessing: Annotated[
        bool,
        Parameter(
            negative="",
            help="take pixels, uint8 (B, H, W, C) of any size, and give probabilities: nothing is left to do",
        ),
    ] = False,
    json: Json = False,
    **options: Unpack[ModelOptions],
) -> None:
    """Write a model as a program for other engines, and compare what both make of the same images."""
    started = time.perf_counter()
    written = vt.export(
        model,
        out,
        format=format,
        precision=precision,
        data=data,
        with_preprocessing=with_preprocessing,
        **options,
    )
    seconds = time.perf_counter() - started
    if json:
        print_json({"model": model, **written.to_json(), "seconds": round(seconds, 2)})
        return
    print(
        f"{written.path} ({written.format}{f', opset {written.opset}' if written.opset else ''}, "
        f"{written.precision}), {written.bytes / 1e6:.1f} MB, largest difference "
        f"{written.max_abs_difference:.1e}"
    )
