"""Weights in shards: each process keeps its share of every one (ZeRO, 1910.02054; FSDP, 2304.11277).

PyTorch's `fully_shard` (FSDP2), applied to a model from outside. The weights of an encoder layer are gathered
when it is computed and let go behind it; those of everything else are one more group, which stays gathered
between the forward and the backward pass. What a process keeps between steps, weights, gradients and the
optimizer's memory, is divided by the number of processes.

Or by the number of those in a group (`training.shard_group`): shares then go only between its processes,
which are best those of one machine, and gradients between the groups, each of which has a copy (hybrid
sharding).

An objective can have wishes of its own, as attributes: `gathered_at_once`, where it uses weights outside the
layers that they belong to, so that all of them are one group; `kept_whole`, parameters that it changes itself
while it is computed, and that every process has.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from vitreous.errors import InputError
from vitreous.training.config import TrainingConfig
from vitreous.training.distributed import World

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


def shards_for(model: nn.Module, config: TrainingConfig, world: World, device: torch.device) -> Shards | None:
    """The shards of a run that wants them; None for one process, which keeps everything anyway.

    Raises:
        InputError: the optimizer cannot work on shares of a weight, or the processes cannot be cut into
            groups.
    """
    if not config.shard or world.size == 1:
        return None
    if config.shard_group and config.optimizer.kind == "muon":
        raise InputError(
            "Muon makes matrices orthogonal in sums of bf16, which can come out otherwise in each group: "
            "leave out training.shard_group, or use another training.optimizer.kind"
        )
    if world.size % (config.shard_group or world.size):
        raise InputError(
            f"{world.size} processes cannot be cut into groups of {config.shard_group}: set "
            "training.shard_group to a divisor of their number"
        )
    if config.optimizer.kind == "adafactor":
        raise InputError(
            "Adafactor needs sums over rows and columns of a weight, of which each process has a share: "
            "use another training.optimizer.kind, or leave out --shard"
        )
    return Shards(model, config, device)


class Shards:
    """Spreads a learner's weights over all processes, and gathers them.

    Attributes:
        root: what the learning model is computed in, once it is spread.
    """

    root: Any

    def __init__(self, model: nn.Module, config: TrainingConfig, device: torch.device) -> None:
        from torch.distributed.device_mesh import init_device_mesh

        self.plain = without_weights(model)
        self.config, self.device = config, device
        processes = torch.distributed.get_world_size()
        group = config.shard_group or processes
        shape = (processes,) if group == processes else (processes // group, group)
        names = ("replicate", "shard")[-len(shape) :]
        self.mesh: DeviceMesh = init_device_mesh(device.type, shape, mesh_dim_names=names)

    def spread(self, model: nn.Module) -> Root:
        """Leaves each process its share of every weight, on its device. Optimizers are made behind this: the
        parameters are new ones. Returns what the model has to be computed in."""
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        half = torch.bfloat16 if self.config.precision != "fp32" else None
        for layer in layers(model):
            if self.config.compile:
                layer.compile(dynamic=False)
            policy = MixedPrecisionPolicy(param_dtype=half, reduce_dtype=torch.float32)
            fully_shard(layer, mesh=self.mesh, mp_policy=policy)
        # Images stay as they are: they are the targets of masked autoencoders, too.
        policy = MixedPrecisionPolicy(half, reduce_dtype=torch.float32, cast_forward_inputs=False)
        whole = weights_kept_whole(model)
        for parameter in whole:
            parameter.requires_grad_(False).data = parameter.data.to(self.device)
        root: Any = fully_shard(
            Root(model),
            mesh=self.mesh,
            mp_policy=policy,
            reshard_after_forward=False,
            ignored_params=whole,
        )
        return root

    @torch.no_grad()
    def whole(self, model: nn.Module) -> nn.Module:
        """A plain model with all of `model`'s weights, in every process; all of them must ask for it."""
        from torch.distributed.tensor import DTensor

        weights = {
            name: parameter.full_tensor() if isinstance(parameter, DTensor) else parameter
            for name, parameter in model.named_parameters()
        }
        plain = copy.deepcopy(self.plain)
        plain.load_state_dict({**plain.state_dict(), **weights}, assign=True)
        return plain.to(self.device)

    def room(self, dtype: torch.dtype, like: Tensor) -> Tensor:
        """An empty tensor whose shares lie as those of the weight `like`."""
        from torch.distributed.tensor import DTensor, empty

        assert isinstance(like, DTensor)
        return empty(like.shape, dtype=dtype, device_mesh=like.device_mesh, placements=like.placements)

    def share(self, tensor: Tensor, like: Tensor) -> Tensor:
        """This process's share of a tensor that every process has, laid out as the weight `like`."""
        from torch.distributed.tensor import DTensor, distribute_tensor

        assert isinstance(like, DTensor)
        here = tensor.to(self.device)
        return distribute_tensor(here, like.device_mesh, like.placements, src_data_rank=None)


class Root(nn.Module):
    """Around a model: weights that belong to no layer are gathered for whatever is computed in `forward`."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, compute: Callable[[Any], Any], part: Any) -> Any:
        return compute(part)


def layers(model: nn.Module) -> Iterator[nn.Module]:
    """The encoder layers of a model, and those of a decoder that an objective puts behind it."""
    if getattr(model, "gathered_at_once", False):
        return
    for module in list(model.modules()):
        if isinstance(blocks := getattr(module, "blocks", None), nn.ModuleList):
            yield from blocks


def weights_kept_whole(model: nn.Module) -> set[nn.Parameter]:
    """The weights that the objective needs whole in every process."""
    return set(getattr(model, "kept_whole", ()))


def without_weights(model: nn.Module) -> nn.Module:
    """The same modules; their parameters have shapes and nothing in them."""
    empty = {
        id(parameter): nn.Parameter(parameter.detach().to("meta"), requires_grad=parameter.requires_grad)
        for parameter in model.parameters()
    }
    return copy.deepcopy(model, empty)
