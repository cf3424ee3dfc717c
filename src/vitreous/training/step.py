"""One step: gradients of a batch, in parts where memory is short; clipping; the optimisers; the average."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from vitreous.training.config import TrainingConfig
from vitreous.training.distributed import World
from vitreous.training.gradients import global_norm
from vitreous.training.joining import joined
from vitreous.training.kernels import attention_kernel
from vitreous.training.learner import Learner
from vitreous.training.objectives import Objective
from vitreous.training.sharpness import sharpened

Measured = list[tuple[int, dict[str, Tensor]]]


class LossOf(nn.Module):
    """An objective as a module: whatever it calls of the model, the gradients are joined."""

    def __init__(self, model: nn.Module, objective: Objective) -> None:
        super().__init__()
        self.model, self.objective = model, objective

    def forward(self, batch: Any) -> tuple[Tensor, Mapping[str, Tensor]]:
        return self.objective(self.model, batch)


class StepTaker:
    """Takes optimiser steps with one learner."""

    def __init__(
        self,
        learner: Learner,
        objective: Objective,
        config: TrainingConfig,
        *,
        device: torch.device,
        seed: int,
        world: World,
    ) -> None:
        self.learner, self.config = learner, config
        self.device, self.seed, self.world = device, seed, world
        self.parameters = [p for p in learner.model.parameters() if p.requires_grad]
        loss = LossOf(learner.model, objective)
        if config.compile and not learner.shards:
            loss.compile(dynamic=False)  # the step alone: the model itself stays as it is
        self.loss = joined(loss, learner, world)
        radius = config.optimiser.sam_radius
        self.compute = (
            self.gradient
            if radius is None
            else lambda batch: sharpened(partial(self.gradient, batch), self.parameters, radius)
        )
        learner.model.train()

    def __call__(self, batch: Any) -> bool:
        """One step. False where the gradient is not finite: the weights then stay, the step is counted."""
        learner = self.learner
        measured = self.compute(batch)
        norm = self.clip()
        finite = bool(torch.isfinite(norm))
        if finite:
            self.add(measured)
            for optimiser in learner.optimisers:
                optimiser.step()
            if learner.average:
                learner.average.update(learner.step)
        else:
            learner.skipped += 1
        learner.step += 1
        return finite

    def gradient(self, batch: Any) -> Measured:
        """Leaves the gradient of the batch's mean loss in `.grad`, the same for every number of parts.

        Returns how many pictures each part had and what was measured on it.
        """
        self.learner.model.zero_grad()
        self.draw_anew()
        measured = []
        parts = parts_of(batch, self.config.accumulate, self.device)
        for part, share, last in parts:
            # Around the backward pass, too, which computes checkpointed layers again.
            with attention_kernel(self.learner.model, self.device):
                with self.autocast(), self.loss.part(last=last):
                    loss, measures = self.loss(part)
                torch.autograd.backward(loss * share)
            measured.append((len(part[0]), {"loss": loss.detach(), **measures}))
        self.loss.ended()
        return measured

    def clip(self) -> Tensor:
        """The gradient's global norm, before it was clipped."""
        norm = global_norm([p.grad for p in self.parameters if p.grad is not None])
        limit = self.config.optimiser.clip_norm
        if limit is not None:
            torch.nn.utils.clip_grads_with_norm_(self.parameters, limit, norm)
        return norm

    def add(self, measured: Measured) -> None:
        """Add to the sums of the meter, on the device: nothing waits for it."""
        meter = self.learner.meter
        for pictures, means in measured:
            for name, mean in {**means, "pictures": torch.ones((), device=self.device)}.items():
                total = meter.setdefault(name, torch.zeros((), dtype=torch.float64, device=self.device))
                total.add_(mean, alpha=pictures)

    def draw_anew(self) -> None:
        """Dropout and stochastic depth draw from (seed, step, process): a resumed run draws what it would
        have drawn."""
        key = ((self.seed << 16) + self.world.rank << 40) + self.learner.step
        torch.default_generator.manual_seed(key % 2**63)
        if self.device.type == "cuda":
            torch.cuda.manual_seed(key % 2**63)

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        """bf16 around everything; what multiplies in 8 bits takes bf16 and gives it back."""
        if self.config.precision == "fp32":
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, dtype=torch.bfloat16)


def parts_of(batch: Any, count: int, device: torch.device) -> Iterator[tuple[Any, float, bool]]:
    """A batch (a NamedTuple of tensors) in at most `count` parts on the device: each with its share of the
    batch, and whether it is the last."""
    parts = list(zip(*(tensor.chunk(count) for tensor in batch), strict=True))
    for number, part in enumerate(parts, start=1):
        moved = type(batch)(*(tensor.to(device, non_blocking=True) for tensor in part))
        yield moved, len(part[0]) / len(batch[0]), number == len(parts)
