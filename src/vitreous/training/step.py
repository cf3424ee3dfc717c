"""One step: gradients of a batch, in parts where memory is short; clipping; the optimisers; the average."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from vitreous.training.config import TrainingConfig
from vitreous.training.learner import Learner
from vitreous.training.objectives import Objective


class StepTaker:
    """Takes optimiser steps with one learner."""

    def __init__(
        self, learner: Learner, objective: Objective, config: TrainingConfig, device: torch.device, seed: int
    ) -> None:
        self.learner, self.objective, self.config = learner, objective, config
        self.device, self.seed = device, seed
        self.parameters = [p for p in learner.model.parameters() if p.requires_grad]
        learner.model.train()

    def __call__(self, batch: Any) -> bool:
        """One step. False where the gradient is not finite: the weights then stay, the step is counted."""
        learner = self.learner
        measured = self.gradient(batch)
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

    def gradient(self, batch: Any) -> list[tuple[int, dict[str, Tensor]]]:
        """Leaves the gradient of the batch's mean loss in `.grad`, the same for every number of parts.

        Returns how many pictures each part had and what was measured on it.
        """
        self.learner.model.zero_grad()
        self.draw_anew()
        measured = []
        for part, share in parts_of(batch, self.config.accumulate, self.device):
            with self.autocast():
                loss, measures = self.objective(self.learner.model, part)
            torch.autograd.backward(loss * share)
            measured.append((len(part[0]), {"loss": loss.detach(), **measures}))
        return measured

    def clip(self) -> Tensor:
        """The gradient's global norm, before it was clipped."""
        gradients = [p.grad for p in self.parameters if p.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients)
        limit = self.config.optimiser.clip_norm
        if limit is not None:
            torch.nn.utils.clip_grads_with_norm_(self.parameters, limit, norm)
        return norm

    def add(self, measured: list[tuple[int, dict[str, Tensor]]]) -> None:
        """Add to the sums of the meter, on the device: nothing waits for it."""
        meter = self.learner.meter
        for pictures, means in measured:
            for name, mean in {**means, "pictures": torch.ones((), device=self.device)}.items():
                total = meter.setdefault(name, torch.zeros((), dtype=torch.float64, device=self.device))
                total.add_(mean, alpha=pictures)

    def draw_anew(self) -> None:
        """Dropout and stochastic depth draw from (seed, step): a resumed run draws what it would have."""
        key = (self.seed << 32) + self.learner.step
        torch.default_generator.manual_seed(key)
        if self.device.type == "cuda":
            torch.cuda.manual_seed(key)

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        if self.config.precision == "bf16":
            return torch.autocast(self.device.type, dtype=torch.bfloat16)
        return contextlib.nullcontext()


def parts_of(batch: Any, count: int, device: torch.device) -> Iterator[tuple[Any, float]]:
    """A batch (a NamedTuple of tensors) in `count` parts on the device, each with its share of it."""
    if count == 1:
        yield type(batch)(*(tensor.to(device, non_blocking=True) for tensor in batch)), 1.0
        return
    for parts in zip(*(tensor.chunk(count) for tensor in batch), strict=True):
        moved = type(batch)(*(tensor.to(device, non_blocking=True) for tensor in parts))
        yield moved, len(parts[0]) / len(batch[0])
