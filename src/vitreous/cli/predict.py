"""`vitreous predict MODEL IMAGE...`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Unpack

from cyclopts import Parameter

import vitreous as vt
from vitreous.cli.options import Int, Json, LoadingOptions
from vitreous.cli.printing import print_failed, print_json
from vitreous.errors import InputError


class PredictOptions(LoadingOptions, total=False):
    """A model at work on images that are not labeled."""

    top: Annotated[Int, Parameter(help="how many labels to name, most probable first; 5 by default")]
    out: Annotated[Path, Parameter(name="--out", help="the folder for a segmenter's masks")]


def predict(model: str, /, *images: str, json: Json = False, **options: Unpack[PredictOptions]) -> int:
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
    from vitreous.data.image_list import Failure

    found = vt.predict(model, list(images), **options)
    if json:
        print_json(found.to_json())
    else:
        for answer in found.answers:
            print(answer.line())
    return print_failed(Failure(*each) for each in found.failed.items())
