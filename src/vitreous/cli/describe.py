"""`vitreous describe MODEL`."""

from __future__ import annotations

from typing import Annotated, Unpack

from cyclopts import Parameter

import vitreous as vt
from vitreous.cli.options import BatchSize, Json, ModelOptions
from vitreous.cli.printing import print_json


def describe(
    model: str,
    /,
    *,
    batch_size: Annotated[BatchSize, Parameter(help="images in memory at once")] = 1,
    json: Json = False,
    **options: Unpack[ModelOptions],
) -> None:
    """Print every stage of the forward pass of a model: shape, parameters, operations, equation, and memory.

    Parameters
    ----------
    model
        A name such as ViT-B/16 or R50+ViT-B/16, a checkpoint of any format, or a run directory.
    """
    description = vt.describe(model, batch_size=batch_size, **options)
    if json:
        print_json({"model": model, **description.to_json()})
    else:
        print(f"{model}: the forward pass of one image\n\n{description}")
