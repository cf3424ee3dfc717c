"""What a training would be, before its first step: `train --dry-run`. Nothing is written."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import torch

from vitreous.data.image_samples import Batch, pipeline
from vitreous.languages.terminal import said, said_time
from vitreous.results import Result, byte_size
from vitreous.rng import torch_generator
from vitreous.tasks.task import AnyPlan
from vitreous.training.learner import Learner
from vitreous.training.machine import Place, free_bytes, numerics, saved_bytes, state_bytes
from vitreous.training.run import with_training
from vitreous.training.step import LossOf, TrainStep

TIMED = 16  # the most examples of the two steps that are timed


@dataclass(frozen=True)
class Forecast(Result):
    """A training that has not begun, on this machine.

    Attributes:
        parts: how many examples each part of the data has.
        steps, epochs, seconds: of the whole training.
        step_seconds, reading_seconds: of a batch: computing, and reading it where the model waits for it.
        memory: bytes of weights, optimizer and activations.
    """

    task: str
    source: str
    parts: dict[str, int]
    model: str
    parameters: int
    batch_size: int
    steps: int
    epochs: float
    seconds: float
    step_seconds: float
    reading_seconds: float
    memory: int
    free_memory: int
    device: str
    precision: str
    notes: tuple[str, ...] = ()

    def text(self) -> str:
        """Return what it says, for people."""
        parts = ", ".join(f"{name} {count:,}" for name, count in self.parts.items())
        lines = [
            *self.notes,
            said("data: {source}: {parts}", source=self.source, parts=parts),
            said(
                "model: {model}, {parameters:,} parameters, task {task}",
                model=self.model,
                parameters=self.parameters,
                task=self.task,
            ),
            said(
                "steps: {steps:,} of {size} examples ({epochs:.3g} epochs)",
                steps=self.steps,
                size=self.batch_size,
                epochs=self.epochs,
            ),
            said(
                "time: about {time} on {device} in {precision}; each step takes {step} to compute and "
                "{reading} to read",
                time=said_time(self.seconds, estimated=True),
                device=self.device,
                precision=self.precision,
                step=said_time(self.step_seconds),
                reading=said_time(self.reading_seconds),
            ),
            said(
                "memory: about {memory} of {free} free",
                memory=byte_size(self.memory),
                free=byte_size(self.free_memory),
            ),
            said("nothing was trained or written"),
        ]
        return "\n".join(lines)


def forecast(plan: AnyPlan, place: Place, notes: tuple[str, ...] = ()) -> Forecast:
    """Return what a training that is planned would be. A batch is read, and two steps of some of it are taken
    with a model that is thrown away. Raises InputError: the data or the model do not work out."""
    task, data, device = plan.task, plan.data, place.device
    config = with_training(plan.config, precision=place.precision(plan.config))
    training = config.training
    loader = task.prepare(config, data, place).loader
    total = training.total_steps(loader.steps_per_epoch)

    began = time.monotonic()
    batch = next(iter(loader.epoch(0)))
    reading = time.monotonic() - began

    model = task.build(config, data, steps=total).to(device)
    few, count = first_examples(batch, TIMED)
    count = count or training.batch_size
    with numerics(device, training.precision, deterministic=False):
        learner = Learner.begin(model, training)
        step = TrainStep(learner, LossOf(model, task.objective(config, data)), training, seed=config.seed)
        learner.set_learning_rate(training, total, loader.steps_per_epoch)
        generator = torch_generator(config.seed, "forecast", device=device)
        kept = saved_bytes(model, few, lambda examples: step.loss(examples, generator))
        step(few)
        began = time.monotonic()
        step(few)
        step.outcome()
        computing = (time.monotonic() - began) * training.batch_size / count

    pieces = training.machine_config.grad_accum_steps
    # On a CPU, reading and computing share the cores.
    each_step = max(computing, reading) if device.type == "cuda" else computing + reading
    seconds, steps = total * each_step, total
    if training.minutes and (training.epochs is None or 60 * training.minutes < seconds):
        seconds = 60.0 * training.minutes
        steps = max(int(seconds / each_step), 1)
    preprocessing, augmentation = (
        getattr(owner, name, None) for owner, name in ((model, "preprocessing"), (config, "augmentation"))
    )
    if preprocessing and type(batch) is Batch:
        steps_of_images = pipeline(preprocessing, augmentation)
        notes = (*notes, said("images: {pipeline}", pipeline=steps_of_images))
    named = {name: getattr(data, name, None) for name in ("train", "validation", "test")}
    return Forecast(
        task=task.name,
        source=str(getattr(config, "source", plan.name)),
        parts={name: len(part) for name, part in named.items() if part is not None},
        model=str(getattr(config.model, "name", None) or config.recipe),
        parameters=sum(each.numel() for each in model.parameters()),
        batch_size=training.batch_size,
        steps=steps,
        epochs=steps / loader.steps_per_epoch,
        seconds=seconds,
        step_seconds=computing,
        reading_seconds=reading,
        memory=state_bytes(model) + kept * training.batch_size // (count * pieces),
        free_memory=free_bytes(device),
        device=str(device),
        precision=training.precision,
        notes=(*plan.reasons, *notes),
    )


def first_examples(batch: Any, most: int) -> tuple[Any, int]:
    """Return at most so many examples of a batch, and how many they are; 0: all of one that is
    not a tuple of tensors."""
    fields = getattr(batch, "_fields", ())
    counts = {len(each) for each in batch if torch.is_tensor(each) and each.ndim} if fields else set()
    if len(counts) != 1:
        return batch, 0
    found = [each[:most] if torch.is_tensor(each) and each.ndim else each for each in batch]
    return type(batch)(*found), min(most, *counts)
