"""`vitreous predict MODEL IMAGE...`."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from vitreous.cli.options import (
    BatchSize,
    ConfigFile,
    Device,
    ImageSize,
    Json,
    Out,
    Precision,
    Settings,
    Workers,
    parse_settings,
    parse_size,
    print_json,
    tell_failed,
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
    config: ConfigFile = None,
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
    import vitreous as vt
    from vitreous.data.image_list import Failure

    found = vt.predict(
        model,
        list(images),
        top=top,
        out=out,
        image_size=parse_size(image_size),
        batch_size=batch_size,
        workers=workers,
        device=device,
        precision=precision,
        settings=parse_settings(set),
        config=config,
    )
    if json:
        print_json(found.to_json())
    else:
        for answer in found.answers:
            print(answer.line())
    return tell_failed(Failure(*each) for each in found.failed.items())
