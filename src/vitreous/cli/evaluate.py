"""`vitreous evaluate RUN [DATA]`."""

from __future__ import annotations

from typing import Unpack

import vitreous as vt
from vitreous.cli.options import Json, LoadingOptions
from vitreous.cli.printing import print_json, print_metrics, print_table


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
    evaluation = found.evaluation
    print(f"{run} on {found.source}, {found.part}, in {evaluation.seconds:.1f} s\n")
    print_metrics(evaluation)
    for table in evaluation.tables():
        print(f"\n{table.title}" if table.title else "")
        print_table(table.headers, table.rows, words=table.words)
    for path, reason in evaluation.failed.items():
        print(f"could not be decoded: {path}: {reason}")
