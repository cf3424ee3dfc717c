"""How the gradients of several processes become one."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol, runtime_checkable

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from vitreous.training.distributed import World
from vitreous.training.learner import Learner

Measured = tuple[Tensor, Mapping[str, Tensor]]


@runtime_checkable
class Joining(Protocol):
    """The loss of a part of a batch, whose gradient ends up as the mean over all processes."""

    def __call__(self, part: Any) -> Measured: ...
    def part(self, *, last: bool) -> AbstractContextManager[Any]:
        """Stands around a part's forward pass: the processes join once for each batch, with its last part."""
        ...

    def ended(self) -> None:
        """Called when the gradient of a batch is complete."""


def joined(loss: nn.Module, learner: Learner, world: World) -> Joining:
    """The way for so many processes, each with all of the learner's model or a share of it."""
    if learner.shards:
        return InShards(loss, learner.shards.root)
    return Replicas(loss, world) if world.size > 1 else Alone(loss)


class Alone:
    """One process has nobody to join."""

    def __init__(self, loss: nn.Module) -> None:
        self.loss = loss

    def __call__(self, part: Any) -> Measured:
        return self.loss(part)

    def part(self, *, last: bool) -> AbstractContextManager[Any]:
        return nullcontext()

    def ended(self) -> None: ...


class Replicas:
    """Every process has the whole model: PyTorch's DistributedDataParallel.

    It waits for a gradient of every parameter, unless it looks in each step for those that get none, which
    costs a walk through the graph. The first step is therefore joined by hand, and shows which it has to be:
    attention pooling gets no gradient from a masked objective, for example.
    """

    def __init__(self, loss: nn.Module, world: World) -> None:
        self.loss, self.world = loss, world

    def __call__(self, part: Any) -> Measured:
        return self.loss(part)

    def part(self, *, last: bool) -> AbstractContextManager[Any]:
        if isinstance(self.loss, DistributedDataParallel) and not last:
            return self.loss.no_sync()
        return nullcontext()

    def ended(self) -> None:
        if not isinstance(self.loss, DistributedDataParallel):
            learning = [p for p in self.loss.parameters() if p.requires_grad]
            some_unused = average_gradients(learning, self.world)
            self.loss = DistributedDataParallel(self.loss, find_unused_parameters=some_unused)


class InShards:
    """Every process has its share of the model: gradients are summed into the shares as the backward pass
    goes on."""

    def __init__(self, loss: nn.Module, root: Any) -> None:
        self.loss, self.root = loss, root

    def __call__(self, part: Any) -> Measured:
        return self.root(self.loss, part)

    def part(self, *, last: bool) -> AbstractContextManager[Any]:
        self.root.set_requires_gradient_sync(last)
        self.root.set_is_last_backward(last)
        return nullcontext()

    def ended(self) -> None: ...


def average_gradients(parameters: list[nn.Parameter], world: World) -> bool:
    """`.grad` becomes the mean over all processes. Whether a parameter has a gradient in none of them."""
    device = parameters[0].device
    used = torch.tensor([p.grad is not None for p in parameters], dtype=torch.int32, device=device)
    dist.all_reduce(used, op=dist.ReduceOp.MAX)
    for parameter, somewhere in zip(parameters, used.tolist(), strict=True):
        if somewhere:
            gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            dist.all_reduce(gradient)
            parameter.grad = gradient.div_(world.size)
    return not all(used.tolist())
