"""`vitreous serve MODEL`."""

from __future__ import annotations

import sys
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from vitreous.cli.options import (
    ConfigFile,
    Device,
    ImageSize,
    Json,
    Settings,
    parse_settings,
    parse_size,
    print_json,
)


def serve(
    model: str,
    /,
    *,
    host: Annotated[str, Parameter(help="0.0.0.0 to be reached from other machines")] = "127.0.0.1",
    port: Annotated[int, Parameter(help="0: any that is free")] = 8000,
    max_batch: Annotated[int, Parameter(help="images or texts computed together")] = 32,
    max_wait: Annotated[float, Parameter(help="milliseconds that a request waits for others")] = 5.0,
    queue: Annotated[
        int, Parameter(help="maximum queued images or texts; beyond it the server answers 503")
    ] = 256,
    precision: Annotated[
        Literal["auto", "fp32", "bf16"], Parameter(help="of matrix products; auto: bf16 where it is faster")
    ] = "fp32",
    image_size: ImageSize = None,
    device: Device = "auto",
    set: Settings = None,
    config: ConfigFile = None,
    json: Json = False,
) -> int:
    """Answer over HTTP what a model says of images or texts; with a web page.

    Parameters
    ----------
    model
        A run directory of vitreous train (of any task) or translate train, a checkpoint in
        any format, or a model's name.
    """
    import vitreous as vt

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
        precision=precision,
        image_size=parse_size(image_size),
        device=device,
        settings=parse_settings(set),
        config=config,
        ready=ready,
    )
    return 0
