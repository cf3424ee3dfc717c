"""`vitreous probe MODEL DATA`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from vitreous.cli.options import (
    ConfigFile,
    Device,
    ImageSize,
    Json,
    Precision,
    Seed,
    Settings,
    Workers,
    print_json,
    resized,
    settings_tree,
)


def probe(
    model: str,
    data: str = "digits",
    /,
    *,
    shots: Annotated[
        list[int] | None,
        Parameter(consume_multiple=True, help="images of each class; by default 1 5 10 25"),
    ] = None,
    draws: Annotated[int, Parameter(help="how often shots are drawn, for the interval")] = 3,
    image_size: ImageSize = None,
    workers: Workers = None,
    seed: Seed = 0,
    device: Device = "auto",
    precision: Precision = "fp32",
    set: Settings = None,
    config: ConfigFile = None,
    json: Json = False,
) -> None:
    """How good a model's features are, without training it: few-shot linear (closed form), k-NN, logistic.

    Parameters
    ----------
    model
        A run, a checkpoint of any format, hf:org/name; a name such as ViT-Ti/16 has fresh weights.
    data
        What `vitreous train` takes.
    """
    from vitreous.checkpoints import open_model
    from vitreous.cli.progress import progress_bar
    from vitreous.data.sources import open_data
    from vitreous.data.threads import worker_count
    from vitreous.evaluation.fewshot import SHOTS
    from vitreous.evaluation.held_out import data_settings
    from vitreous.evaluation.probing import check_draws
    from vitreous.evaluation.probing import probe as probe_features
    from vitreous.evaluation.trained import has_weights
    from vitreous.training.device import pick_device
    from vitreous.training.run import check_finished

    numbers = tuple(shots or SHOTS)
    check_draws(numbers, draws)
    settings = settings_tree(config, set)
    check_finished(Path(model))
    opened = open_model(model, **settings.pop("model", {}), **resized(image_size))
    splits = open_data(data, data_settings("probe", settings))
    if not has_weights(model):
        print(
            f"vitreous: {model} has fresh weights: this is what features are worth untrained", file=sys.stderr
        )
    with progress_bar("extracting features") as progress:
        result = probe_features(
            opened,
            splits,
            shots=numbers,
            seed=seed,
            draws=draws,
            device=pick_device(device),
            precision=precision,
            workers=worker_count(workers),
            progress=progress,
        )
    if json:
        print_json({"model": model, "data": data, **result.to_json()})
        return
    from vitreous.cli.tables import interval, percent, print_table

    rows = [
        (f"linear, {number} of each class", percent(few.mean), interval(*few.interval))
        for number, few in result.fewshot.items()
    ]
    rows += [
        (name, percent(accuracy), interval(*result.interval(accuracy)))
        for name, accuracy in (("20 nearest neighbors", result.knn), ("logistic regression", result.linear))
    ]
    print(
        f"{model} on {data}: {result.width} frozen features, {result.train_count} images to fit, "
        f"{result.test_count} to judge\n"
    )
    print_table(("probe", "accuracy", "95 % interval"), rows)
    print(f"\nfeatures in {result.extracting:.1f} s, probes in {result.fitting:.1f} s")
    print(f"few-shot intervals: over {draws} draws of the images; the others: over the images judged")
