"""`vitreous convert`, `export` and `bench`: a model in other formats and engines, and its speed."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated, Unpack

from cyclopts import Parameter

import vitreous as vt
from vitreous.cli.options import DeviceOptions, Int, Json, ModelOptions
from vitreous.cli.printing import print_json, print_table


def convert(
    source: str,
    destination: Path,
    /,
    *,
    format: str | None = None,
    source_format: Annotated[str | None, Parameter(name="--from")] = None,
    drop: Annotated[list[str] | None, Parameter(consume_multiple=True, negative=())] = None,
    json: Json = False,
    **options: Unpack[ModelOptions],
) -> None:
    """Write a model in another format, read it back, and compare what both make of the same images.

    Parameters
    ----------
    source
        A checkpoint of any format, a run directory, hf:org/name, an https: address, or a model name.
    destination
        A new folder (vitreous, timm, huggingface) or file (the others); nothing is overwritten.
    format
        vitreous, google, timm, huggingface, torchvision, vit-pytorch, frankzvit, dinov2 or bit. Left out:
        google for .npz, else vitreous.
    source_format
        The format of the source, where it is not to be detected.
    drop
        Parts that the format cannot hold and that are left out: representation_size, head, norm_eps, mlp.
    """
    converted = vt.convert(
        source, destination, format=format, source_format=source_format, drop=drop or (), **options
    )
    if json:
        print_json({"source": source, **converted.to_json()})
        return
    if drop:
        print(f"left out: {', '.join(drop)}; the comparison is with the model without it", file=sys.stderr)
    print(f"{converted.path} ({converted.format}), largest difference {converted.max_abs_difference:.1e}")


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


def bench(
    *,
    model: str = "ViT-Ti/16",
    batch_size: Annotated[Int, Parameter(help="images in one call")] = 16,
    train: Annotated[bool, Parameter(help="time a training step (AdamW) instead of inference")] = False,
    compile: Annotated[bool, Parameter(help="through torch.compile, all of them")] = False,
    peers: Annotated[list[str] | None, Parameter(consume_multiple=True, negative=())] = None,
    rounds: Annotated[Int, Parameter(help="calls of each")] = 10,
    json: Json = False,
    **options: Unpack[DeviceOptions],
) -> None:
    """How fast a ViT is here, side by side with the peers that are installed.

    Parameters
    ----------
    model
        A name: ViT-Ti/16, ViT-B/16, ...
    peers
        timm, huggingface, torchvision, vit-pytorch; by default those that can be imported.
    """
    print(f"vitreous: {rounds} rounds of {batch_size} images ...", file=sys.stderr)
    found = vt.benchmark(
        model, batch_size=batch_size, train=train, compile=compile, peers=peers, rounds=rounds, **options
    )
    if json:
        print_json({"model": model, **found.to_json()})
        return
    rows = [
        [each.name, each.version, f"{each.images_per_second:.1f}", f"{each.ratio:.2f}"]
        for each in found.contenders
    ]
    print_table(["", "version", "images/s", "times vitreous"], rows, words=2)
    for name, reason in found.absent.items():
        print(f"vitreous: without {name}: {reason}", file=sys.stderr)
