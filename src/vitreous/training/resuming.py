"""A learner from where its run stands: its beginning, or the newest saved state; and what it became."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import nn

from vitreous.models.names import Model
from vitreous.training.average import Averaging
from vitreous.training.config import TrainingConfig
from vitreous.training.distributed import World
from vitreous.training.float8 import into_float8, out_of_float8
from vitreous.training.learner import Learner
from vitreous.training.lora import add_lora, merge_lora
from vitreous.training.run import Run
from vitreous.training.sharding import Shards, shards_for
from vitreous.training.shares import SharedStates
from vitreous.training.starting import starting_model
from vitreous.training.state import States


def learner_of(
    run: Run, classes: Sequence[str], device: torch.device, world: World
) -> tuple[Learner, States | SharedStates]:
    """The learner of a run that learns `classes`, and where its next states go."""
    config = run.config
    model = starting_model(config, classes)
    if config.training.lora.rank:
        add_lora(model, config.training.lora)
    return resumed(model, run.states, config.training, device=device, world=world)


def resumed(
    model: nn.Module,
    states: States,
    config: TrainingConfig,
    *,
    device: torch.device,
    world: World,
    averaging: Callable[[nn.Module, Shards | None], Averaging] | None = None,
) -> tuple[Learner, States | SharedStates]:
    """The learner, and where its next states go.

    Args:
        model: as it is at the beginning, on the CPU.
        states: those of the run.
        averaging: makes an average of the model, where `config` asks for none.

    Raises:
        InputError: the processes, the precision and the optimizer that are wanted cannot work together.
    """
    if config.precision == "fp8":
        into_float8(model)
    shards = shards_for(model, config, world, device)
    model = model if shards else model.to(device)
    average = averaging(model, shards) if averaging else None
    learner = Learner.begin(model, config, shards, average)
    saved = SharedStates(states, learner, world) if shards else states
    if state := saved.newest():
        learner.restore(state, first=world.first)
    return learner, saved


def saved(run: Run, learner: Learner, world: World) -> Model:
    """The learner's result, which the first process has written into the run's model/."""
    model = finished(learner)
    if world.first:
        run.save_model(model)
    return model


def model_so_far(run: Run, classes: Sequence[str]) -> Model:
    """What the newest saved state of a run would give, on the CPU; its beginning where nothing is saved."""
    training = run.config.training.model_copy(update={"precision": "fp32"})  # fp8 needs its own GPU
    here = Run(run.path, run.config.model_copy(update={"training": training}))
    learner, _ = learner_of(here, classes, torch.device("cpu"), World())
    return finished(learner)


def finished(learner: Learner) -> Model:
    """The learner's result, ready for use: with plain weights."""
    model = learner.result.eval()
    merge_lora(model)
    out_of_float8(model)
    return model.requires_grad_(True)  # type: ignore[return-value]
