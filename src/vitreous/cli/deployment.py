"""`vitreous calibrate` and `export`: from a trained model to one that is used."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Unpack

from cyclopts import Parameter

import vitreous as vt
from vitreous.api.options import CalibrateOptions, ExportOptions
from vitreous.cli.options import Json, ModelParameter, with_parsed_options
from vitreous.cli.printing import print_json, print_named, print_table
from vitreous.languages.terminal import said, word
from vitreous.results import percent

WithOut = Annotated[str, Parameter(help="a run directory; or, with --out, any checkpoint of a classifier")]


@with_parsed_options()
def calibrate(
    run: WithOut,
    data: Annotated[
        str | None,
        Parameter(
            help="images that are used neither to train nor to evaluate the model, in any form "
            "that vitreous train takes; by default, those on which training fits the temperature"
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
    where = f"{found.source}, {word(found.part)}"
    if data is None:
        where = said("{where} and, to the extent that they agree, training images", where=where)
    print(
        said(
            "temperature {temperature:.3g}, fitted on {count} images: {where}",
            temperature=found.temperature,
            count=found.count,
            where=where,
        )
    )
    print(
        said(
            "expected calibration error there: {before} before, {after} after",
            before=percent(found.error_before),
            after=percent(found.error_after),
        )
    )
    print_named("model", found.folder)
    if found.thresholds:
        rows = [(label, f"{value:.3f}") for label, value in found.thresholds.items()]
        print_table(("\nlabel", "threshold"), rows)


@with_parsed_options()
def export(
    model: ModelParameter,
    /,
    *,
    out: Annotated[
        Path | None,
        Parameter(
            help=".onnx (ONNX), .pt2 (torch.export), .safetensors (weights for JavaScript), or a format of "
            "an add-on; by default the model's name with .onnx"
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
    made = f"{written.format}{f', opset {written.opset}' if written.opset else ''}, {written.precision}"
    print(
        said(
            "{path} ({made}), {size:.1f} MB, largest difference {difference:.1e}",
            path=written.path,
            made=made,
            size=written.bytes / 1e6,
            difference=written.max_abs_difference,
        )
    )
