"""Where a training computes: one object for the device, the processes, and what they decide of a run."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch

from vitreous.errors import is_installed
from vitreous.training.config import CommandConfig, TrainingConfig
from vitreous.training.distributed import ALONE, World
from vitreous.training.precision import WIDE, pick_precision

CPU = torch.device("cpu")
LONG_RUN = 1000  # steps, in which a compiled step makes up for its compilation


@dataclass(frozen=True)
class Place:
    """The device of this process, and the processes that train together. What a configuration leaves open is
    decided here: the precision, and whether a step is compiled."""

    device: torch.device = CPU
    world: World = ALONE

    def precision(self, config: CommandConfig) -> str:
        """Return the precision of a training: by the device, and by the model's width."""
        return pick_precision(config.training.precision, self.device, config.width or WIDE)

    def compiles(self, training: TrainingConfig, total: int, *, fixed_shapes: bool) -> bool:
        """Return whether a step is compiled: where nothing is set, on a GPU if that pays in so many steps."""
        if training.computed.compile is not None:
            return training.computed.compile
        pays = fixed_shapes and total >= LONG_RUN
        return self.device.type == "cuda" and pays and is_installed("triton")

    def built(self, training: TrainingConfig) -> AbstractContextManager[object]:
        """Return the context in which a model is built: of weights in shards only the first process has them,
        and shares them out."""
        elsewhere = training.computed.shard and self.world.size > 1 and not self.world.first
        return torch.device("meta") if elsewhere else nullcontext()


ON_CPU = Place()
