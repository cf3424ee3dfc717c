"""One session of training in a run directory: from its newest checkpoint to its model, for every task."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from torch import nn

from vitreous.data.dataset import BadFiles
from vitreous.errors import InputError
from vitreous.models.names import Model
from vitreous.training.callbacks import Callback, MetricsFile, Row, TensorBoard, Tracker
from vitreous.training.distributed import ALONE, BadFileSync, World
from vitreous.training.initial_model import merge_lora, starting_model
from vitreous.training.learner import AverageWeight, Learner
from vitreous.training.memory import activation_checkpointing
from vitreous.training.parallel import shards_for
from vitreous.training.precision import from_float8, to_float8
from vitreous.training.run import Run
from vitreous.training.step import Objective
from vitreous.training.trainer import Loader, NotFinite, Trainer


def train_run(
    run: Run,
    model: nn.Module,
    loader: Loader,
    objective: Objective,
    *,
    save: Callable[[Any], object],
    bad: BadFiles,
    images: int,
    device: torch.device,
    world: World = ALONE,
    callbacks: Sequence[Callback | Callable[[Row], object]] = (),
    validate: Callable[[nn.Module], Row] | None = None,
    validate_every: int = 1,
    averaging: AverageWeight | None = None,
    on_resume: Callable[[Learner], object] | None = None,
) -> tuple[Any, float, float]:
    """Train a run's model from its newest checkpoint, or from the beginning, and save it.

    Args:
        model: at the beginning, on the CPU.
        save: writes a model into the run, in the first process; the last good one where the loss becomes
            non-finite.
        bad, images: where the loader notes images that it cannot read, and the number of training images.
        world: the processes that train together; only the first one writes into the run.
        validate: measures a model after every `validate_every`-th epoch.
        averaging: of the weights, where the configuration asks for none.
        on_resume: is called with the learner before training.

    Returns:
        The model to use, with averaged weights where there are some: whole, unwrapped, in every process;
        the seconds of training, over all sessions; the share of this session's in which it waited for data.

    Raises:
        Interrupted: Ctrl-C or SIGTERM came, and the state is saved.
        NotFinite: the loss stays non-finite; the last good weights are saved.
        InputError: the processes, the precision and the optimizer cannot be combined; a file cannot be
            written; too many images cannot be read.
    """
    config, sync = run.config.training, BadFileSync(bad, images, world)

    def finish(trained: nn.Module) -> nn.Module:
        result = finished(trained)
        if world.first:
            save(result)
        return result

    with ExitStack() as stack:
        if world.first:
            stack.enter_context(locked(run.path))
        learner = resume_learner(run, model, device=device, world=world, averaging=averaging)
        if on_resume:
            on_resume(learner)
        step, before = learner.step, learner.seconds
        if world.first:
            trackers = [Tracker(name, run.path.name, run.config) for name in config.track]
            metrics = MetricsFile(run.path / "metrics.jsonl", step=step)
            callbacks = [metrics, TensorBoard(run.path, step=step), *trackers, *callbacks]
        stack.callback(sync.write, run.path)
        if config.checkpointing:
            stack.enter_context(activation_checkpointing(model))
        trainer = Trainer(
            learner,
            loader,
            objective,
            config,
            seed=run.config.seed,
            world=world,
            checkpointer=run.states,
            callbacks=callbacks,
            validate=validate,
            validate_every=validate_every,
            bad=sync,
        )
        try:
            trainer.fit()
        except NotFinite as error:
            # The mean of the last checkpoints is still to come.
            finish(learner.full_model(learner.model) if averaging else learner.result)
            raise NotFinite(f"{error}; they are in {run.path / 'model'}") from None
        spent = learner.seconds - before
        return finish(learner.result), learner.seconds, trainer.waited / spent if spent else 0.0


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
    """Return a run's learner at its newest checkpoint, or at its beginning; see `train_run`."""
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
