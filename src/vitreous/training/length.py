"""The length of a run: as many steps as fit into a time budget, and a new length for a run that has begun."""

from __future__ import annotations

import time
from itertools import count, islice
from typing import Any, TypeVar

import torch

from vitreous.checkpoints.whole_files import write_text
from vitreous.data.dataset import Splits, Subset, sampled
from vitreous.errors import InputError
from vitreous.training.callbacks import read_metrics
from vitreous.training.classifier import objective_of, train_loader
from vitreous.training.config import RunConfig, TrainingConfig
from vitreous.training.distributed import World
from vitreous.training.initial_model import starting_model
from vitreous.training.learner import Learner
from vitreous.training.optimizers import learning_rate
from vitreous.training.run import RunDirectory
from vitreous.training.settings import to_toml
from vitreous.training.step import TrainStep

AnyRun = TypeVar("AnyRun", bound=RunDirectory[Any])
WARM_UP, TIMED = 3, 8  # steps


def fit_to_minutes(
    config: RunConfig, splits: Splits, *, minutes: float, device: torch.device, world: World
) -> RunConfig:
    """Return the configuration with as many steps as `minutes` hold on this machine at its present load.

    What comes before and after the steps is not counted: opening the data, measuring the model, the report.
    """
    seconds = world.broadcast(step_seconds(config, splits, device, world))
    steps = max(1, round(60 * minutes / seconds))
    return config.model_copy(update={"training": config.training.model_copy(update={"steps": steps})})


def step_seconds(config: RunConfig, splits: Splits, device: torch.device, world: World) -> float:
    """Measure the seconds of a step, its batch included, on some of the images. The weights are discarded."""
    few = min(len(splits.train), (WARM_UP + TIMED) * config.training.batch_size)
    images = Subset(splits.train, torch.tensor(sampled(splits.train, few)).numpy())
    some = splits._replace(train=images)
    learner = Learner.begin(starting_model(config, splits.train.classes).to(device), config.training)
    objective = objective_of(config, some)
    train_step = TrainStep(
        learner, objective, config.training, device=device, seed=config.seed, world=World()
    )
    loader = train_loader(config, some, device, world)
    batches = (batch for epoch in count() for batch in loader.epoch(epoch))
    for batch in islice(batches, WARM_UP):
        train_step(batch)
    synchronize(device)
    began = time.perf_counter()
    for batch in islice(batches, TIMED):
        train_step(batch)
    synchronize(device)
    return (time.perf_counter() - began) / TIMED


def synchronize(device: torch.device) -> None:
    """Wait until the device has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def extend_run(
    run: AnyRun, world: World, *, epochs: float | None = None, steps: int | None = None
) -> tuple[AnyRun, str]:
    """Return the same run with another total of epochs or steps, which config.toml then has, and a sentence
    about its learning rate, where enough is known for it.

    From its present step on, the rate follows the curve of the new length: it jumps there, unless the curve
    does not depend on the length. Earlier steps were taken at the rates of the old one, so the result is not
    that of a run of this length from the beginning.

    Raises:
        InputError: the run is as far already.
    """
    config: Any = run.config
    old: TrainingConfig = config.training
    changes = {"steps": steps} if steps is not None else {"epochs": epochs, "steps": None}
    new = old.model_copy(update=changes)
    done = (run.states.steps() or [0])[-1]
    per_epoch = steps_per_epoch(run)
    at_least = per_epoch or done + 1  # a run without metrics was stopped in its first epoch
    if new.total_steps(at_least) <= done or (epochs is not None and epochs <= 0):
        wanted = f"--steps {steps}" if steps is not None else f"--epochs {epochs:g}"
        raise InputError(
            f"{wanted} is the total, and {run.path} is already at step {done}: pass a larger number"
        )
    extended = type(run)(run.path, config.model_copy(update={"training": new}))
    if world.first:
        write_text(run.path / "config.toml", to_toml(extended.config))
    return extended, rate_change(old, new, done, per_epoch) if per_epoch else ""


def steps_per_epoch(run: RunDirectory[Any]) -> int | None:
    """Return what the run's metrics say; None for a run that was stopped before it wrote any."""
    rows = [row for row in read_metrics(run.path / "metrics.jsonl") if row["epoch"]]
    return round(rows[-1]["step"] / rows[-1]["epoch"]) if rows else None


def rate_change(old: TrainingConfig, new: TrainingConfig, done: int, per_epoch: int) -> str:
    """Say how the learning rate changes."""
    before, after = (learning_rate(done, each.total_steps(per_epoch), each.schedule) for each in (old, new))
    return (
        f"schedule: from step {done} on the learning rate follows the curve of the new length: it is "
        f"{after:.1%} of its peak there instead of {before:.1%}"
    )
