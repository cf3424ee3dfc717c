"""An exponential moving average of the weights (Polyak averaging)."""

from __future__ import annotations

import copy
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from vitreous.training.sharding import Shards


@runtime_checkable
class Averaging(Protocol):
    """Weights that follow those that learn: `model` is the result so far, `update` is called after each
    step."""

    @property
    def model(self) -> nn.Module: ...
    def update(self, step: int) -> None: ...


class Average:
    """Averaged weights: a <- d a + (1 - d) w after every step.

    The decay d grows from 0.1 to its set value as (1 + t) / (10 + t), so that a short run does not remember
    its random beginning. Models here have no buffers that learn, so parameters are all there is.
    """

    def __init__(self, model: nn.Module, decay: float, *, shards: Shards | None = None) -> None:
        """Begins with `model`'s weights, which are not in shards yet."""
        self.decay = decay
        self.following = model
        self.model = copy.deepcopy(model).eval().requires_grad_(False)
        if shards:
            shards.spread(self.model)
        self.averages = filled(self.model)

    @torch.no_grad()
    def update(self, step: int) -> None:
        decay = min(self.decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(self.averages, filled(self.following), 1 - decay)


def filled(model: nn.Module) -> list[Tensor]:
    """The parameters that hold numbers: a model without prefix tokens has one of no size."""
    return [parameter for parameter in model.parameters() if parameter.numel()]
