"""Checkpoints of a run: the whole state of training, from which it resumes.

A checkpoint is a folder of safetensors files, written by PyTorch's distributed checkpoints (DCP; its own
storage would hold pickles), and a JSON file with the rest of the state and the SHA-256 of each file. One
process writes all of it, unless the weights are sharded; any other number of processes can resume. While a
model trains, its state is copied and written by a thread.
"""

from __future__ import annotations

import json
import os
import shutil
import warnings
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from shlex import quote
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor

from vitreous.checkpoints.runs import TRIALS, saved_steps
from vitreous.errors import InputError, require_packages
from vitreous.outside import read_text, sha256_of
from vitreous.training.distributed import ALONE, World
from vitreous.training.learner import Learner, State
from vitreous.training.machine import stager
from vitreous.whole_files import copy_to_url, flush, whole

KEPT = 2  # checkpoints: one to resume from where the newest is damaged


class Checkpointer:
    """Saves and restores the newest checkpoints of one run. All processes call each method together.

    Files are written under a temporary name, flushed to the disk and renamed; the JSON file comes last, so
    that a checkpoint exists once it is complete. The first process chooses what all of them restore.

    Args:
        folder: where the checkpoints are stored.
        command: resumes the run, for messages: vitreous COMMAND --resume RUN.
        keep_every: those of every so many steps are kept besides the last ones.
        upload: a URL that the first process copies the run's checkpoints to, s3://BUCKET/RUN for example.
    """

    def __init__(
        self,
        folder: Path,
        command: str = "train",
        *,
        keep_every: int | None = None,
        upload: str | None = None,
    ) -> None:
        if upload:
            require_packages("fsspec", extra="data", what="training.records.upload")
        self.folder, self.command, self.upload = folder, command, upload
        self.keep_every = keep_every
        self.damaged: set[int] = set()
        self.current: int | None = None  # the step that was saved or restored last
        self.best: int | None = None  # the step of the best validation, which is kept
        self.writing: Future[str] | None = None  # its result: why that failed, or an empty string

    def steps(self) -> list[int]:
        """Return the steps of the complete checkpoints, ascending."""
        return saved_steps(self.folder)

    @cached_property
    def thread(self) -> ThreadPoolExecutor:
        executor = ThreadPoolExecutor(1, thread_name_prefix="vitreous-checkpoint")
        # The thread is started now: with too little memory later, Python would wait for it forever.
        executor.submit(int).result()
        return executor

    def save(self, learner: Learner, world: World = ALONE, *, wait: bool = True) -> None:
        """Write the state of the learner's step; only then remove the oldest checkpoint.

        Args:
            wait: until it is written; else it is written while training goes on, and what fails is raised by
                the next `save` or `finish`.

        Raises:
            InputError: it cannot be written (disk full, no permission); in every process. Earlier checkpoints
                stay as they are.
        """
        self.finish()
        # This is set after the last writing has ended, which removes all but the best that is known to it.
        self.best = learner.best_step
        step, sharded = learner.step, learner.shards is not None
        if step == self.current:
            return
        state, thread, self.saving = learner.state(), self.thread, step
        if wait:
            written = Future[str]()
            written.set_result(self.write_all(step, state, world, sharded=sharded))
            self.writing = written
            self.finish()
            return
        # This is made only here, once the process has its group.
        if not hasattr(self, "stage"):
            self.stage, self.writers = stager(learner.device), world.new_group()
        state = State(self.stage(state.tensors), state.facts)
        self.current = step
        self.writing = thread.submit(self.write_all, step, state, self.writers, sharded=sharded)

    def finish(self) -> None:
        """Wait until everything is written. Raises InputError, in every process, where that has failed."""
        writing, self.writing = self.writing, None
        if writing is None:
            return
        if reason := writing.result():
            self.current = None
            raise InputError(
                f"cannot save the checkpoint of step {self.saving} in {self.folder} ({reason}); free up "
                "space; "
                f"{self.advice()}"
            )
        self.damaged.discard(self.saving)
        self.current = self.saving

    def write_all(self, step: int, state: State, world: World, *, sharded: bool) -> str:
        """Write a checkpoint, then remove and copy others. Return why it could not be written, or an empty
        string; the same in every process."""
        if sharded:
            reason = self.write_checkpoint(step, state, world)
        else:
            # The first process needs none of the others here: one that dies meanwhile changes nothing.
            reason = world.broadcast(self.write_checkpoint(step, state) if world.first else "")
        if world.first and not reason:
            self.remove_old(step)
            if self.upload:
                copy_to_url(self.folder.parent, self.files_of_run(), self.upload)
        return reason

    def write_checkpoint(self, step: int, state: State, world: World = ALONE) -> str:
        """Write a checkpoint, by all processes of a world: each the weights that it has. Return why it could
        not be written, or an empty string; the same in all of them."""
        partial = self.folder / f"{stem_of(step)}.partial"
        if reason := self.write(partial, state.tensors, world):
            return reason
        found, failure = dict[str, str](), ""
        try:
            for path in sorted(partial.iterdir())[world.rank :: world.size]:
                # The file system of a network says only here that it is full.
                flush(path)
                found[path.name] = sha256_of(path)
        except OSError as error:
            failure = error_reason(error)
        parts = world.gather((failure, found))
        reason, digests = "", dict[str, str]()
        for failed, theirs in parts:
            reason = reason or failed
            digests |= theirs
        if world.first and not reason:
            reason = self.complete(step, state.facts, partial, digests)
        return world.broadcast(reason)

    def files_of_run(self) -> list[Path]:
        """Return what a resumed run reads: each checkpoint's JSON file after its tensors, as on the disk."""
        run = self.folder.parent
        facts = [run / name for name in ("config.toml", "split.csv", TRIALS, "metrics.jsonl")]
        shards = sorted(path for path in self.folder.glob("step-*.shards/*") if path.is_file())
        return [*filter(Path.is_file, facts), *shards, *sorted(self.folder.glob("step-*.json"))]

    def write(self, folder: Path, tensors: Mapping[str, Tensor], world: World) -> str:
        """Write the tensors to an empty folder. Return why that failed, in every process, or ""."""
        from torch.distributed.checkpoint.api import CheckpointException
        from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
        from torch.distributed.checkpoint.state_dict_saver import save

        reason, alone = "", world.size == 1
        if world.first:
            try:
                # What a crash has left is removed.
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir(parents=True)
            except OSError as error:
                reason = error.strerror or str(error)
        if reason := world.broadcast(reason):
            return reason
        try:
            # PyTorch warns that one process saves alone. What others warn of meanwhile is heard: filters are
            # those of all threads.
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", module="torch")
                writer = HuggingFaceStorageWriter(str(folder), save_distributed=True)
                group: Any = {"no_dist": True} if alone else {"process_group": world.group}
                save(dict(tensors), storage_writer=writer, **group)
        except CheckpointException as error:
            failures = sorted(error.failures.items())
            name = "" if alone else "process {}: "
            reason = "; ".join(name.format(rank) + error_reason(why[0]) for rank, why in failures)
        if reason and world.first:
            shutil.rmtree(folder, ignore_errors=True)
        return world.broadcast(reason)

    def complete(
        self, step: int, facts: Mapping[str, object], partial: Path, sha256: Mapping[str, str]
    ) -> str:
        """Give the folder its name and write the JSON file: from here on the checkpoint exists. Return why
        that failed, or an empty string."""
        folder, file = partial.with_suffix(".shards"), partial.with_suffix(".json")
        names = {f"{folder.name}/{name}": digest for name, digest in sha256.items()}
        try:
            file.unlink(missing_ok=True)
            shutil.rmtree(folder, ignore_errors=True)
            flush(partial)
            os.replace(partial, folder)
            with whole(file) as temporary:
                temporary.write_text(json.dumps({**facts, "step": step, "sha256": names}), encoding="utf-8")
                flush(temporary)
            flush(self.folder)
        except OSError as error:
            return error.strerror or str(error)
        return ""

    def advice(self) -> str:
        """Return what is left of a run that has failed, and how to go on: the end of a sentence."""
        steps = [step for step in self.steps() if step not in self.damaged]
        rest = f"the checkpoint of step {steps[-1]} is intact" if steps else "there is no checkpoint yet"
        resume = f"vitreous {self.command} --resume {quote(str(self.folder.parent))}"
        return f"{rest}: resume with {resume}"

    def restore(self, learner: Learner, world: World = ALONE, *, upto: int | None = None) -> bool:
        """Put the learner to the newest intact checkpoint; to none after step `upto`. Return whether there is
        one. Raises InputError: it was saved by another model."""
        self.finish()
        if (state := self.newest(learner, world, upto=upto)) is None:
            return False
        learner.restore(state, first=world.first)
        self.current, self.best = learner.step, learner.best_step
        return True

    def restore_best(self, learner: Learner, world: World = ALONE) -> None:
        """Put the learner to the checkpoint of the best validation. Raises InputError: it is damaged."""
        try:
            learner.restore(self.read(self.best or 0, learner, world), first=world.first)
        except (OSError, ValueError, KeyError, SafetensorError) as error:
            raise InputError(
                f"the checkpoint of the best validation, of step {self.best} in {self.folder}, is damaged "
                f"({error}): set training.records.early_stopping=none in config.toml to keep the last model"
            ) from error

    def newest(
        self, learner: Learner | None = None, world: World = ALONE, *, upto: int | None = None
    ) -> State | None:
        """Read the newest intact checkpoint, or that up to a step, with a warning for each newer one that is
        damaged. learner: shards the tensors as it has them; without it they are whole."""
        damaged, state = list[str](), None
        steps = world.broadcast(self.steps())
        for step in reversed([step for step in steps if upto is None or step <= upto]):
            try:
                reason, state = "", self.read(step, learner, world)
            except (OSError, ValueError, KeyError, SafetensorError) as error:
                reason = str(error) or type(error).__name__
            if not (reasons := [each for each in world.gather(reason) if each]):
                break
            state = None
            self.damaged.add(step)
            damaged.append(f"{self.folder / stem_of(step)} is damaged ({reasons[0]})")
        if damaged and world.first:
            where = f"step {state.facts['step']}" if state else "the beginning: no checkpoint is intact"
            warnings.warn(f"{'; '.join(damaged)}: training resumes from {where}", stacklevel=3)
        return state

    def read(self, step: int, learner: Learner | None, world: World) -> State:
        """Read a checkpoint. Each process verifies what it reads; of shards a part of the files. Raises
        OSError, ValueError, KeyError, SafetensorError: it is damaged."""
        reason, facts, files = "", dict[str, Any](), list[tuple[Path, str]]()
        try:
            facts, files = self.verified_facts(step)
            sharded = learner is not None and learner.shards is not None
            for path, digest in files[world.rank :: world.size] if sharded else files:
                if sha256_of(path) != digest:
                    raise ValueError(f"the checksum of {path.name} is wrong")
        except (OSError, ValueError) as error:
            reason = str(error)
        if reasons := [each for each in world.gather(reason) if each]:
            raise ValueError(reasons[0])
        return State(read_tensors(files[0][0].parent, learner), facts)

    def verified_facts(self, step: int) -> tuple[dict[str, Any], list[tuple[Path, str]]]:
        """Return the facts of a step, and each of its files with its checksum. Raises OSError, ValueError:
        the JSON file is damaged."""
        facts = json.loads(read_text(self.folder / f"{stem_of(step)}.json"))
        sha256 = facts.pop("sha256", None) if isinstance(facts, dict) else None
        if not isinstance(sha256, dict) or not sha256:
            raise ValueError("its JSON file has no checksums")
        return facts, [(self.folder / name, digest) for name, digest in sorted(sha256.items())]

    def remove_old(self, step: int) -> None:
        """Remove all but the last intact checkpoints up to `step`, the best one for each of them, the
        milestones, and what crashes left. What cannot be removed now is tried again after the next one, with
        a warning."""
        intact = [each for each in self.steps() if each <= step and each not in self.damaged]
        last = intact[-KEPT:]
        for_good = [each for each in intact if each and self.keep_every and each % self.keep_every == 0]
        best = [] if self.best is None else [self.best]
        # Where the newest state is damaged, training resumes from the one before.
        for each in last:
            with suppress(OSError, ValueError):
                best += filter(None, [self.verified_facts(each)[0].get("best_step")])
        kept = {stem_of(each) for each in (*last, *for_good, *best)}
        old = [path for path in self.folder.glob("*step-*") if path.name.partition(".")[0] not in kept]
        try:
            for path in sorted(old, key=lambda path: path.suffix != ".json"):
                shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        except OSError as error:
            # Another machine may have a file of it open, for example.
            warnings.warn(f"cannot remove an old checkpoint in {self.folder}: {error}", stacklevel=2)


def read_tensors(folder: Path, learner: Learner | None) -> dict[str, Tensor]:
    """Read the tensors of a checkpoint: a folder of DCP's."""
    from torch.distributed.checkpoint.api import CheckpointException
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
    from torch.distributed.checkpoint.state_dict_loader import load

    reader = HuggingFaceStorageReader(str(folder))
    stored: dict[str, Any] = reader.read_metadata().state_dict_metadata
    tensors = {}
    for name, each in stored.items():
        if learner:
            tensors[name] = learner.empty_like(name, each.size, each.properties.dtype)
        else:
            tensors[name] = torch.empty(each.size, dtype=each.properties.dtype)
    # PyTorch warns that one process loads alone.
    with warnings.catch_warnings(action="ignore"):
        try:
            load(tensors, storage_reader=reader, no_dist=not (learner and learner.shards))
        except CheckpointException as error:
            raise ValueError(error_reason(next(iter(error.failures.values()))[0])) from None
    return tensors


def stem_of(step: int) -> str:
    """Return what the names of a checkpoint's files begin with."""
    return f"step-{step:09d}"


def error_reason(error: BaseException) -> str:
    """Return the reason of an error, without its number and file."""
    return (isinstance(error, OSError) and error.strerror) or str(error)
