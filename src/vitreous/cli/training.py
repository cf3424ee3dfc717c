"""What the commands do alike that train: begin a run or go on with it, stop, tell the result."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, TypeVar

from vitreous.cli.options import print_json
from vitreous.errors import InputError, require_packages

if TYPE_CHECKING:
    import torch

    from vitreous.training.config import RunConfig
    from vitreous.training.distributed import World
    from vitreous.training.run import Run, RunDirectory

    AnyRun = TypeVar("AnyRun", bound=RunDirectory[Any])

Data = TypeVar("Data")
STOPPED = 130  # the exit code of what Ctrl-C has ended


def in_processes(
    start: Callable[[torch.device, World], tuple[AnyRun, Data]],
    carry_out: Callable[[AnyRun, Data, torch.device, World], dict[str, Any] | None],
    *,
    show: Callable[[dict[str, Any]], None],
    device: str,
    json: bool,
) -> int:
    """Train in all processes that torchrun has begun, and print the result in the first. The exit code.

    Args:
        start: a new run or one that goes on, and its data.
        carry_out: what came out; None in all processes but the first.
        show: prints a result for people.
    """
    require_packages("matplotlib", "sklearn", "tensorboard", extra="train", what="training")
    from vitreous.training.device import pick_device
    from vitreous.training.distributed import process_group
    from vitreous.training.trainer import Interrupted

    with process_group(pick_device(device)) as (world, here):
        run, data = start(here, world)
        try:
            result = carry_out(run, data, here, world)
        except Interrupted as stopped:
            say(how_to_go_on(stopped.step, run.config.command, run.path), world)
            return STOPPED
        except InputError:
            run.forget_failed_start()
            raise
    if result is not None:
        print_json(result) if json else show(result)
    return 0


def going_on(
    run: AnyRun, world: World, *, shard: bool | None, epochs: float | None = None, steps: int | None = None
) -> AnyRun:
    """A run that goes on: longer, where so many epochs or steps are asked for; with its weights in shards or
    whole."""
    from vitreous.training.length import extend_run

    if epochs is not None or steps is not None:
        run, schedule = extend_run(run, world, epochs=epochs, steps=steps)
        if schedule:
            say(schedule, world)
    return run.spread(shard)


def say(words: str, world: World) -> None:
    """Once, however many processes there are."""
    if world.first:
        print(words, file=sys.stderr)


def how_to_go_on(step: int, command: str, run: Path) -> str:
    """One sentence for a training that was stopped."""
    return (
        f"vitreous: stopped at step {step}, and the state is saved: go on with "
        f"vitreous {command} --resume {quote(str(run))}"
    )


def new_run(path: Path, config: RunConfig, reasons: Iterable[str], world: World) -> Run:
    """A new run directory. Why its recipe is what it is, is said."""
    from vitreous.training.run import Run

    run = Run.shared(path, config, world)
    for reason in reasons:
        say(f"recipe: {reason}", world)
    return run


def bad_files(run: RunDirectory[Any], *found: Mapping[str, str]) -> list[dict[str, str]]:
    """Images that could not be read in training and in judging: into the run's bad_files.txt, and as
    JSON."""
    from vitreous.data.dataset import BadFiles

    bad = BadFiles()
    for each in found:
        bad.reasons.update(each)
    bad.write(run.path / "bad_files.txt")
    return [{"path": path, "reason": reason} for path, reason in bad]


def print_places(result: Mapping[str, Any]) -> None:
    """What was left out, and where the run and its report are."""
    if result["bad_files"]:
        listed = f"{result['run']}/bad_files.txt"
        print(f"images that could not be read and were left out: {len(result['bad_files'])}, see {listed}")
    print(f"run     {result['run']}")
    if "report" in result:
        print(f"report  {result['report']}")
