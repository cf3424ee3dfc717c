"""What stands around the loop when a model learns in a run directory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

import torch
from torch import nn

from vitreous.training.bad_together import BadTogether
from vitreous.training.display import Display
from vitreous.training.distributed import World
from vitreous.training.journal import MetricsFile, TensorBoard, Tracker
from vitreous.training.learner import Learner
from vitreous.training.loop import Surroundings
from vitreous.training.run import RunDirectory
from vitreous.training.shares import SharedStates
from vitreous.training.state import States
from vitreous.training.trackers import open_tracker


@contextmanager
def surrounded(
    run: RunDirectory[Any],
    learner: Learner,
    states: States | SharedStates,
    bad: BadTogether,
    *,
    device: torch.device,
    display: Display | None,
    world: World,
    validate: Callable[[nn.Module], Mapping[str, float]] | None = None,
    validate_every: int = 1,
) -> Iterator[Surroundings]:
    """The surroundings that the run's configuration asks for. However training ends, the trackers are closed,
    and the images that could not be read are listed."""
    with ExitStack() as stack:
        surroundings = Surroundings(
            trackers=trackers(run, learner.step, stack) if world.first else (),
            states=states,
            display=stack.enter_context(display or nullcontext()),
            validate=validate,
            validate_every=validate_every,
            device=device,
            seed=run.config.seed,
            world=world,
            bad=bad,
        )
        stack.callback(bad.write, run.path)
        yield surroundings


def trackers(run: RunDirectory[Any], step: int, stack: ExitStack) -> tuple[Tracker, ...]:
    """Where the run's numbers go; each is closed with `stack`."""
    opened: list[Tracker] = [
        MetricsFile(run.path / "metrics.jsonl", step=step),
        TensorBoard(run.path, step=step),
    ]
    opened += [open_tracker(name, run.path.name, run.config) for name in run.config.training.track]
    for tracker in opened:
        stack.callback(tracker.close)
    return tuple(opened)
