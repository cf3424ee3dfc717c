"""`vitreous export MODEL`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Unpack

from cyclopts import Parameter

import vitreous as vt
from vitreous.cli.options import Json, ModelOptions
from vitreous.cli.printing import print_json


def export(
    model: str,
    /,
    *,
    out: Annotated[Path | None, Parameter(name="--out")] = None,
    format: str | None = None,
    json: Json = False,
    **options: Unpack[ModelOptions],
) -> None:
    """Write a model as a program for other engines, and compare what both make of the same images.

    The program takes any number of normalized images of one size ("images") and gives "logits" and
    "features". Labels and preprocessing are in the file.

    Parameters
    ----------
    model
        A run directory, a checkpoint of any format, hf:org/name, an https: address, or a model name.
    out
        The file: .onnx (ONNX), or .pt2 (torch.export); by default the model's name with .onnx.
    format
        onnx or torch, where the suffix of the file does not say.
    """
    started = time.perf_counter()
    written = vt.export(model, out, format=format, **options)
    seconds = time.perf_counter() - started
    if json:
        print_json({"model": model, **written.to_json(), "seconds": round(seconds, 2)})
        return
    print(
        f"{written.path} ({written.format}), {written.bytes / 1e6:.1f} MB, largest difference "
        f"{written.max_abs_difference:.1e}"
    )
