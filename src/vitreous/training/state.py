"""Saved states: whole or not at all. Each is a safetensors file and a JSON file that vouches for it."""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from vitreous.errors import InputError


class State(NamedTuple):
    """All that a run needs to go on: tensors, and facts that JSON can hold."""

    tensors: dict[str, Tensor]
    facts: dict[str, Any]


class States:
    """The states of one run in a folder, the last two good ones.

    First the tensors are written beside and renamed, then the facts with the tensors' checksum: a state
    exists once its JSON file does. Whatever a crash leaves half-written is never taken for a state.
    """

    KEPT = 2

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def save(self, step: int, state: State) -> None:
        """Write the state of a step; only then forget the oldest.

        Raises:
            InputError: it cannot be written (disk full, no permission). Earlier states stay as they are.
        """
        tensors, facts = self.files(step)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            partial = tensors.with_name(tensors.name + ".partial")
            save_file({name: tensor.contiguous() for name, tensor in state.tensors.items()}, partial)
            vouched = {**state.facts, "step": step, "sha256": checksum(partial)}
            settle(partial, tensors)
            partial = facts.with_name(facts.name + ".partial")
            partial.write_text(json.dumps(vouched), encoding="utf-8")
            settle(partial, facts)
        except (OSError, SafetensorError) as error:
            partial.unlink(missing_ok=True)
            kept = self.steps()
            rest = f"the state of step {kept[-1]} is kept" if kept else "there is no earlier state"
            reason = error.strerror if isinstance(error, OSError) else error
            raise InputError(
                f"cannot save the state of step {step} in {self.folder} ({reason}); {rest}: "
                "make room, then go on with vitreous train --resume"
            ) from error
        self.forget(self.steps()[: -self.KEPT])

    def newest(self) -> State | None:
        """The newest state that is whole; a warning for each newer one that is not. None if there is none."""
        for step in reversed(self.steps()):
            tensors, facts = self.files(step)
            try:
                found = json.loads(facts.read_text(encoding="utf-8"))
                if checksum(tensors) != found.pop("sha256"):
                    raise ValueError("its checksum is wrong")
                return State(load_file(tensors), found)
            except (OSError, ValueError, KeyError) as error:
                warnings.warn(f"{tensors} is torn ({error}): the state before it is used", stacklevel=2)
        return None

    def steps(self) -> list[int]:
        """The steps of the states that were written to the end, rising."""
        return sorted(int(path.stem.removeprefix("step-")) for path in self.folder.glob("step-*.json"))

    def forget(self, steps: list[int]) -> None:
        """Remove states, and what crashes left behind."""
        for step in steps:
            tensors, facts = self.files(step)
            facts.unlink(missing_ok=True)
            tensors.unlink(missing_ok=True)
        known = {path.name for step in self.steps() for path in self.files(step)}
        for path in self.folder.iterdir():
            if path.name.startswith("step-") and path.name not in known:
                path.unlink()

    def files(self, step: int) -> tuple[Path, Path]:
        stem = self.folder / f"step-{step:09d}"
        return stem.with_suffix(".safetensors"), stem.with_suffix(".json")


def settle(partial: Path, path: Path) -> None:
    """Give a file its name once its bytes are on the disk, not only on their way."""
    with partial.open("rb+") as file:
        os.fsync(file.fileno())
    os.replace(partial, path)


def checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_text(path: Path, text: str) -> None:
    """A text file, written beside and renamed."""
    partial = path.with_name(path.name + ".partial")
    partial.write_text(text, encoding="utf-8")
    os.replace(partial, path)
