"""One session of training in a run directory: from its newest checkpoint to its model, for every task."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from typing import Any, NamedTuple

import torch
from torch import nn

from vitreous.data.dataset import BadFiles
from vitreous.models.names import Model
from vitreous.training.callbacks import Callback, MetricsFile, Row, TensorBoard, open_tracker
from vitreous.training.checkpointer import Checkpointer
from vitreous.training.config import TrainingConfig
from vitreous.training.distributed import BadFileSync, World
from vitreous.training.initial_model import merge_lora, trainable_model
from vitreous.training.learner import Averaging, Learner
from vitreous.training.memory import activation_checkpointing
from vitreous.training.parallel import Shards, shards_for
from vitreous.training.precision import from_float8, to_float8
from vitreous.training.run import Run
from vitreous.training.step import Objective
from vitreous.training.trainer import Loader, NotFinite, Trainer

MakeAverage = Callable[[nn.Module, Shards | None], Averaging]


class Session(NamedTuple):
    """What a session of training gave.

    Attributes:
        model: to use and to save, averaged weights where there are some; whole, unwrapped, in every process.
        seconds: of training, over all sessions.
        waiting: the share of this session's time in which training waited for data.
        bad: images that could not be read and were left out, with the reason.
    """

    model: Any
    seconds: float
    waiting: float
    bad: Mapping[str, str]


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
    world: World | None = None,
    callbacks: Sequence[Callback | Callable[[Row], object]] = (),
    validate: Callable[[nn.Module], Row] | None = None,
    validate_every: int = 1,
    make_average: MakeAverage | None = None,
    on_resume: Callable[[Learner], object] | None = None,
) -> Session:
    """Train a run's model from its newest checkpoint, or from the beginning, and save it.

    Args:
        model: at the beginning, on the CPU.
        save: writes a model into the run; called in the first process, also where the loss does not stay
            finite, with the last good weights.
        bad: where the loader notes images that it cannot read.
        images: the number of training images.
        world: the processes that train together; only the first one writes into the run.
        validate: measures a model on images that it does not learn from, after every `validate_every`-th
            epoch.
        make_average: of the model's weights, where the configuration asks for none.
        on_resume: is called with the learner before training.

    Raises:
        Interrupted: Ctrl-C or SIGTERM came, and the state is saved.
        NotFinite: the loss stays non-finite; the last good weights are saved.
        InputError: the processes, the precision and the optimizer cannot be combined; a file cannot be
            written; too many images cannot be read.
    """
    config, world = run.config.training, world or World()
    learner = resume_learner(model, run.states, config, device=device, world=world, make_average=make_average)
    if on_resume:
        on_resume(learner)
    before, sync = learner.seconds, BadFileSync(bad, images, world)

    def finish(trained: nn.Module) -> nn.Module:
        result = finished(trained)
        if world.first:
            save(result)
        return result

    with ExitStack() as stack:
        stack.callback(sync.write, run.path)
        stack.enter_context(activation_checkpointing(model) if config.checkpointing else nullcontext())
        trainer = Trainer(
            learner,
            loader,
            objective,
            config,
            device=device,
            seed=run.config.seed,
            world=world,
            checkpointer=run.states,
            callbacks=[*(run_callbacks(run, learner.step) if world.first else ()), *callbacks],
            validate=validate,
            validate_every=validate_every,
            bad=sync,
        )
        try:
            trainer.fit()
        except NotFinite as error:
            # The mean of the last checkpoints is still to come.
            finish(learner.full_model(learner.model) if make_average else learner.result)
            raise NotFinite(f"{error}; they are in {run.path / 'model'}") from None
    spent = learner.seconds - before
    waiting = trainer.waited / spent if spent else 0.0
    return Session(finish(learner.result), learner.seconds, waiting, dict(bad.reasons))


def run_callbacks(run: Run, step: int) -> list[Callback]:
    """Open what records the metrics of a run."""
    trackers = [open_tracker(name, run.path.name, run.config) for name in run.config.training.track]
    return [MetricsFile(run.path / "metrics.jsonl", step=step), TensorBoard(run.path, step=step), *trackers]


def resume_learner(
    model: nn.Module,
    checkpointer: Checkpointer,
    config: TrainingConfig,
    *,
    device: torch.device,
    world: World,
    make_average: MakeAverage | None = None,
) -> Learner:
    """Return a learner at its newest checkpoint, or at its beginning.

    Args:
        model: at the beginning, on the CPU.

    Raises:
        InputError: the processes, the precision and the optimizer cannot be combined.
    """
    if config.precision == "fp8":
        to_float8(model)
    shards = shards_for(model, config, world, device)
    model = model if shards else model.to(device)
    average = make_average(model, shards) if make_average else None
    learner = Learner.begin(model, config, shards, average)
    checkpointer.restore(learner, world)
    return learner


def model_so_far(run: Run, classes: Sequence[str]) -> Model:
    """Return the model of a run's newest checkpoint, on the CPU; the initial one where nothing is saved."""
    training = run.config.training.model_copy(update={"precision": "fp32"})  # fp8 needs its own GPU
    model = trainable_model(run.config, classes)
    learner = resume_learner(model, run.states, training, device=torch.device("cpu"), world=World())
    return finished(learner.result)  # type: ignore[return-value]


def finished(model: nn.Module) -> nn.Module:
    """Return a trained model ready for use: LoRA merged, plain layers, everything trainable."""
    merge_lora(model.eval())
    from_float8(model)
    return model.requires_grad_(True)
