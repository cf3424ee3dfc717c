"""`vitreous convert SRC DST`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Unpack

from cyclopts import Parameter

import vitreous as vt
from vitreous.cli.options import Json, ModelOptions
from vitreous.cli.printing import print_json


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
