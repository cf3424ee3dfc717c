"""`vitreous train [DATA]`."""

from __future__ import annotations

from typing import Annotated, Literal, Unpack

from cyclopts import Parameter

import vitreous as vt
from vitreous.cli.options import ImageRunOptions, Json
from vitreous.cli.training import Resume, train_or_resume


class TrainOptions(ImageRunOptions, total=False):
    """A run that learns from images and what they show."""

    task: Annotated[
        str, Parameter(help="classification (the default), multilabel, regression, segmentation, captioning")
    ]
    recipe: Annotated[str, Parameter(help="a recipe's name; by default the data decide")]
    minutes: Annotated[float, Parameter(help="as many steps as fit into this time, instead of epochs")]
    batch_size: Annotated[
        int | Literal["auto"],
        Parameter(
            name="--batch-size",
            help="images in one step; auto: the recipe's, in micro-batches that fit the memory",
        ),
    ]
    strict: Annotated[bool, Parameter(help="an image that cannot be read is an error")]


def train(
    data: str | None = None,
    /,
    *,
    resume: Resume = None,
    json: Json = False,
    **options: Unpack[TrainOptions],
) -> int:
    """Train or fine-tune a model on images.

    Parameters
    ----------
    data
        digits (the default), a folder with a sub-folder for each class, a manifest, shards, cifar10:PATH;
        with --task captioning a manifest whose label is the text (default: lines of handwritten digits); with
        --task segmentation a folder with images/ and masks/ (default: pages of handwritten digits)
    """
    return train_or_resume(vt.train, data, options, resume, command="train", json=json)
