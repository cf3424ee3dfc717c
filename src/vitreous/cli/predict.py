"""`vitreous predict RUN IMAGE...`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
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
    opening,
    print_json,
    tell_failed,
)
from vitreous.errors import InputError


def predict(
    model: str,
    /,
    *images: str,
    top: Annotated[int, Parameter(help="how many of the likeliest labels to name")] = 5,
    out: Out = None,
    image_size: ImageSize = None,
    batch_size: BatchSize = 64,
    workers: Workers = None,
    device: Device = "auto",
    precision: Precision = "fp32",
    set: Settings = None,
    json: Json = False,
) -> int:
    """Classify images, read their text, or find what each pixel shows, each seen exactly as in training.

    Parameters
    ----------
    model
        A run directory, or any checkpoint with a head.
    images
        Files, folders, globs.
    """
    if not images:
        raise InputError("no image to classify: vitreous predict RUN photo.jpg photos/ 'more/*.png'")
    if top < 1:
        raise InputError(f"--top {top} names no label: use 1 or more")
    from vitreous.cli.segmentation_runs import is_segmenter, segment_images
    from vitreous.cli.sequence_runs import kind_of_run, read_images
    from vitreous.training.device import pick_device
    from vitreous.training.precision import computing

    here = pick_device(device)
    if is_segmenter(model):
        with computing(precision, here):
            return segment_images(model, images, out=out, image_size=image_size, device=device, json=json)
    if out:
        raise InputError(f"--out is where masks go, and {model} makes none: leave it out")
    if kind_of_run(Path(model)):
        with computing(precision, here):
            return read_images(Path(model), images, device=device, json=json)
    from vitreous.api.arguments import progress_bar
    from vitreous.data.image_list import find_images
    from vitreous.data.loading import worker_count
    from vitreous.deployment.predictor import Predictor
    from vitreous.evaluation.trained import check_has_classes, open_trained

    paths, missing = find_images(images)
    opened = open_trained(model, **opening(image_size, set))
    check_has_classes(opened, model)
    predictor = Predictor(opened, here)
    with computing(precision, here), progress_bar("classifying") as progress:
        predictions, bad = predictor.predict(
            paths, top=top, batch_size=batch_size, workers=worker_count(workers), progress=progress
        )
    failed = [*missing, *bad]
    if json:
        print_json(
            {
                "predictions": [prediction.to_json() for prediction in predictions],
                "failed": [asdict(failure) for failure in failed],
            }
        )
    else:
        for prediction in predictions:
            others = ", ".join(f"{each.label} {each.probability:.1%}" for each in prediction.top[1:])
            print(f"{prediction.path}  {prediction.label}  {prediction.probability:.1%}  ({others})")
    return tell_failed(failed)
