"""`vitreous serve MODEL`."""

from __future__ import annotations

import sys
from typing import Annotated, Any, Unpack

from cyclopts import Parameter

import vitreous as vt
from vitreous.cli.options import DeviceOptions, Int, Json
from vitreous.cli.printing import print_json


def serve(
    model: str,
    /,
    *,
    host: Annotated[str, Parameter(help="0.0.0.0 to be reached from other machines")] = "127.0.0.1",
    port: Annotated[Int, Parameter(help="0: any that is free")] = 8000,
    max_batch: Annotated[Int, Parameter(help="images or texts computed together")] = 32,
    max_wait: Annotated[float, Parameter(help="milliseconds that a request waits for others")] = 5.0,
    queue: Annotated[
        Int, Parameter(help="maximum queued images or texts; beyond it the server answers 503")
    ] = 256,
    json: Json = False,
    **options: Unpack[DeviceOptions],
) -> int:
    """Answer over HTTP what a model says of images or texts; with a web page.

    Parameters
    ----------
    model
        A run directory of vitreous train (of any task) or translate train, a checkpoint in
        any format, or a model's name.
    """

    def ready(url: str, about: dict[str, Any]) -> None:
        if not about["trained"]:
            print(f"vitreous: {model} has fresh weights: its answers mean nothing yet", file=sys.stderr)
        if json:
            print_json({"url": url, **about})
        else:
            print(f"{about['name']} answers at {url}  (Ctrl-C stops it)", flush=True)

    vt.serve(
        model,
        host=host,
        port=port,
        max_batch=max_batch,
        max_wait=max_wait,
        queue=queue,
        ready=ready,
        **options,
    )
    return 0
