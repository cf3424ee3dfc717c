"""`vitreous evaluate` and `probe`: how good a model is, and its frozen features."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Unpack

from cyclopts import Parameter

import vitreous as vt
from vitreous.api.options import EvaluateOptions, ProbeOptions
from vitreous.cli.options import FeatureModel, Json, TrainedModel, with_parsed_options
from vitreous.cli.printing import print_json, print_metrics, print_table, print_wrong
from vitreous.languages.terminal import said, word
from vitreous.results import percent


@with_parsed_options()
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
    found = vt.evaluate(run, data, **options)
    if os.environ.get("RANK", "0") != "0":  # of torchrun's processes the first one prints
        return 0
    if json:
        print_json(found.to_json())
    else:
        about = said(
            "{run} on {source}, {part}, in {seconds:.1f} s",
            run=run,
            source=found.source,
            part=word(found.part),
            seconds=found.seconds,
        )
        print(f"{about}\n")
        for each in found.findings():
            print(f"{word(each.severity)}: {each.sentence}")
        print_metrics(found)
        for table in found.tables():
            print(f"\n{table.title}" if table.title else "")
            print_table(table.headers, table.rows, words=table.words)
    return print_wrong(found.failed, found.damaged)


@with_parsed_options()
def probe(
    model: FeatureModel,
    data: Annotated[
        str | None,
        Parameter(
            help="a dataset in any form that vitreous train takes; by default that of the run, or else the "
            "digits"
        ),
    ] = None,
    /,
    *,
    json: Json = False,
    **options: Unpack[ProbeOptions],
) -> None:
    """Evaluate frozen features, and print the accuracy of each probe."""
    from vitreous.api.arguments import chosen_encoder, is_fresh

    model = str(chosen_encoder(model))
    if is_fresh(model):
        print(
            "vitreous:",
            said("{model} has fresh weights: these are the scores of untrained features", model=model),
            file=sys.stderr,
        )
    result = vt.probe(model, data, **options)
    if json:
        print_json({"model": model, **result.to_json()})
        return
    about = said(
        "{model} on {data}: {width} frozen features, {train} images to fit, {test} to evaluate",
        model=model,
        data=result.data,
        width=result.width,
        train=result.train_count,
        test=result.test_count,
    )
    print(f"{about}\n")
    rows = []
    for row in result.table():
        interval = said("{low} to {high}", low=percent(row["low"]), high=percent(row["high"]))
        others = (percent(row[name]) for name in result.baselines)
        rows.append((row["probe"], percent(row["accuracy"]), interval, *others))
    baselines = map(word, result.baselines)
    print_table((word("probe"), word("accuracy"), said("95% interval"), *baselines), rows)
    times = {"features": result.extracting, "probes": result.fitting}
    print(f"\n{said('features in {features:.1f} s, probes in {probes:.1f} s', **times)}")
    print(
        said(
            "few-shot intervals: over {draws} samples of the shots; the others: over the test images",
            draws=options.get("draws", 3),
        )
    )
