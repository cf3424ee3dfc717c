"""`vitreous export MODEL`."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from vitreous.cli.options import ImageSize, Json, Out, Settings, opening, print_json


def export(
    model: str,
    /,
    *,
    out: Out = None,
    format: str | None = None,
    image_size: ImageSize = None,
    settings: Settings = None,
    json: Json = False,
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
        onnx or torch, where the ending is not to tell.
    """
    from vitreous.checkpoints import open_model
    from vitreous.deployment.exporting import export as export_model
    from vitreous.deployment.exporting import format_of
    from vitreous.training.run import check_finished

    path = out or Path(named(model) + (".pt2" if format == "torch" else ".onnx"))
    format = format_of(path, format)
    check_finished(Path(model))
    opened = open_model(model, **opening(image_size, settings))
    print(f"vitreous: tracing the model and writing {path} ...", file=sys.stderr)
    began = time.perf_counter()
    written = export_model(opened, path, format)
    seconds = time.perf_counter() - began
    if json:
        print_json({"model": model, **written._asdict(), "path": str(path), "seconds": round(seconds, 2)})
        return
    print(
        f"{path} ({written.format}), {written.bytes / 1e6:.1f} MB, largest difference "
        f"{written.max_abs_difference:.1e}"
    )


def named(model: str) -> str:
    """A file's name for MODEL: "ViT-Ti/16" is ViT-Ti-16, runs/mine is mine."""
    path = Path(model)
    name = path.resolve().name if path.exists() else model.rpartition(":")[2].replace("/", "-")
    return name.removesuffix(path.suffix) if path.is_file() else name
