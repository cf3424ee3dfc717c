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

    def update(self, step: int) -> None:
        decay = min(self.decay, (1 + step) / (10 + step))
        draw_towards(self.model, self.following, 1 - decay)


@torch.no_grad()
def draw_towards(model: nn.Module, target: nn.Module, share: float) -> None:
    """w <- (1 - share) w + share t for every parameter of two models that are alike, and alike in shards."""
    kinds: dict[type[Tensor], tuple[list[Tensor], list[Tensor]]] = {}
    for mine, theirs in zip(model.parameters(), target.parameters(), strict=True):
        weights, targets = kinds.setdefault(type(mine), ([], []))
        weights.append(mine)
        targets.append(theirs)
    for weights, targets in kinds.values():  # shares, and what every process has whole
        torch._foreach_lerp_(weights, targets, share)
