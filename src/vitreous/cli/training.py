"""What the commands do alike that train: begin or resume a run in all processes, stop, print the result."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, TextIO

from vitreous.cli.options import print_json
from vitreous.cli.tables import print_table
from vitreous.errors import InputError

if TYPE_CHECKING:
    import torch

    from vitreous.evaluation.result import Evaluation
    from vitreous.tasks.running import RunResult, Started
    from vitreous.training.distributed import World

STOPPED = 130  # the exit code of what Ctrl-C has ended


def carry_out(
    start: Callable[[torch.device, World], Started],
    *,
    device: str,
    json: bool,
    after: Callable[[RunResult], None] | None = None,
    **options: Any,
) -> int:
    """Train in all processes that torchrun has begun, and print the result in the first.

    Args:
        start: makes or opens the run.
        after: prints what else the command has to say.
        options: of the evaluation.

    Returns:
        The exit code.
    """
    from vitreous.api.arguments import progress_bar
    from vitreous.errors import require_packages
    from vitreous.tasks.running import train_run
    from vitreous.training.callbacks import Display
    from vitreous.training.device import pick_device
    from vitreous.training.distributed import process_group
    from vitreous.training.trainer import Interrupted

    require_packages("matplotlib", "sklearn", "tensorboard", extra="train", what="training")
    warnings.showwarning = one_line
    with process_group(pick_device(device)) as (world, here):
        started = start(here, world)

        def tell(note: str) -> None:
            if world.first:
                print(note, file=sys.stderr)

        for note in started.notes:
            tell(note)
        callbacks = [Display(started.task.training_words)] if world.first else []
        try:
            with progress_bar("evaluating") as progress:
                result = train_run(
                    started,
                    device=here,
                    world=world,
                    callbacks=callbacks,
                    progress=progress,
                    tell=tell,
                    **options,
                )
        except Interrupted as stopped:
            if world.first:
                run = started.run
                print(
                    f"vitreous: stopped at step {stopped.step}, and the state is saved: resume with "
                    f"vitreous {run.config.command} --resume {quote(str(run.path))}",
                    file=sys.stderr,
                )
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
        rows.append((each["name"], f"{each['accuracy']:.2%}", f"{low:.2%} to {high:.2%}"))
    print_table((f"held-out {evaluation.of}: {evaluation.count}", "value", "95 % interval"), rows)


def check_minutes(minutes: float | None, epochs: float | None) -> None:
    if minutes is None:
        return
    if epochs is not None:
        raise InputError("--minutes and --epochs both say how long: give one of them")
    if not minutes > 0:
        raise InputError(f"--minutes {minutes:g} leaves no time to train: give a number above 0")


def one_line(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Print the project's own warnings as a sentence; those of libraries are not for users."""
    if "vitreous" in Path(filename).parts:
        print(f"vitreous: {message}", file=sys.stderr)
