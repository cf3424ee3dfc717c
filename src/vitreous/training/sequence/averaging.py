"""Checkpoint averaging (1706.03762, section 6.1: "averaging the last 5 checkpoints")."""

from __future__ import annotations

import copy

from torch import nn

from vitreous.training.learner import move_towards
from vitreous.training.parallel import Shards


class LastCheckpoints:
    """The mean of the weights at `count` points, `every` steps apart, the last one at the end of training.

    It takes the place of an exponential average. The mean grows as the points come, so that no checkpoint is
    stored; before the first of the `count` points it is the newest checkpoint.
    """

    def __init__(
        self, model: nn.Module, *, total: int, count: int, every: int, shards: Shards | None = None
    ) -> None:
        """Begins with `model`'s weights, which are not in shards yet."""
        self.total, self.count, self.every = total, count, every
        self.following = model
        self.model = copy.deepcopy(model).eval().requires_grad_(False)
        if shards:
            shards.shard_model(self.model)

    def update(self, step: int) -> None:
        """After step number `step`, counted from 0."""
        points_left, between = divmod(self.total - 1 - step, self.every)
        if between == 0:
            taken = max(self.count - 1 - points_left, 0)
            move_towards(self.model, self.following, 1 / (taken + 1))
