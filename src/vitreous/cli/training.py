"""`vitreous train` and `pretrain`: start or resume a run, and print what it gave."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, Unpack, cast

from cyclopts import Parameter

import vitreous as vt
from vitreous.cli.options import Json, with_parsed_options
from vitreous.cli.printing import print_json, print_metrics, print_named
from vitreous.extensions import tasks
from vitreous.languages.terminal import CallError, said, word
from vitreous.results import percent
from vitreous.training.options import PretrainOptions, TrainOptions

if TYPE_CHECKING:
    from vitreous.api.run import Run
    from vitreous.tasks.forecast import Forecast
    from vitreous.tasks.task import RunResult

RESUMED = {"task", "epochs", "steps", "minutes", "shard", "device", "language"}  # go with --resume
Resume = Annotated[
    Path | None, Parameter(name="--resume", help="a run directory: resume from its last checkpoint")
]
MovedData = Annotated[
    str | None,
    Parameter(name="--data", metavar="DATA", help="with --resume: where the run's data is now"),
]


def train_or_resume(
    train: Callable[..., Run],
    data: str | None,
    options: Mapping[str, Any],
    resume: Path | None,
    moved_data: str | None,
    *,
    command: str,
    json: bool,
    resumed: Collection[str] = RESUMED,
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
        if data is not None or not options.keys() <= {*resumed}:
            raise CallError(
                "--resume continues with the run's own configuration: give no other settings (if the "
                "data has moved, use --data)"
            )
        start = partial(vt.Run(resume).resume, command=command, data=moved_data, **options)
    elif moved_data is not None:
        raise CallError("--data is for --resume: a new run takes its data as an argument")
    else:
        start = partial(train, data, **options)
    if options.get("dry_run"):
        forecast = cast("Forecast", start())
        print_json(forecast.to_json()) if json else print(forecast.text())
        return 0
    result = start().result
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
    for each in result.findings:  # first: a number below its own baseline is not read alone
        if each not in result.said_before:
            print(f"{word(each.severity)}: {each.sentence}")
    if result.evaluation:
        print_metrics(result.evaluation, result.extra.get("baselines", ()))
    if result.candidates:
        count = result.answering_count
        print(said("the model is the best of {count} candidates: {name}", count=count, name=result.title))
    if "objective" in result.extra:
        objective, loss = result.extra["objective"], result.extra["loss"]
        print(said("{objective}: loss {loss:.4f} in training", objective=objective, loss=loss))
    print()
    if result.seconds:  # none where what answers has no steps
        time = said("{seconds:.1f} s", seconds=result.seconds)
        if result.waiting >= 0.001:
            time = said("{time} ({share} of them waiting for data)", time=time, share=percent(result.waiting))
        print(
            said(
                "trained in {time}, {count} examples, {parameters:,} parameters",
                time=time,
                count=result.train_count,
                parameters=result.parameters,
            )
        )
    if result.bad:
        print(
            said(
                "images that could not be read and were left out: {count}, see {path}",
                count=len(result.bad),
                path=f"{result.run.path}/bad_files.txt",
            )
        )
    print_named("run", result.run.path)
    if result.report:
        print_named("report", result.report)
    for page in sorted(result.run.path.glob("*.html")):
        if page != result.report:
            print_named("page", page)


DATA_HELP = (
    "digits (the default), a folder with a sub-folder for each class, a manifest (CSV, TSV, Parquet), "
    "shards, cifar10:PATH, hf:NAME"
)


@with_parsed_options()
def train(
    data: Annotated[
        str | None,
        Parameter(
            help="; ".join((DATA_HELP, *(task.data_help for task in tasks().values() if task.data_help)))
        ),
    ] = None,
    /,
    *,
    resume: Resume = None,
    moved_data: MovedData = None,
    json: Json = False,
    **options: Unpack[TrainOptions],
) -> int:
    """Train or fine-tune a model on images."""
    return train_or_resume(vt.train, data, options, resume, moved_data, command="train", json=json)


@with_parsed_options()
def pretrain(
    data: Annotated[
        str | None, Parameter(help="digits, any folder of images, a manifest, shards, cifar10:PATH")
    ] = None,
    /,
    *,
    resume: Resume = None,
    moved_data: MovedData = None,
    json: Json = False,
    **options: Unpack[PretrainOptions],
) -> int:
    """Pre-train an encoder on images alone. Labels, where there are any, are not used."""

    def print_next(result: RunResult) -> None:
        print_named("next", f"vitreous train DATA --init {quote(str(result.run.path))}")

    return train_or_resume(
        vt.pretrain, data, options, resume, moved_data, command="pretrain", json=json, after=print_next
    )
