"""What the commands do alike that train: start or resume, and print the result."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

import vitreous as vt
from vitreous.cli.printing import print_json, print_metrics
from vitreous.errors import InputError
from vitreous.results import percent

if TYPE_CHECKING:
    from vitreous.api.run import Run
    from vitreous.tasks.running import RunResult

STOPPED = 130  # the exit code of what Ctrl-C has ended
RESUMED = {"task", "epochs", "steps", "shard", "device", "beams", "length_penalty"}  # go with --resume

Resume = Annotated[
    Path | None, Parameter(name="--resume", help="a run directory: resume from its last checkpoint")
]


def train_or_resume(
    train: Callable[..., Run],
    data: str | None,
    options: Mapping[str, Any],
    resume: Path | None,
    *,
    command: str,
    json: bool,
    after: Callable[[RunResult], None] | None = None,
) -> int:
    """Train, and print the result in the first of the processes that torchrun has started.

    Args:
        train: the function of the Python API.
        after: prints what else the command has to say.

    Returns:
        The exit code.
    """
    if resume:
        if data is not None or not options.keys() <= RESUMED:
            raise InputError("--resume goes on with the run's own configuration: give no other settings")
        start = partial(vt.Run(resume).resume, command=command, **options)
    else:
        start = partial(train, data, **options)
    from vitreous.training.trainer import Interrupted

    try:
        result = start().result
    except Interrupted as stopped:
        for note in getattr(stopped, "__notes__", ()):  # in the first process
            print(f"vitreous: {note}", file=sys.stderr)
        return STOPPED
    if result is None:
        return 0
    if json:
        print_json(result.to_json())
        return 0
    print_result(result)
    if after:
        after(result)
    return 0


def print_result(result: RunResult) -> None:
    """Print what came out, for people."""
    from vitreous.tasks import task_named

    numbers = result.to_json()
    if result.evaluation:
        print_metrics(result.evaluation, numbers.get("baselines", ()))
    for line in task_named(result.task).summary(numbers):
        print(line)
    waiting = f" ({percent(result.waiting)} of them waiting for data)" if result.waiting >= 0.001 else ""
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
