"""One step: gradients of a batch, in parts where memory is short; clipping; the optimizers; the average.

A step whose gradient is not finite changes nothing. Python has to know of it, and would wait for a GPU in
every step to ask, while the GPU then waits for Python. So where the optimizer can leave a step out by itself,
on the device, Python asks one step late, when the GPU has the next gradient to compute. What is counted,
averaged and saved is the same.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

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


class Taken(NamedTuple):
    """A step that is not counted yet: whether its gradient was finite, what was measured, its number."""

    finite: Callable[[], bool]
    measured: Measured
    step: int


class StepTaker:
    """Takes optimizer steps with one learner: `prepare`, then `take`. `outcome` counts what was taken.

    Attributes:
        late: whether to ask for the outcome of a step behind the next one's `prepare`, and only before
            somebody reads the learner directly behind `take`.
    """

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
        radius = config.optimizer.sam_radius
        self.compute = (
            self.gradient
            if radius is None
            else lambda batch: sharpened(partial(self.gradient, batch), self.parameters, radius)
        )
        learner.model.train()
        self.late = device.type == "cuda" and skips_by_itself(learner)
        self.taken: Taken | None = None

    def __call__(self, batch: Any) -> None:
        """A step, for whoever does not mind how it goes."""
        self.prepare(batch)
        self.outcome()
        self.take()

    def prepare(self, batch: Any) -> None:
        """The clipped gradient of a batch, in `.grad`."""
        self.measured = self.compute(batch)
        self.finite = torch.isfinite(self.clip())

    def take(self) -> None:
        """Change the weights by the gradient, if that is finite."""
        learner = self.learner
        read = on_its_way(self.finite) if self.late else partial(bool, bool(self.finite))
        if self.late:
            left_out = (~self.finite).float()
            for optimizer in learner.optimizers:
                optimizer.found_inf = left_out  # type: ignore[attr-defined]  # as torch.amp.GradScaler does
        if self.late or read():
            for optimizer in learner.optimizers:
                optimizer.step()
        self.taken = Taken(read, self.measured, learner.step)
        learner.step += 1

    def outcome(self) -> bool | None:
        """Whether the gradient of the step that was taken was finite, and the step counts; None if that was
        asked before."""
        if self.taken is None:
            return None
        learner, taken, self.taken = self.learner, self.taken, None
        if finite := taken.finite():
            self.add(taken.measured)
            if learner.average:
                learner.average.update(taken.step)
        else:
            learner.skipped += 1
        return finite

    def gradient(self, batch: Any) -> Measured:
        """Leaves the gradient of the batch's mean loss in `.grad`, the same for every number of parts.

        Returns how many images each part had and what was measured on it.
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
        limit = self.config.optimizer.clip_norm
        if limit is not None:
            torch.nn.utils.clip_grads_with_norm_(self.parameters, limit, norm)
        return norm

    def add(self, measured: Measured) -> None:
        """Add to the sums of the meter, on the device: nothing waits for it."""
        meter = self.learner.meter
        for images, means in measured:
            for name, mean in {**means, "images": torch.ones((), device=self.device)}.items():
                total = meter.setdefault(name, torch.zeros((), dtype=torch.float64, device=self.device))
                total.add_(mean, alpha=images)

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


def skips_by_itself(learner: Learner) -> bool:
    """Whether every optimizer of the learner leaves a step out where the device tells it to: fused AdamW of
    whole weights. (SGD's momentum would begin with whatever lay in memory, were the first step left out.)
    Whatever follows an optimizer's steps would follow those, too."""
    return not learner.shards and all(
        isinstance(optimizer, torch.optim.AdamW) and not optimizer._optimizer_step_post_hooks
        for optimizer in learner.optimizers
    )


def on_its_way(flag: Tensor) -> Callable[[], bool]:
    """What reads a flag later. It waits for the device only up to here, not for what the device is given
    meanwhile."""
    if flag.device.type != "cuda":
        return partial(bool, flag)
    copy = torch.empty((), dtype=flag.dtype, pin_memory=True)
    copy.copy_(flag, non_blocking=True)
    arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
    arrived.record(torch.cuda.current_stream(flag.device))

    def read() -> bool:
        arrived.synchronize()
        return bool(copy)

    return read


def parts_of(batch: Any, count: int, device: torch.device) -> Iterator[tuple[Any, float, bool]]:
    """A batch (a NamedTuple of tensors) in at most `count` parts on the device: each with its share of the
    batch, and whether it is the last."""
    parts = list(zip(*(tensor.chunk(count) for tensor in batch), strict=True))
    for number, part in enumerate(parts, start=1):
        moved = type(batch)(*(tensor.to(device, non_blocking=True) for tensor in part))
        yield moved, len(part[0]) / len(batch[0]), number == len(parts)
