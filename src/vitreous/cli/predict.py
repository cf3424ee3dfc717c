"""`vitreous predict MODEL IMAGE...`."""

from __future__ import annotations

import sys
from typing import Annotated

from cyclopts import Parameter

from vitreous.cli.options import (
    BatchSize,
    Device,
    ImageSize,
    Json,
    Out,
    Precision,
    Settings,
    Workers,
    chosen,
    opening,
    print_json,
)
from vitreous.errors import InputError


def predict(
    model: str,
    /,
    *images: str,
    top: Annotated[int | None, Parameter(help="how many labels to name, most probable first; 5")] = None,
    out: Out = None,
    image_size: ImageSize = None,
    batch_size: BatchSize = 64,
    workers: Workers = None,
    device: Device = "auto",
    precision: Precision = "fp32",
    set: Settings = None,
    json: Json = False,
) -> int:
    """Classify images, write their text, or find the class of each pixel, each seen exactly as in training.

    Parameters
    ----------
    model
        A run directory, or any checkpoint with a head.
    images
        Files, folders, globs.
    """
    if not images:
        raise InputError("no image to classify: vitreous predict RUN photo.jpg photos/ 'more/*.png'")
    if top is not None and top < 1:
        raise InputError(f"--top {top} names no label: use 1 or more")
    from vitreous.api.arguments import progress_bar
    from vitreous.data.image_list import ImageList, find_images
    from vitreous.data.loading import worker_count
    from vitreous.tasks import task_named
    from vitreous.tasks.running import predict as ask
    from vitreous.tasks.running import task_of
    from vitreous.training.device import pick_device

    task = task_of(model) or task_named("classification")
    given = {"--top": top, "--out": out, "--image-size": image_size, "--workers": workers, "--set": set}
    task.check_options("predict", given)
    paths, missing = find_images(images)
    options = chosen({"top": top, "out": out or task.default_out(model)})
    with progress_bar("predicting") as progress:
        found = ask(
            model,
            ImageList(paths),
            device=pick_device(device),
            precision=precision,
            batch_size=batch_size,
            workers=worker_count(workers),
            progress=progress,
            overrides=opening(image_size, set),
            **options,
        )
    told = found.to_json()
    told["failed"] = [{"path": each.path, "reason": each.reason} for each in missing] + told["failed"]
    if json:
        print_json(told)
    else:
        for answer in found.answers:
            print(answer.line())
    for each in told["failed"]:
        print(f"vitreous: {each['path']}: {each['reason']}", file=sys.stderr)
    return 1 if told["failed"] else 0
