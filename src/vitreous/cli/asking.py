"""`vitreous evaluate`, `predict`, `embed` and `probe`: what a model makes of data."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, TypedDict, Unpack

from cyclopts import Parameter

import vitreous as vt
from vitreous.cli.options import (
    Actors,
    AnyModel,
    BatchSizes,
    ConfigFile,
    Device,
    Engine,
    Images,
    ImageSize,
    Int,
    Ints,
    Json,
    Precision,
    Settings,
    TrainedModel,
    Workers,
)
from vitreous.cli.printing import print_failed, print_json, print_metrics, print_table
from vitreous.errors import InputError
from vitreous.results import percent


class EvaluateOptions(TypedDict, total=False):
    tta: Annotated[
        bool,
        Parameter(
            help="test-time augmentation: the mean answer to an image, its corners and, if the model was "
            "trained with them, mirror images; five or ten times the work"
        ),
    ]
    image_size: ImageSize
    batch_size: BatchSizes
    workers: Workers
    device: Device
    precision: Precision
    settings: Settings
    config: ConfigFile


def evaluate(
    run: TrainedModel,
    data: Annotated[
        str | None,
        Parameter(
            help="a dataset in any form that vitreous train takes; by default the held-out part of the "
            "run's data"
        ),
    ] = None,
    /,
    *,
    json: Json = False,
    **options: Unpack[EvaluateOptions],
) -> int:
    """Evaluate a model on data that it did not learn from, each example once."""
    from vitreous.data.image_list import Failure

    found = vt.evaluate(run, data, **options)
    if os.environ.get("RANK", "0") != "0":  # of torchrun's processes the first one prints
        return 0
    if json:
        print_json(found.to_json())
    else:
        print(f"{run} on {found.source}, {found.part}, in {found.seconds:.1f} s\n")
        print_metrics(found)
        for table in found.tables():
            print(f"\n{table.title}" if table.title else "")
            print_table(table.headers, table.rows, words=table.words)
    return print_failed(Failure(*each) for each in found.failed.items())


Threshold = Annotated[
    list[str],
    Parameter(
        metavar="VALUE",
        help="name all labels that are at least as probable, several or none: a number; LABEL=NUMBER for "
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
            help="where to write the answers: a new .csv, .jsonl or .parquet file, which gets a row for each "
            "image as it is answered; or a folder, which gets a Parquet file for each part of the images, "
            "and is continued where it has some. Of a task that writes images: the folder for them, by "
            "default a new one"
        ),
    ]
    engine: Engine
    actors: Actors
    image_size: ImageSize
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
        raise InputError("no image to classify: vitreous predict RUN photo.jpg photos/ 'more/*.png'")
    from vitreous.data.image_list import Failure

    least = parse_threshold(threshold) if threshold else None
    found = vt.predict(model, list(images), threshold=least, **options)
    if json:
        print_json(found.to_json())
    else:
        for answer in found.answers:
            print(answer.line().replace("\n", "\\n"))  # of a file's name or a text
        if found.out:
            print(f"answers to {found.count} images: {found.out}")
    return print_failed(Failure(*each) for each in found.failed.items())


def parse_threshold(words: Sequence[str]) -> float | str | dict[str, float]:
    """Return 0.5, "best", or {"cat": 0.3} from cat=0.3. Raises InputError."""
    try:
        if len(words) == 1 and "=" not in words[0]:
            return "best" if words[0] == "best" else float(words[0])
        pairs = dict(word.rsplit("=", 1) for word in words)
        return {label: float(number) for label, number in pairs.items()}
    except ValueError:
        wrong = f"--threshold {' '.join(words)}: give a number, LABEL=NUMBER for some labels, or best"
        raise InputError(wrong) from None


class EmbedOptions(TypedDict, total=False):
    engine: Engine
    actors: Actors
    batch_size: BatchSizes
    image_size: ImageSize
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
            help="the file for the features, .npz or .parquet; or a folder, which gets a Parquet file for "
            "each part of the images, and is continued where it has some"
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
        print(f"{out}: {features.count} images, {features.values.shape[1]} features of each")
    return print_failed(features.failed)


class ProbeOptions(TypedDict, total=False):
    shots: Annotated[
        Ints,
        Parameter(help="numbers of images of each class to learn from; by default 1, 5, 10 and 25"),
    ]
    batch_size: BatchSizes
    image_size: ImageSize
    workers: Workers
    seed: Annotated[Int, Parameter(help="random seed of the sampled shots")]
    device: Device
    precision: Precision
    settings: Settings
    config: ConfigFile


def probe(
    model: AnyModel,
    data: Annotated[
        str | None,
        Parameter(
            help="a dataset in any form that vitreous train takes; by default that of the run, or else the "
            "digits"
        ),
    ] = None,
    /,
    *,
    draws: Annotated[Int, Parameter(help="how often the shots are sampled, for the interval")] = 3,
    json: Json = False,
    **options: Unpack[ProbeOptions],
) -> None:
    """Evaluate frozen features, and print the accuracy of each probe."""
    from vitreous.api.arguments import is_fresh

    if is_fresh(model):
        print(
            f"vitreous: {model} has fresh weights: this is what features are worth untrained", file=sys.stderr
        )
    result = vt.probe(model, data, draws=draws, **options)
    if json:
        print_json({"model": model, **result.to_json()})
        return
    print(
        f"{model} on {result.data}: {result.width} frozen features, {result.train_count} images to fit, "
        f"{result.test_count} to evaluate\n"
    )
    rows = []
    for row in result.table():
        interval = f"{percent(row['low'])} to {percent(row['high'])}"
        others = (percent(row[name]) for name in result.baselines)
        rows.append((row["probe"], percent(row["accuracy"]), interval, *others))
    print_table(("probe", "accuracy", "95 % interval", *result.baselines), rows)
    print(f"\nfeatures in {result.extracting:.1f} s, probes in {result.fitting:.1f} s")
    print(f"few-shot intervals: over {draws} samples of the shots; the others: over the test images")
