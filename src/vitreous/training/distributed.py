"""Several processes, begun by torchrun: who is here, and what they agree on."""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from vitreous.errors import InputError

Gathered = TypeVar("Gathered")
PATIENCE = datetime.timedelta(hours=1)  # the others wait while one process evaluates and writes the report


class World(NamedTuple):
    """This process among all that train together."""

    rank: int = 0
    size: int = 1

    @property
    def first(self) -> bool:
        """Whether this process is the one that writes and prints."""
        return self.rank == 0

    def share(self, batch_size: int) -> int:
        """Images of a batch that fall to each process.

        Raises:
            InputError: they cannot be shared out equally.
        """
        if batch_size % self.size:
            raise InputError(
                f"a batch of {batch_size} cannot be shared by {self.size} processes: set training.batch_size "
                f"to a multiple of {self.size}"
            )
        return batch_size // self.size

    def total(self, sums: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Each sum over all processes."""
        if self.size == 1 or not sums:
            return dict(sums)
        names = sorted(sums)  # restored sums come in another order than new ones
        stacked = torch.stack([sums[name] for name in names])
        dist.all_reduce(stacked)
        totals = dict(zip(names, stacked.unbind(), strict=True))
        return {name: totals[name] for name in sums}

    def any(self, flags: tuple[bool, ...], device: torch.device) -> tuple[bool, ...]:
        """For each flag, whether any process has raised it."""
        if self.size == 1:
            return flags
        raised = torch.tensor(flags, dtype=torch.int32, device=device)
        dist.all_reduce(raised, op=dist.ReduceOp.MAX)
        return tuple(bool(flag) for flag in raised.tolist())

    def told(self, text: str) -> str:
        """What the first process says."""
        if self.size == 1:
            return text
        said = [text]
        dist.broadcast_object_list(said, src=0)
        return said[0]

    def gathered(self, mine: Gathered) -> list[Gathered]:
        """What each process has, in the order of their ranks."""
        if self.size == 1:
            return [mine]
        found: list[Any] = [None] * self.size
        dist.all_gather_object(found, mine)
        return found

    def wait(self) -> None:
        """Until all processes are here."""
        if self.size > 1:
            dist.barrier()


def restarted() -> bool:
    """Whether torchrun has begun the processes again because one of them died."""
    return os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"


def said_first(key: str, text: str) -> str:
    """What was said about `key` for the first time since torchrun was begun: its store outlives the processes
    that it restarts. Without torchrun `text` itself."""
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return text
    return str(store_of_torchrun().compare_set(f"vitreous/{key}", "", text), "utf-8")


def store_of_torchrun() -> Any:
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    return dist.TCPStore(address, port, is_master=False)  # type: ignore[attr-defined]


def meeting() -> dict[str, Any]:
    """Where the processes of one machine that were begun again find each other: not under the names of those
    before them, whose addresses the store still has, and where nobody answers. Several machines do not count
    their restarts alike; there it is left to PyTorch."""
    one_machine = os.environ.get("GROUP_WORLD_SIZE") == "1"
    if not (restarted() and one_machine and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"):
        return {}
    name = f"vitreous/restart-{os.environ['TORCHELASTIC_RESTART_COUNT']}"
    store = dist.PrefixStore(name, store_of_torchrun())  # type: ignore[attr-defined]
    return {"store": store, "rank": int(os.environ["RANK"]), "world_size": int(os.environ["WORLD_SIZE"])}


@contextmanager
def joined(device: torch.device) -> Iterator[tuple[World, torch.device]]:
    """The processes of torchrun, each with its device; alone without torchrun."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        yield World(), device
        return
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    backend = "nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, timeout=PATIENCE, **meeting())
    try:
        yield World(dist.get_rank(), dist.get_world_size()), device
    finally:
        dist.destroy_process_group()
