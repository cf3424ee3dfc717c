"""Saved states: whole or not at all. Each is a safetensors file, or one of each process
(`training.share_files`), and a JSON file that vouches for them."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from vitreous.checkpoints.runs import saved_steps
from vitreous.errors import InputError
from vitreous.models.legacy import with_current_names
from vitreous.training.share_files import SHARES, read_whole


class State(NamedTuple):
    """All that a run needs to go on: tensors, and facts that JSON can hold."""

    tensors: dict[str, Tensor]
    facts: dict[str, Any]


class States:
    """The states of one run in a folder, the last two good ones.

    First the tensors are written beside and renamed, then the facts with the tensors' checksum: a state
    exists once its JSON file does. Whatever a crash leaves half-written is never taken for a state.

    command: what goes on with the run, for messages: vitreous COMMAND --resume RUN.
    """

    KEPT = 2

    def __init__(self, folder: Path, command: str = "train") -> None:
        self.folder, self.command = folder, command

    def save(self, step: int, state: State) -> None:
        """Write the state of a step; only then forget the oldest.

        Raises:
            InputError: it cannot be written (disk full, no permission). Earlier states stay as they are.
        """
        file = self.folder / f"{name_of(step)}.safetensors"
        partial = file.with_name(file.name + ".partial")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            save_file({name: tensor.contiguous() for name, tensor in state.tensors.items()}, partial)
            digest = checksum(partial)
            settle(partial, file)
            self.vouch(step, state.facts, {file.name: digest})
        except (OSError, SafetensorError) as error:
            partial.unlink(missing_ok=True)
            reason = error.strerror if isinstance(error, OSError) else error
            raise InputError(self.cannot_save(step, str(reason))) from error
        self.forget(self.steps()[: -self.KEPT])

    def vouch(self, step: int, facts: Mapping[str, Any], sha256: Mapping[str, str]) -> None:
        """Write the facts of a step with the checksums of its files: from here on the state exists."""
        file = self.folder / f"{name_of(step)}.json"
        partial = file.with_name(file.name + ".partial")
        try:
            partial.write_text(json.dumps({**facts, "step": step, "sha256": sha256}), encoding="utf-8")
            settle(partial, file)
        finally:
            partial.unlink(missing_ok=True)

    def cannot_save(self, step: int, reason: str) -> str:
        """One sentence for a state that cannot be written."""
        kept = self.steps()
        rest = f"the state of step {kept[-1]} is kept" if kept else "there is no earlier state"
        return (
            f"cannot save the state of step {step} in {self.folder} ({reason}); {rest}: make room, then go "
            f"on with vitreous {self.command} --resume {quote(str(self.folder.parent))}"
        )

    def newest(self) -> State | None:
        """The newest state that is whole; a warning for each newer one that is not. None if there is none."""
        for step in reversed(self.steps()):
            try:
                facts, files = self.vouched(step)
                check(files)
                return State(read_tensors([path for path, _ in files]), facts)
            except (OSError, ValueError, KeyError) as error:
                self.warn_torn(step, error)
        return None

    def vouched(self, step: int) -> tuple[dict[str, Any], list[tuple[Path, str]]]:
        """The facts of a step, and each of its files with its checksum.

        Raises:
            OSError, ValueError: the JSON file is damaged.
        """
        facts = json.loads((self.folder / f"{name_of(step)}.json").read_text(encoding="utf-8"))
        facts = with_current_names(facts) if isinstance(facts, dict) else facts
        if not isinstance(facts, dict) or not isinstance(facts.get("sha256"), dict):
            raise ValueError("its JSON file has no checksums")
        return facts, [(self.folder / name, digest) for name, digest in sorted(facts.pop("sha256").items())]

    def warn_torn(self, step: int, reason: object) -> None:
        where = self.folder / name_of(step)
        warnings.warn(f"the state {where} is torn ({reason}): the one before it is used", stacklevel=3)

    def steps(self) -> list[int]:
        """The steps of the states that were written to the end, rising."""
        return saved_steps(self.folder)

    def forget(self, steps: Sequence[int]) -> None:
        """Remove states, and what crashes left behind."""
        for step in steps:
            (self.folder / f"{name_of(step)}.json").unlink(missing_ok=True)
        known = {name_of(step) for step in self.steps()}
        for path in self.folder.glob("step-*"):
            if path.name.partition(".")[0] not in known or path.suffix == ".partial":
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def name_of(step: int) -> str:
    """What the names of a state's files begin with."""
    return f"step-{step:09d}"


def check(files: Sequence[tuple[Path, str]]) -> None:
    """Raises ValueError for a file that is not as it was written, OSError for one that is not there."""
    for path, digest in files:
        if checksum(path) != digest:
            raise ValueError(f"the checksum of {path.name} is wrong")


def read_tensors(files: Sequence[Path]) -> dict[str, Tensor]:
    """A state's tensors, whole: of one file, or put together from the shares of several processes."""
    folder = files[0].parent
    tensors = read_whole(folder) if folder.suffix == SHARES else load_file(files[0])
    return {name.replace("optimiser/", "optimizer/", 1): tensor for name, tensor in tensors.items()}


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
