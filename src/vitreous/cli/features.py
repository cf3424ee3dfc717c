"""`vitreous embed` and `probe`: the frozen features of a model, and how good they are."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Unpack

from cyclopts import Parameter

import vitreous as vt
from vitreous.cli.options import Int, Json, LoadingOptions
from vitreous.cli.printing import print_failed, print_json, print_table
from vitreous.results import percent


def embed(
    model: str,
    /,
    *images: str,
    out: Annotated[Path, Parameter(help="the file: .npz, or .parquet")] = Path("features.npz"),
    json: Json = False,
    **options: Unpack[LoadingOptions],
) -> int:
    """Write the features of images to a file: what the head of the model sees.

    Parameters
    ----------
    model
        A run directory, a checkpoint of any format, hf:org/name, or a model name (fresh weights).
    images
        Files, folders, globs.
    """
    features = vt.embed(model, list(images), out=out, **options)
    if json:
        result = {"model": model, "path": str(out), **features.to_json()}
        del result["paths"]  # they are in the file
        print_json(result)
    else:
        count, width = features.values.shape
        print(f"{out}: {count} images, {width} features of each")
    return print_failed(features.failed)


def probe(
    model: str,
    data: str | None = None,
    /,
    *,
    shots: Annotated[
        list[Int] | None,
        Parameter(consume_multiple=True, help="images of each class; by default 1 5 10 25"),
    ] = None,
    draws: Annotated[Int, Parameter(help="how often shots are sampled, for the interval")] = 3,
    seed: Annotated[Int, Parameter(help="random seed of the sampled shots")] = 0,
    json: Json = False,
    **options: Unpack[LoadingOptions],
) -> None:
    """Evaluate frozen features: few-shot linear (closed form), k-NN, logistic regression.

    Parameters
    ----------
    model
        A run, a checkpoint of any format, hf:org/name; a name such as ViT-Ti/16 has fresh weights.
    data
        What `vitreous train` takes; by default the data of the run, and else the digits.
    """
    from vitreous.api.arguments import is_fresh

    if is_fresh(model):
        print(
            f"vitreous: {model} has fresh weights: this is what features are worth untrained", file=sys.stderr
        )
    result = vt.probe(model, data, shots=shots, draws=draws, seed=seed, **options)
    if json:
        print_json({"model": model, **result.to_json()})
        return
    print(
        f"{model} on {result.data}: {result.width} frozen features, {result.train_count} images to fit, "
        f"{result.test_count} to evaluate\n"
    )
    rows = [
        (row["probe"], percent(row["accuracy"]), f"{percent(row['low'])} to {percent(row['high'])}")
        for row in result.table()
    ]
    print_table(("probe", "accuracy", "95 % interval"), rows)
    print(f"\nfeatures in {result.extracting:.1f} s, probes in {result.fitting:.1f} s")
    print(f"few-shot intervals: over {draws} samples of the shots; the others: over the test images")
