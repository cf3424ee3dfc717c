"""Weights in shards: data parallelism for models that do not fit into one process (FSDP2).

Sharding (ZeRO, 1910.02054; FSDP, 2304.11277) is PyTorch's `fully_shard`, applied to a model from outside. The
weights of an encoder layer are gathered when it is computed and freed after it; all other weights are one
more group, which stays gathered between the forward and the backward pass. What a process stores is divided
by the number of processes, or by that of a group (`training.processes.shard=N`), with a copy in each (hybrid
sharding).

An objective can have two attributes for it: `gathered_at_once`, if it uses weights outside their layers, so
that all are one group; `kept_whole`, parameters that it changes itself, which every process has in full.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from vitreous.errors import InputError
from vitreous.training.config import TrainingConfig
from vitreous.training.distributed import World

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


def shards_for(model: nn.Module, config: TrainingConfig, world: World, device: torch.device) -> Shards | None:
    """Return the shards of a run that asks for them; None for one process, which stores everything anyway.
    Raises InputError: the optimizer cannot work on shards, or the processes cannot be divided into groups."""
    if not config.shard or world.size == 1:
        return None
    if groups_of(config) and config.optimizer.kind == "muon":
        raise InputError(
            "Muon orthogonalizes matrices in bf16, whose sums can differ between groups: leave out "
            "training.processes.shard=N, or use another training.optimizer.kind"
        )
    if world.size % (groups_of(config) or world.size):
        raise InputError(
            f"{world.size} processes cannot be divided into groups of {config.shard}: set "
            "training.processes.shard to a divisor of their number"
        )
    if config.optimizer.kind == "adafactor":
        raise InputError(
            "Adafactor needs sums over rows and columns of a weight, of which each process has a shard: "
            "use another training.optimizer.kind, or leave out `shard`"
        )
    return Shards(model, config, device)


def groups_of(config: TrainingConfig) -> int | None:
    """Return over how many processes one copy of the weights is sharded; None: over all of them."""
    return None if isinstance(config.shard, bool) else config.shard


class Shards:
    """Shards a learner's weights over all processes, and gathers them."""

    root: Any  # computes the model that learns, once it is sharded

    def __init__(self, model: nn.Module, config: TrainingConfig, device: torch.device) -> None:
        from torch.distributed.device_mesh import init_device_mesh

        meta = {
            id(parameter): nn.Parameter(parameter.detach().to("meta"), parameter.requires_grad)
            for parameter in model.parameters()
        }
        self.architecture = copy.deepcopy(model, meta)  # without weights
        self.config, self.device = config, device
        processes = dist.get_world_size()
        group = groups_of(config) or processes
        shape = (processes,) if group == processes else (processes // group, group)
        names = ("replicate", "shard")[-len(shape) :]
        self.mesh: DeviceMesh = init_device_mesh(device.type, shape, mesh_dim_names=names)

    @torch.no_grad()
    def fill(self, model: nn.Module, weights: Mapping[str, Tensor]) -> None:
        """Give all processes their shards of the first one's weights, one weight after the other: only the
        first one has had the whole model.

        Args:
            weights: of the model in the first process, before it was sharded.
        """
        if next(model.parameters()).is_meta:
            model.to_empty(device=self.device)
        for name, tensor in (*model.named_parameters(), *model.named_buffers()):
            whole = torch.empty(tensor.shape, dtype=tensor.dtype, device=self.device)
            if name in weights:
                whole.copy_(weights[name])
            dist.broadcast(whole, src=0)
            tensor.copy_(sharded_as(tensor, whole))
        for mine, theirs in zip(self.architecture.modules(), model.modules(), strict=True):
            mine._buffers = dict(theirs._buffers)

    def shard_model(self, model: nn.Module) -> Root:
        """Leave each process its shard of every weight, on its device. Optimizers are made after this, since
        the parameters are new ones. Return what computes the model."""
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        half = torch.bfloat16 if self.config.precision in ("bf16", "fp8") else None
        for layer in () if getattr(model, "gathered_at_once", False) else encoder_layers(model):
            if self.config.compile:
                layer.forward = torch.compile(layer.forward, dynamic=False)
            policy = MixedPrecisionPolicy(param_dtype=half, reduce_dtype=torch.float32)
            fully_shard(layer, mesh=self.mesh, mp_policy=policy)
        # Images keep their type: they are the targets of masked autoencoders, too.
        policy = MixedPrecisionPolicy(half, reduce_dtype=torch.float32, cast_forward_inputs=False)
        replicated = set(getattr(model, "kept_whole", ()))
        for parameter in replicated:
            parameter.requires_grad_(False)
            if not parameter.is_meta:
                parameter.data = parameter.data.to(self.device)
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
        weights = {name: whole_tensor(parameter) for name, parameter in model.named_parameters()}
        full = copy.deepcopy(self.architecture)
        full.load_state_dict({**full.state_dict(), **weights}, assign=True)
        return full.to(self.device)


def whole_tensor(tensor: Tensor) -> Tensor:
    """Return a tensor, gathered where it is sharded: all processes call this."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def sharded_as(weight: Any, whole: Tensor) -> Tensor:
    """Return this process's share of a tensor of which each process has all, where `weight` is sharded."""
    if not hasattr(weight, "full_tensor"):
        return whole
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(whole, weight.device_mesh, weight.placements, src_data_rank=None)


class Root(nn.Module):
    """Around a model: weights that belong to no layer are gathered for what is computed in `forward`."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, compute: Callable[..., object], *inputs: object) -> Any:
        return compute(*inputs)


def encoder_layers(model: nn.Module) -> Iterator[nn.Module]:
    """Yield the layers of a model's encoder, and of a decoder that an objective adds."""
    for module in list(model.modules()):
        if isinstance(blocks := getattr(module, "blocks", None), nn.ModuleList):
            yield from blocks
