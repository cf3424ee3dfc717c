"""`vitreous evaluate`, `predict` and `serve`: what a trained model answers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, Unpack

from cyclopts import Parameter

import vitreous as vt
from vitreous.cli.options import DeviceOptions, Int, Json, Language, LoadingOptions
from vitreous.cli.printing import print_failed, print_json, print_metrics, print_table
from vitreous.errors import InputError


def evaluate(
    run: str,
    data: str | None = None,
    /,
    *,
    json: Json = False,
    **options: Unpack[LoadingOptions],
) -> None:
    """Evaluate a model on data that it did not learn from, each example once.

    Parameters
    ----------
    run
        A run directory, or any checkpoint with a head.
    data
        By default the held-out part of what the run was trained on.
    """
    found = vt.evaluate(run, data, **options)
    if json:
        print_json(found.to_json())
        return
    print(f"{run} on {found.source}, {found.part}, in {found.seconds:.1f} s\n")
    print_metrics(found)
    for table in found.tables():
        print(f"\n{table.title}" if table.title else "")
        print_table(table.headers, table.rows, words=table.words)
    for path, reason in found.failed.items():
        print(f"could not be decoded: {path}: {reason}")


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
    language: Language | None = None,
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
        language=language,
        **options,
    )
    return 0
