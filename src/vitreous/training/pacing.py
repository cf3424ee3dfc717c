"""How many steps fit into a time that the user has: measured with a few of them, before the run begins."""

from __future__ import annotations

import time
from itertools import count, islice

import torch

from vitreous.data.dataset import Splits, Subset, sampled
from vitreous.training.classifier import objective_of, train_loader
from vitreous.training.config import RunConfig
from vitreous.training.distributed import World
from vitreous.training.learner import Learner
from vitreous.training.starting import starting_model
from vitreous.training.step import StepTaker

WARMING, TIMED = 3, 8  # steps


def paced(
    config: RunConfig, splits: Splits, *, minutes: float, device: torch.device, world: World
) -> RunConfig:
    """The same run with as many steps as `minutes` hold on this machine, as busy as it is now.

    What comes before and behind the steps is not counted: opening the data, measuring the model, the report.
    """
    mine = step_seconds(config, splits, device, world)
    steps = max(1, round(60 * minutes / float(world.told(str(mine)))))
    return config.model_copy(update={"training": config.training.model_copy(update={"steps": steps})})


def step_seconds(config: RunConfig, splits: Splits, device: torch.device, world: World) -> float:
    """Seconds of one step, its batch included, on some of the images. The weights are thrown away."""
    few = min(len(splits.train), (WARMING + TIMED) * config.training.batch_size)
    images = Subset(splits.train, torch.tensor(sampled(splits.train, few)).numpy())
    some = splits._replace(train=images)
    learner = Learner.begin(starting_model(config, splits.train.classes).to(device), config.training)
    objective = objective_of(config, some)
    take_step = StepTaker(learner, objective, config.training, device=device, seed=config.seed, world=World())
    loader = train_loader(config, some, device, world)
    batches = (batch for epoch in count() for batch in loader.epoch(epoch))
    for batch in islice(batches, WARMING):
        take_step(batch)
    finish(device)
    began = time.perf_counter()
    for batch in islice(batches, TIMED):
        take_step(batch)
    finish(device)
    return (time.perf_counter() - began) / TIMED


def finish(device: torch.device) -> None:
    """Wait until the device has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
