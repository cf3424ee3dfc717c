"""Saved states of a model in shards: every process writes its own shares, and any other number of processes
reads what it needs of them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from vitreous.errors import InputError
from vitreous.training.distributed import World
from vitreous.training.learner import Learner
from vitreous.training.share_files import SHARES, read_shares, write_shares
from vitreous.training.state import State, States, check, checksum, name_of


class SharedStates:
    """The states of a run whose learner is in shards. All processes call each method together.

    They lie in the folder of `states`, beside those that one process has written, and either form is read.
    """

    def __init__(self, states: States, learner: Learner, world: World) -> None:
        self.states, self.learner, self.world = states, learner, world

    def save(self, step: int, state: State) -> None:
        """Every process writes its shares; then the first one vouches for all, and forgets the oldest.

        Raises:
            InputError: one of them could not write. Earlier states stay as they are.
        """
        partial = self.states.folder / f"{name_of(step)}.partial"
        reason = self.written(partial, state)
        if not reason:
            digests = self.world.gathered({path.name: checksum(path) for path in self.mine(partial)})
            together = {name: digest for each in digests for name, digest in each.items()}
            reason = self.world.told(self.settled(step, state, partial, together) if self.world.first else "")
        if reason:
            raise InputError(self.states.cannot_save(step, reason))

    def written(self, folder: Path, state: State) -> str:
        """Why the shares could not be written; empty if they were."""
        if self.world.first:
            shutil.rmtree(folder, ignore_errors=True)  # a crash left it
        self.world.wait()
        return write_shares(folder, state.tensors)

    def settled(self, step: int, state: State, partial: Path, sha256: dict[str, str]) -> str:
        """The folder gets its name, and the state exists. Why not, if it cannot; empty if it can."""
        folder = partial.with_suffix(SHARES)
        try:
            shutil.rmtree(folder, ignore_errors=True)
            os.replace(partial, folder)
            self.states.vouch(step, state.facts, {f"{folder.name}/{name}": d for name, d in sha256.items()})
        except OSError as error:
            return error.strerror or str(error)
        self.states.forget(self.states.steps()[: -self.states.KEPT])
        return ""

    def newest(self) -> State | None:
        """The newest state that is whole, laid out as the learner is; a warning for each newer one that is
        not. Each process checks some of the files."""
        for step in reversed(self.states.steps()):
            reason, facts, files = "", dict[str, Any](), list[tuple[Path, str]]()
            try:
                facts, files = self.states.vouched(step)
                check(files[self.world.rank :: self.world.size])
            except (OSError, ValueError) as error:
                reason = str(error)
            if reasons := [each for each in self.world.gathered(reason) if each]:
                if self.world.first:
                    self.states.warn_torn(step, reasons[0])
                continue
            return State(self.read([path for path, _ in files]), facts)
        return None

    def mine(self, folder: Path) -> list[Path]:
        """This process's part of the work on a folder's files."""
        return sorted(folder.iterdir())[self.world.rank :: self.world.size]

    def read(self, files: Sequence[Path]) -> dict[str, Tensor]:
        """This process's shares of a state of either form."""
        from torch.distributed.tensor import DTensor

        shards, weights = self.learner.shards, self.learner.weights()
        assert shards

        def like(name: str, size: torch.Size) -> Tensor | None:
            """The weight in shards that a tensor is as large as; None for a count of steps, or the meter."""
            weight = weights.get(name, weights.get(name.rpartition("/")[0]))
            return weight if isinstance(weight, DTensor) and weight.shape == size else None

        if len(files) == 1 and files[0].parent.suffix != SHARES:
            whole = load_file(files[0])
            return {
                name: tensor if (weight := like(name, tensor.shape)) is None else shards.share(tensor, weight)
                for name, tensor in whole.items()
            }

        def room(name: str, size: torch.Size, dtype: torch.dtype) -> Tensor:
            weight = like(name, size)
            return torch.empty(size, dtype=dtype) if weight is None else shards.room(dtype, weight)

        return read_shares(files[0].parent, room)
