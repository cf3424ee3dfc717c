"""A run directory while it is trained: its lock, its learner, its metrics, the finished model."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import torch
from torch import nn

from vitreous.errors import InputError
from vitreous.models.names import Model
from vitreous.training.callbacks import Callback, MetricsFile, TensorBoard, Tracker
from vitreous.training.distributed import ALONE, World
from vitreous.training.initial_model import merge_lora, starting_model
from vitreous.training.learner import AverageWeight, Learner
from vitreous.training.parallel import shards_for
from vitreous.training.precision import from_float8, to_float8
from vitreous.training.run import Run


def run_callbacks(run: Run, step: int) -> list[Callback]:
    """Open what records the metrics of a run from a step on."""
    trackers = [Tracker(name, run.path.name, run.config) for name in run.config.training.track]
    return [MetricsFile(run.path / "metrics.jsonl", step=step), TensorBoard(run.path, step=step), *trackers]


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes from training in a folder, where the file system has locks.

    Raises:
        InputError: another process trains in it.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InputError(
                    f"another process is training in {folder}: wait until it has ended, or stop it"
                ) from None
        yield
    finally:
        os.close(descriptor)


def resume_learner(
    run: Run,
    model: nn.Module,
    *,
    device: torch.device,
    world: World = ALONE,
    averaging: AverageWeight | None = None,
) -> Learner:
    """Return a run's learner at its newest checkpoint, or at its beginning.

    Args:
        model: at the beginning, on the CPU.

    Raises:
        InputError: the processes, the precision and the optimizer cannot be combined.
    """
    config = run.config.training
    if config.precision == "fp8":
        to_float8(model)
    shards = shards_for(model, config, world, device)
    learner = Learner.begin(model if shards else model.to(device), config, shards, averaging)
    run.states.restore(learner, world)
    return learner


def model_so_far(run: Run, classes: Sequence[str]) -> Model:
    """Return the model of a run's newest checkpoint, on the CPU; the initial one where nothing is saved."""
    run = run.with_training(precision="fp32")  # fp8 needs its own GPU
    model = starting_model(run.config, classes)
    return finished(resume_learner(run, model, device=torch.device("cpu")).result)  # type: ignore[return-value]


def finished(model: nn.Module) -> nn.Module:
    """Return a trained model ready for use: LoRA merged, plain layers, everything trainable."""
    merge_lora(model.eval())
    from_float8(model)
    return model.requires_grad_(True)
