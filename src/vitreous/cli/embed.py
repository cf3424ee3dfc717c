"""`vitreous embed MODEL IMAGE...`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Unpack

from cyclopts import Parameter

import vitreous as vt
from vitreous.cli.options import Json, LoadingOptions
from vitreous.cli.printing import print_failed, print_json


def embed(
    model: str,
    /,
    *images: str,
    out: Annotated[Path, Parameter(help="the file: .npz, or .parquet")] = Path("features.npz"),
    json: Json = False,
    **options: Unpack[LoadingOptions],
) -> int:
    """Write the features of images to a file: what the head of the model sees.

    Parameters
    ----------
    model
        A run directory, a checkpoint of any format, hf:org/name, or a model name (fresh weights).
    images
        Files, folders, globs.
    """
    features = vt.embed(model, list(images), out=out, **options)
    if json:
        result = {"model": model, "path": str(out), **features.to_json()}
        del result["paths"]  # they are in the file
        print_json(result)
    else:
        count, width = features.values.shape
        print(f"{out}: {count} images, {width} features of each")
    return print_failed(features.failed)
