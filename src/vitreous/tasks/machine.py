"""How a run is fitted to a machine: its precision, whether steps are compiled, micro-batches into the memory,
steps into a time; the last two are measured."""

from __future__ import annotations

import time
from contextlib import nullcontext
from itertools import count, islice
from typing import Any

import torch

from vitreous.errors import is_installed
from vitreous.tasks.task import Task
from vitreous.training.distributed import World
from vitreous.training.learner import Learner
from vitreous.training.memory import accumulation, activation_checkpointing, free_bytes
from vitreous.training.precision import WIDE, pick_precision
from vitreous.training.run import with_training
from vitreous.training.step import TrainStep

LONG_RUN = 1000  # steps, in which a compiled step makes up for its compilation
WARMING, TIMED = 3, 8  # steps that measure how long one takes


def with_precision(config: Any, device: torch.device) -> Any:
    """Return a configuration whose precision is decided: by the device, and by the model's width."""
    encoder = getattr(config.model, "encoder", config.model)  # a captioner has one
    width = getattr(encoder, "width", WIDE)
    return with_training(config, precision=pick_precision(config.training.precision, device, width))


def compiles(task: Task, config: Any, device: torch.device, total: int) -> bool:
    """Return whether a step of a run is compiled: where nothing is set, on a GPU if that pays."""
    if config.training.compile is not None:
        return bool(config.training.compile)
    return device.type == "cuda" and task.fixed_shapes and total >= LONG_RUN and is_installed("triton")


def micro_batches(task: Task, config: Any, data: Any, device: torch.device, world: World) -> int:
    """Return into how many micro-batches a batch is split so that it fits into the memory."""
    training = config.training
    model = task.build(config, data, steps=1).to(device)
    images = torch.zeros(2, config.model.channels, *config.model.image_size, device=device)
    with activation_checkpointing(model) if training.checkpointing else nullcontext():
        free = free_bytes(device) // (world.size if device.type == "cpu" else 1)
        return accumulation(model, images, world.share(training.batch_size), free)


def step_seconds(task: Task, config: Any, data: Any, device: torch.device, world: World) -> float:
    """Measure the seconds of one step, its batch included; the weights are discarded."""
    data = task.some_of(data, (WARMING + TIMED) * config.training.batch_size)
    material = task.prepare(config, data, device=device, world=world)
    learner = Learner.begin(task.build(config, data, steps=1).to(device), config.training)
    task.begin(learner)
    train_step = TrainStep(learner, task.objective(config, data), config.training, seed=config.seed)
    batches = (batch for epoch in count() for batch in material.loader.epoch(epoch))

    def seconds(steps: int) -> float:
        began = time.perf_counter()
        for batch in islice(batches, steps):
            train_step(batch)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter() - began

    seconds(WARMING)
    return seconds(TIMED) / TIMED
