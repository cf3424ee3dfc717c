"""A learner from where its run stands: its beginning, or the newest saved state."""

from __future__ import annotations

import torch
from torch import nn

from vitreous.training.config import TrainingConfig
from vitreous.training.distributed import World
from vitreous.training.float8 import into_float8
from vitreous.training.learner import Learner
from vitreous.training.sharding import shards_for
from vitreous.training.shares import SharedStates
from vitreous.training.state import States


def resumed(
    model: nn.Module, states: States, config: TrainingConfig, *, device: torch.device, world: World
) -> tuple[Learner, States | SharedStates]:
    """The learner, and where its next states go.

    Args:
        model: as it is at the beginning, on the CPU.
        states: those of the run.

    Raises:
        InputError: the processes, the precision and the optimiser that are wanted cannot work together.
    """
    if config.precision == "fp8":
        into_float8(model)
    shards = shards_for(model, config, world, device)
    learner = Learner.begin(model if shards else model.to(device), config, shards)
    saved = SharedStates(states, learner, world) if shards else states
    if state := saved.newest():
        learner.restore(state, first=world.first)
    return learner, saved
