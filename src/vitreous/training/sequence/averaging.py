"""Checkpoint averaging (1706.03762, section 6.1: "averaging the last 5 checkpoints")."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn


class LastCheckpoints:
    """The mean of the weights at `count` points, `every` steps apart, the last one at the end of training.

    It stands where an exponential average (`training.average.Average`) can stand. The mean grows as the
    points come, so that no checkpoint is kept; before the first of the `count` points it is the newest
    checkpoint.
    """

    def __init__(self, model: nn.Module, *, total: int, count: int, every: int) -> None:
        self.total, self.count, self.every = total, count, every
        self.model = copy.deepcopy(model).eval().requires_grad_(False)
        self.averages: list[Tensor] = list(self.model.parameters())
        self.weights = [parameter.detach() for parameter in model.parameters()]

    @torch.no_grad()
    def update(self, step: int) -> None:
        """After step number `step`, counted from 0."""
        points_left, between = divmod(self.total - 1 - step, self.every)
        if between == 0:
            taken = max(self.count - 1 - points_left, 0)
            torch._foreach_lerp_(self.averages, self.weights, 1 / (taken + 1))
