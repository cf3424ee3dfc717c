"""Data parallelism: one process, replicas of the model (DDP), or weights in shards (FSDP2).

Sharding (ZeRO, 1910.02054; FSDP, 2304.11277) is PyTorch's `fully_shard`, applied to a model from outside.
The weights of an encoder layer are gathered when it is computed and freed after it; all other weights are one
more group, which stays gathered between the forward and the backward pass. What a process stores (weights,
gradients, optimizer state) is divided by the number of processes, or by that of a group
(`training.shard_group`), best the processes of one machine, with a copy in each group (hybrid sharding).

An objective can have two attributes for it: `gathered_at_once`, if it uses weights outside their layers, so
that all are one group; `kept_whole`, parameters that it changes itself in its forward pass and that every
process has in full.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from vitreous.errors import InputError
from vitreous.training.config import TrainingConfig
from vitreous.training.distributed import World

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

Measured = tuple[Tensor, Mapping[str, Tensor]]


@runtime_checkable
class ParallelLoss(Protocol):
    """The loss of a micro-batch, whose gradient ends up as the mean over all processes."""

    def __call__(self, part: Any, generator: torch.Generator) -> Measured: ...
    def micro_batch(self, *, last: bool) -> AbstractContextManager[Any]:
        """Wrap a micro-batch's forward pass: gradients are synchronized once a batch, with the last one."""
        ...

    def finish(self) -> None:
        """Complete the gradient of a batch."""


def parallel_loss(loss: nn.Module, shards: Shards | None, world: World) -> ParallelLoss:
    """Return the loss for one process, for replicas, or for weights in shards."""
    if shards:
        return ShardedLoss(loss, shards.root)
    return ReplicatedLoss(loss, world) if world.size > 1 else SingleLoss(loss)


class SingleLoss:
    """One process has nothing to synchronize."""

    def __init__(self, loss: nn.Module) -> None:
        self.loss = loss

    def __call__(self, part: Any, generator: torch.Generator) -> Measured:
        return self.loss(part, generator)

    def micro_batch(self, *, last: bool) -> AbstractContextManager[Any]:
        return nullcontext()

    def finish(self) -> None: ...


class ReplicatedLoss(SingleLoss):
    """Every process has the whole model: PyTorch's DistributedDataParallel.

    It waits for a gradient of every parameter, unless it searches the graph in each step for those that get
    none. The first step is therefore synchronized here and shows which it has to be: attention pooling gets
    no gradient from a masked objective, for example.

    Gradients are divided by the number of processes and then added up, in both. A sum of two does not depend
    on the order, so with two processes a resumed run is equal to the bit; with more it is equal up to the
    rounding of the sum, whose order depends on DDP's buckets.
    """

    def __init__(self, loss: nn.Module, world: World) -> None:
        super().__init__(loss)
        self.world = world

    def micro_batch(self, *, last: bool) -> AbstractContextManager[Any]:
        if isinstance(self.loss, DistributedDataParallel) and not last:
            return self.loss.no_sync()
        return nullcontext()

    def finish(self) -> None:
        if not isinstance(self.loss, DistributedDataParallel):
            learning = [p for p in self.loss.parameters() if p.requires_grad]
            some_unused = average_gradients(learning, self.world)
            # Buffers are constants of the architecture: sending them each step would be waste.
            buffers = [name for name, _ in self.loss.named_buffers()]
            ignore: Any = DistributedDataParallel._set_params_and_buffers_to_ignore_for_model
            ignore(self.loss, buffers)
            self.loss = DistributedDataParallel(self.loss, find_unused_parameters=some_unused)


class ShardedLoss(SingleLoss):
    """Every process has its shards of the model: gradients are reduced into them in the backward pass."""

    def __init__(self, loss: nn.Module, root: Any) -> None:
        super().__init__(loss)
        self.root = root

    def __call__(self, part: Any, generator: torch.Generator) -> Measured:
        return self.root(self.loss, part, generator)

    def micro_batch(self, *, last: bool) -> AbstractContextManager[Any]:
        self.root.set_requires_gradient_sync(last)
        self.root.set_is_last_backward(last)
        return nullcontext()


def average_gradients(parameters: list[nn.Parameter], world: World) -> bool:
    """Make `.grad` the mean over all processes. Return whether a parameter has a gradient in none of them."""
    device = parameters[0].device
    used = torch.tensor([p.grad is not None for p in parameters], dtype=torch.int32, device=device)
    dist.all_reduce(used, op=dist.ReduceOp.MAX)
    for parameter, somewhere in zip(parameters, used.tolist(), strict=True):
        if somewhere:
            gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            gradient.div_(world.size)  # before the sum, as DDP does
            dist.all_reduce(gradient)
            parameter.grad = gradient
    return not all(used.tolist())


def shards_for(model: nn.Module, config: TrainingConfig, world: World, device: torch.device) -> Shards | None:
    """Return the shards of a run that asks for them; None for one process, which stores everything anyway.

    Raises:
        InputError: the optimizer cannot work on shards of a weight, or the processes cannot be divided into
            groups.
    """
    if not config.shard or world.size == 1:
        return None
    if config.shard_group and config.optimizer.kind == "muon":
        raise InputError(
            "Muon orthogonalizes matrices in bf16, whose sums can differ between groups: leave out "
            "training.shard_group, or use another training.optimizer.kind"
        )
    if world.size % (config.shard_group or world.size):
        raise InputError(
            f"{world.size} processes cannot be divided into groups of {config.shard_group}: set "
            "training.shard_group to a divisor of their number"
        )
    if config.optimizer.kind == "adafactor":
        raise InputError(
            "Adafactor needs sums over rows and columns of a weight, of which each process has a shard: "
            "use another training.optimizer.kind, or leave out --shard"
        )
    return Shards(model, config, device)


class Shards:
    """Shards a learner's weights over all processes, and gathers them.

    Attributes:
        root: computes the model that learns, once it is sharded.
    """

    root: Any

    def __init__(self, model: nn.Module, config: TrainingConfig, device: torch.device) -> None:
        from torch.distributed.device_mesh import init_device_mesh

        self.architecture = without_weights(model)
        self.config, self.device = config, device
        processes = dist.get_world_size()
        group = config.shard_group or processes
        shape = (processes,) if group == processes else (processes // group, group)
        names = ("replicate", "shard")[-len(shape) :]
        self.mesh: DeviceMesh = init_device_mesh(device.type, shape, mesh_dim_names=names)

    def shard_model(self, model: nn.Module) -> Root:
        """Leave each process its shard of every weight, on its device. Optimizers are made after this, since
        the parameters are new ones. Return what computes the model."""
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        half = torch.bfloat16 if self.config.precision != "fp32" else None
        for layer in encoder_layers(model):
            if self.config.compile:
                layer.compile(dynamic=False)
            policy = MixedPrecisionPolicy(param_dtype=half, reduce_dtype=torch.float32)
            fully_shard(layer, mesh=self.mesh, mp_policy=policy)
        # Images keep their type: they are the targets of masked autoencoders, too.
        policy = MixedPrecisionPolicy(half, reduce_dtype=torch.float32, cast_forward_inputs=False)
        replicated = replicated_weights(model)
        for parameter in replicated:
            parameter.requires_grad_(False).data = parameter.data.to(self.device)
        root: Any = fully_shard(
            Root(model),
            mesh=self.mesh,
            mp_policy=policy,
            reshard_after_forward=False,
            ignored_params=replicated,
        )
        return root

    @torch.no_grad()
    def full_model(self, model: nn.Module) -> nn.Module:
        """Return an unsharded model with all of `model`'s weights, in every process; all of them call it."""
        from torch.distributed.tensor import DTensor

        weights = {
            name: parameter.full_tensor() if isinstance(parameter, DTensor) else parameter
            for name, parameter in model.named_parameters()
        }
        full = copy.deepcopy(self.architecture)
        full.load_state_dict({**full.state_dict(), **weights}, assign=True)
        return full.to(self.device)

    def shard(self, tensor: Tensor, like: Tensor) -> Tensor:
        """Return this process's shard of a tensor that every process has, laid out as the weight `like`."""
        from torch.distributed.tensor import DTensor, distribute_tensor

        assert isinstance(like, DTensor)
        return distribute_tensor(
            tensor.to(self.device), like.device_mesh, like.placements, src_data_rank=None
        )


class Root(nn.Module):
    """Around a model: weights that belong to no layer are gathered for what is computed in `forward`."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, compute: Callable[..., Any], *inputs: Any) -> Any:
        return compute(*inputs)


def encoder_layers(model: nn.Module) -> Iterator[nn.Module]:
    """Yield the layers of a model's encoder, and of a decoder that an objective adds."""
    if getattr(model, "gathered_at_once", False):
        return
    for module in list(model.modules()):
        if isinstance(blocks := getattr(module, "blocks", None), nn.ModuleList):
            yield from blocks


def replicated_weights(model: nn.Module) -> set[nn.Parameter]:
    """Return the weights that an objective needs whole in every process."""
    return set(getattr(model, "kept_whole", ()))


def without_weights(model: nn.Module) -> nn.Module:
    """Return the same modules with parameters on the meta device."""
    empty = {
        id(parameter): nn.Parameter(parameter.detach().to("meta"), requires_grad=parameter.requires_grad)
        for parameter in model.parameters()
    }
    return copy.deepcopy(model, empty)
