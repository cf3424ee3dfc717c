"""What the commands do alike that train: print the result of a run, or how to resume it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from vitreous.cli.options import print_json
from vitreous.cli.tables import percent, print_table

if TYPE_CHECKING:
    from vitreous.api.run import Run
    from vitreous.evaluation.result import Evaluation
    from vitreous.tasks.results import RunResult

STOPPED = 130  # the exit code of what Ctrl-C has ended


def print_run(
    train: Callable[[], Run], *, json: bool, after: Callable[[RunResult], None] | None = None
) -> int:
    """Train, and print the result in the first of the processes that torchrun has started.

    Args:
        train: returns the run.
        after: prints what else the command has to say.

    Returns:
        The exit code.
    """
    from vitreous.errors import require_packages

    require_packages("matplotlib", "sklearn", "tensorboard", extra="train", what="training")
    from vitreous.training.trainer import Interrupted

    try:
        result = train().result
    except Interrupted as stopped:
        for note in getattr(stopped, "__notes__", ()):  # in the first process
            print(f"vitreous: {note}", file=sys.stderr)
        return STOPPED
    if result is None:
        return 0
    if json:
        print_json(result.to_json())
    else:
        show(result)
        if after:
            after(result)
    return 0


def show(result: RunResult) -> None:
    """Print what came out, for people."""
    from vitreous.tasks import task_named

    told = result.to_json()
    if result.evaluation:
        print_metrics(result.evaluation, told.get("baselines", ()))
    for line in task_named(result.task).summary(told):
        print(line)
    waiting = f" ({result.waiting:.1%} of them waiting for data)" if result.waiting >= 0.001 else ""
    print(
        f"\ntrained in {result.seconds:.1f} s{waiting}, {result.train_count} examples, "
        f"{result.parameters:,} parameters"
    )
    if result.bad:
        listed = f"{result.run.path}/bad_files.txt"
        print(f"images that could not be read and were left out: {len(result.bad)}, see {listed}")
    print(f"run     {result.run.path}")
    if result.report:
        print(f"report  {result.report}")


def print_metrics(evaluation: Evaluation, baselines: Sequence[Mapping[str, Any]] = ()) -> None:
    """Print the metrics of held-out examples, and what simpler methods get."""
    rows = []
    for metric in evaluation.metrics.values():
        low, high = (metric.text(each) for each in metric.interval or (float("nan"),) * 2)
        rows.append((metric.label, metric.text(), f"{low} to {high}" if metric.interval else ""))
    for each in baselines:
        low, high = each["interval"]
        rows.append((each["name"], percent(each["accuracy"]), f"{percent(low)} to {percent(high)}"))
    print_table((f"held-out {evaluation.of}: {evaluation.count}", "value", "95 % interval"), rows)
