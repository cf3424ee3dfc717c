"""`vitreous predict` and `embed`: what a model answers to images, and its features."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, TypedDict, Unpack

from cyclopts import Parameter

import vitreous as vt
from vitreous.cli.options import (
    AnyModel,
    BatchSizes,
    ConfigFile,
    Device,
    Images,
    ImageSize,
    Int,
    Json,
    Patches,
    Precision,
    Settings,
    TrainedModel,
    Workers,
)
from vitreous.cli.printing import print_json, print_wrong
from vitreous.errors import InputError
from vitreous.languages.terminal import said

Threshold = Annotated[
    list[str],
    Parameter(
        metavar="VALUE",
        help="report all labels with at least this probability, several or none: a number; LABEL=NUMBER for "
        "some, "
        "0.5 for the others; best: for each of several labels the threshold of the largest F1 on validation",
    ),
]


class PredictOptions(TypedDict, total=False):
    top: Annotated[Int, Parameter(help="number of labels for each image, most probable first; by default 5")]
    tta: Annotated[
        bool,
        Parameter(
            help="test-time augmentation: the mean answer to an image, its corners and, if the model was "
            "trained with them, mirror images; five or ten times the work"
        ),
    ]
    out: Annotated[
        Path,
        Parameter(
            help="where to write the answers: a new .csv, .jsonl or .parquet file with a row for each "
            "image, written as it is answered; or a folder with a Parquet file for each part of the "
            "images, continued if it has some already. For a task that writes images: the folder for "
            "them, by default a new one"
        ),
    ]
    image_size: ImageSize
    patches: Patches
    batch_size: BatchSizes
    workers: Workers
    device: Device
    precision: Precision
    settings: Settings
    config: ConfigFile


def predict(
    model: TrainedModel,
    /,
    *images: Images,
    threshold: Threshold | None = None,
    json: Json = False,
    **options: Unpack[PredictOptions],
) -> int:
    """Answer what a model was trained to say of images."""
    if not images:
        raise InputError(said("no image to classify: vitreous predict RUN photo.jpg photos/ 'more/*.png'"))
    least = parse_threshold(threshold) if threshold else None
    found = vt.predict(model, list(images), threshold=least, **options)
    if json:
        print_json(found.to_json())
    else:
        for answer in found.answers:
            print(answer.line().replace("\n", "\\n"))  # of a file's name or a text
        if found.out:
            print(said("answers to {count} images: {out}", count=found.count, out=found.out))
    return print_wrong(found.failed, found.damaged)


def parse_threshold(words: Sequence[str]) -> float | str | dict[str, float]:
    """Return 0.5, "best", or {"cat": 0.3} from cat=0.3. Raises InputError."""
    try:
        if len(words) == 1 and "=" not in words[0]:
            return "best" if words[0] == "best" else float(words[0])
        pairs = dict(word.rsplit("=", 1) for word in words)
        return {label: float(number) for label, number in pairs.items()}
    except ValueError:
        wrong = said(
            "--threshold {text}: give a number, LABEL=NUMBER for some labels, or best", text=" ".join(words)
        )
        raise InputError(wrong) from None


class EmbedOptions(TypedDict, total=False):
    batch_size: BatchSizes
    image_size: ImageSize
    patches: Patches
    workers: Workers
    device: Device
    precision: Precision
    settings: Settings
    config: ConfigFile


def embed(
    model: AnyModel,
    /,
    *images: Images,
    out: Annotated[
        Path,
        Parameter(
            help="the file for the features, .npz or .parquet; or a folder with a Parquet file for each "
            "part of the images, continued if it has some already"
        ),
    ] = Path("features.npz"),
    json: Json = False,
    **options: Unpack[EmbedOptions],
) -> int:
    """Write the features of images to a file: what the head of the model sees."""
    features = vt.embed(model, list(images), out=out, **options)
    if json:
        result = {"model": model, "path": str(out), **features.to_json()}
        del result["paths"]  # they are in the file
        print_json(result)
    else:
        count, width = features.count, features.values.shape[1]
        print(said("{out}: {count} images, {width} features of each", out=out, count=count, width=width))
    return print_wrong(features.failed, features.damaged)
