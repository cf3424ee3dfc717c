"""`vitreous serve MODEL`."""

from __future__ import annotations

import sys
from typing import Annotated, Literal

from cyclopts import Parameter

from vitreous.cli.options import Device, ImageSize, Json, Settings, opening, print_json
from vitreous.errors import InputError


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
    json: Json = False,
) -> int:
    """Answer over HTTP what a model says of images or texts; with a web page.

    Parameters
    ----------
    model
        A run directory of vitreous train (of any task) or translate train, a checkpoint in
        any format, or a model's name.
    """
    for name, value, least in (("max-batch", max_batch, 1), ("max-wait", max_wait, 0), ("queue", queue, 1)):
        if value < least:
            raise InputError(f"--{name} {value:g} is too low: use {least} or more")
    from vitreous.deployment.serving import check_installed

    check_installed()
    from vitreous.deployment.serving import running
    from vitreous.deployment.serving.app import Pace, build_app
    from vitreous.deployment.serving.endpoints import Limits
    from vitreous.deployment.serving.page import page_of
    from vitreous.tasks.running import task_of
    from vitreous.tasks.serving import open_served
    from vitreous.training.device import pick_device

    if task := task_of(model):
        task.check_options("serve", {"--image-size": image_size, "--set": set})
    address, chosen = running.bind(host, port), pick_device(device)
    with running.one_thread() as thread:
        opened = thread.submit(
            open_served, model, device=chosen, precision=precision, **opening(image_size, set)
        ).result()
        app = build_app(
            opened.served,
            about=opened.about,
            page=page_of(opened.served, opened.about, opened.examples, Limits()),
            model_thread=thread,
            pace=Pace(max_batch, max_wait / 1000, queue),
        )
        if not opened.about["trained"]:
            print(f"vitreous: {model} has fresh weights: its answers mean nothing yet", file=sys.stderr)

        def ready(url: str) -> None:
            if json:
                print_json({"url": url, "task": opened.served.task, **opened.about})
            else:
                print(f"{opened.about['name']} answers at {url}  (Ctrl-C stops it)", flush=True)

        running.run(app, address, ready=ready)
    return 0
