"""Several processes, launched by torchrun: their ranks, what they exchange, and weights in shards (FSDP2)."""

from __future__ import annotations

import copy
import datetime
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from uuid import NAMESPACE_OID, uuid4, uuid5

import torch
import torch.distributed as dist
from torch import Tensor, nn

from vitreous.data.loading import BadFiles
from vitreous.errors import InputError, Param
from vitreous.outside import number_of_launcher
from vitreous.training.config import TrainingConfig

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

Value = TypeVar("Value")
WAITING = 10.0  # minutes that processes wait for each other, unless configured
MEETING = 600.0  # seconds within which all processes have to begin
ROLL_CALL = 3.0  # seconds, after which a process that does not say that it lives is taken for lost
# What gloo's errors say about another process, besides those of its own type.
LOST = ("Connection closed by peer", "Connection reset by peer", "Broken pipe", "Timed out waiting")


class World(NamedTuple):
    """This process among all that train together."""

    rank: int = 0
    size: int = 1
    store: Any = None  # of torchrun, which all of them see
    timeout: datetime.timedelta | None = None  # how long they wait for each other
    group: Any = None  # of PyTorch, over which they communicate; None: the default one

    def new_group(self) -> World:
        """Return the same processes, to communicate from another thread; all of them call this together."""
        if self.size == 1:
            return self
        return self._replace(group=dist.new_group(backend="gloo", timeout=self.timeout))

    @property
    def first(self) -> bool:
        """Whether this process is the one that writes and prints."""
        return self.rank == 0

    def share(self, batch_size: int) -> int:
        """Return the images of a batch that each process gets. Raises InputError: the batch cannot be divided
        equally."""
        if batch_size % self.size:
            raise InputError(
                f"a batch of {batch_size} cannot be divided among {self.size} processes: set "
                f"training.batch_size to a multiple of {self.size}"
            )
        return batch_size // self.size

    def all_reduce_sum(self, sums: Mapping[str, Tensor], device: torch.device) -> dict[str, Tensor]:
        """Return each sum over all processes, in the order of their ranks, on a device. A process that has
        none, since all its steps were skipped or it has just resumed, takes part as well."""
        if self.size == 1:
            return dict(sums)
        totals: dict[str, float] = {}
        for found in self.gather({name: float(value) for name, value in sums.items()}):
            for name, value in found.items():
                totals[name] = totals.get(name, 0.0) + value
        return {n: torch.full((), value, dtype=torch.float64, device=device) for n, value in totals.items()}

    def add_up(self, counts: Tensor) -> Tensor:
        """Return the sums of whole numbers over all processes, on the CPU."""
        counts = counts.cpu()
        if self.size > 1:
            dist.all_reduce(counts, group=self.group)
        return counts

    def any(self, flags: tuple[bool, ...]) -> tuple[bool, ...]:
        """Return for each flag whether any process has it: exchanged by the CPUs, no GPU is waited for."""
        if self.size == 1:
            return flags
        raised = torch.tensor(flags, dtype=torch.int32)
        dist.all_reduce(raised, op=dist.ReduceOp.MAX, group=self.group)
        return tuple(bool(flag) for flag in raised.tolist())

    def broadcast(self, value: Value) -> Value:
        """Return what the first process has."""
        if self.size == 1:
            return value
        values: list[Any] = [value]
        dist.broadcast_object_list(values, src=0, group=self.group)
        first: Value = values[0]
        return first

    def gather(self, value: Value) -> list[Value]:
        """Return what each process has, in the order of their ranks."""
        if self.size == 1:
            return [value]
        found: list[Any] = [None] * self.size
        dist.all_gather_object(found, value, group=self.group)
        return found


ALONE = World()


class BadFileSync:
    """Images that cannot be read, of all processes: each finds those of its own part of the data.

    Args:
        bad: where this process's loader notes what it cannot read; what the others found is added there, so
            that the loader counts it, too.
        images: the number of training images, over all processes.
    """

    def __init__(self, bad: BadFiles, images: int, world: World) -> None:
        self.bad, self.images, self.world = bad, images, world
        self.shared = 0

    @property
    def pending(self) -> bool:
        """Whether there are some that the other processes do not know of."""
        return len(self.bad) > self.shared

    def exchange(self) -> None:
        """Make all known to every process; all of them call this together. Raises InputError: they are more
        than 1%, with the list; in every process."""
        together = BadFiles()
        # A copy is gathered, since threads may add to it meanwhile.
        for each in self.world.gather(self.bad.copy()):
            together.merge(each)
        self.bad.merge(together)
        self.shared = len(together)
        self.bad.check(self.images)

    def write(self, run: Path) -> None:
        """Write the list into the run. A process that stopped alone, before the exchange, has its own."""
        if self.world.first:
            self.bad.write(run / "bad_files.txt")
        elif self.pending:
            self.bad.write(run / f"bad_files-{self.world.rank}.txt")


def first_value(key: str, text: str) -> tuple[str, bool]:
    """Return the first value of `key` since torchrun was launched, and whether it is of processes before
    these: its store outlives those that it restarts, because one died or another machine came or went.
    Without torchrun it is `text`."""
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return text, os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"
    mine = f"{uuid4()} {text}"
    first = str(torchrun_store().compare_set(f"vitreous/{key}", "", mine), "utf-8")
    return first.partition(" ")[2], first != mine


def torchrun_store() -> Any:
    address, port = os.environ.get("MASTER_ADDR", "localhost"), number_of_launcher("MASTER_PORT")
    return dist.TCPStore(address, port, is_master=False)  # type: ignore[attr-defined]


def rendezvous(rank: int, size: int) -> Any:
    """Return a store of these processes alone: torchrun's may still have the addresses of processes that it
    has restarted, to which these would connect, and wait forever."""
    store = torchrun_store()
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return store
    return dist.PrefixStore(shared_name(store, rank, size), store)  # type: ignore[attr-defined]


def shared_name(store: Any, rank: int, size: int, seconds: float = MEETING) -> str:
    """Return a name that these processes share, and none of those before them: machines do not count their
    restarts alike. The first process lists who is there, each agrees to a list that it is in, and when all
    have, the first says so. Raises InputError: not all have come in so many seconds."""
    mine, end = str(uuid4()), time.monotonic() + seconds
    store.set(f"vitreous/here/{rank}", mine)
    while time.monotonic() < end:
        if rank == 0 and store.check(here := [f"vitreous/here/{each}" for each in range(size)]):
            store.set("vitreous/list", b" ".join(store.multi_get(here)))
        known = str(store.get("vitreous/list"), "utf-8") if store.check(["vitreous/list"]) else ""
        if len(names := known.split()) == size and names[rank] == mine:
            name = f"vitreous/{uuid5(NAMESPACE_OID, known)}"
            store.set(f"{name}/{rank}", "agreed")
            if rank == 0 and store.check([f"{name}/{each}" for each in range(size)]):
                store.set(name, "all have agreed")
            if store.check([name]):
                return name
        time.sleep(0.05)
    raise InputError(
        f"not all of the {size} processes joined within {seconds / 60:g} minutes: check the others"
    )


class Terminated(BaseException):
    """SIGTERM came while no step was taken; the trainer has a handler of its own."""


def terminate(number: int, frame: FrameType | None) -> None:
    raise Terminated


@contextmanager
def process_group(device: torch.device, minutes: float = WAITING) -> Iterator[tuple[World, torch.device]]:
    """Join the processes of torchrun, each with its device; without torchrun there is one. minutes: how long
    they wait for each other."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        yield ALONE, device
        return
    if device.type == "cuda":
        own, gpus = number_of_launcher("LOCAL_RANK"), torch.cuda.device_count()
        if own >= gpus or device.index is not None:
            raise InputError(
                f"torchrun gives each process its own GPU, and this machine has {gpus}: "
                f"use {Param('device')} cuda and --nproc-per-node {gpus}"
            )
        device = torch.device("cuda", own)
        # The device is chosen before anything is on it.
        torch.cuda.set_device(device)
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    rank, size = number_of_launcher("RANK"), number_of_launcher("WORLD_SIZE", low=1)
    world = World(rank, size, rendezvous(rank, size), datetime.timedelta(minutes=minutes))
    dist.init_process_group(backend, store=world.store, rank=rank, world_size=size, timeout=world.timeout)
    before = signal.getsignal(signal.SIGTERM)
    try:
        with naming_the_lost(world, lambda: "training stopped"):
            signal.signal(signal.SIGTERM, terminate)
            yield world, device
    finally:
        if signal.getsignal(signal.SIGTERM) is terminate:
            signal.signal(signal.SIGTERM, before)
        dist.destroy_process_group()


@contextmanager
def naming_the_lost(world: World, rest: Callable[[], str]) -> Iterator[None]:
    """Within this context a process that others have left says which ones, once for all that are left.

    Collective operations fail where another process has died, or has not come for as long as they wait.

    Args:
        rest: returns the end of the sentence: where training stood, and how to go on.

    Raises:
        InputError: the sentence.
        SystemExit: another process says it.
    """
    try:
        yield
    except (RuntimeError, Terminated) as error:
        lost = isinstance(error, dist.DistError) or any(words in str(error) for words in LOST)
        if world.size == 1 or not (lost or isinstance(error, Terminated)):
            raise
        # By this signal torchrun ends the processes that remain: they say first which are missing.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        here = call_the_roll(world)
        missing = [f"process {rank} of {world.size}" for rank in range(world.size) if rank not in here]
        if missing and world.rank == min(here):
            what = " and ".join(missing)
            raise InputError(f"{what} ended or does not answer: {rest()}") from error
        raise SystemExit(1) from error


def call_the_roll(world: World) -> set[int]:
    """Return the processes that live and have come here, too; this one alone where torchrun's store has gone
    with the process that held it."""
    here = {world.rank}
    try:
        world.store.set(f"vitreous/lives/{world.rank}", "")
        time.sleep(ROLL_CALL)
        here |= {rank for rank in range(world.size) if world.store.check([f"vitreous/lives/{rank}"])}
    except dist.DistError:
        pass
    return here


def shards_for(
    model: nn.Module,
    config: TrainingConfig,
    world: World,
    device: torch.device,
    *,
    compiled: bool = False,
) -> Shards | None:
    """Return the shards of a run that asks for them; None for one process, which stores everything anyway.
    Raises InputError: the optimizer cannot work on shards, or the processes cannot be divided into groups.

    Args:
        compiled: whether each layer is compiled.
    """
    if not config.machine_config.shard or world.size == 1:
        return None
    if groups_of(config) and config.optimizer.kind == "muon":
        raise InputError(
            "Muon orthogonalizes matrices in bf16, whose sums can differ between groups: leave out "
            "training.machine.shard=N, or use another training.optimizer.kind"
        )
    if world.size % (groups_of(config) or world.size):
        raise InputError(
            f"{world.size} processes cannot be divided into groups of {config.machine_config.shard}: set "
            "training.machine.shard to a divisor of their number"
        )
    if config.optimizer.kind == "adafactor":
        raise InputError(
            "Adafactor needs sums over rows and columns of a weight, of which each process has a shard: "
            f"use another training.optimizer.kind, or leave out {Param('shard')}"
        )
    return Shards(model, config, device, compiled=compiled)


def groups_of(config: TrainingConfig) -> int | None:
    """Return over how many processes one copy of the weights is sharded; None: over all of them."""
    return None if isinstance(config.machine_config.shard, bool) else config.machine_config.shard


class Shards:
    """Shards a learner's weights over all processes, and gathers them: data parallelism for models that do
    not fit into one process.

    Sharding (ZeRO, 1910.02054; FSDP, 2304.11277) is PyTorch's `fully_shard` (FSDP2), applied to a model from
    outside. The weights of an encoder layer are gathered when it is computed and freed after it; all other
    weights are one more group, which stays gathered between the forward and the backward pass. What a process
    stores is divided by the number of processes, or by that of a group (`training.machine.shard=N`), with a
    copy in each (hybrid sharding).

    An objective can have two attributes for it: `gathered_at_once`, if it uses weights outside their layers,
    so that all are one group; `kept_whole`, parameters that it changes itself, which every process has in
    full.
    """

    root: Any  # computes the model that learns, once it is sharded

    def __init__(
        self, model: nn.Module, config: TrainingConfig, device: torch.device, *, compiled: bool
    ) -> None:
        from torch.distributed.device_mesh import init_device_mesh

        meta = {}
        for parameter in model.parameters():
            meta[id(parameter)] = nn.Parameter(parameter.detach().to("meta"), parameter.requires_grad)
        self.architecture = copy.deepcopy(model, meta)  # without weights
        self.config, self.device, self.compiled = config, device, compiled
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

        half = torch.bfloat16 if self.config.precision == "bf16" else None
        for layer in () if getattr(model, "gathered_at_once", False) else encoder_layers(model):
            if self.compiled:
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
