"""A run directory: its configuration, its lock, its learner, its checkpoints and metrics, its model."""

from __future__ import annotations

import copy
import fcntl
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from shlex import quote
from typing import Generic, TextIO, TypeVar

from torch import nn

from vitreous.checkpoints.native import save_native
from vitreous.checkpoints.runs import STOPPED, check_data_present, read_tree, relative_source
from vitreous.data.dataset import ImageDataset
from vitreous.data.held_out import SPLIT, write_split
from vitreous.errors import InputError, Param, check_free, check_utf8, writing_to
from vitreous.models.model import Model
from vitreous.results import percent
from vitreous.training.callbacks import (
    TRACKERS,
    Callback,
    MetricsFile,
    MetricsRow,
    TensorBoard,
    Tracker,
    read_metrics,
)
from vitreous.training.checkpointer import Checkpointer
from vitreous.training.config import CommandConfig, RunConfig
from vitreous.training.distributed import World, shards_for
from vitreous.training.initial_model import absolute_source, merge_lora, starting_model, without_lost_init
from vitreous.training.learner import AverageWeight, Learner, learning_rate
from vitreous.training.machine import ON_CPU, Place
from vitreous.training.settings import AnyConfig, configure, to_toml, validated
from vitreous.whole_files import write_text

LOCK = ".lock"  # says which process trains in the directory


ConfigT = TypeVar("ConfigT", bound=CommandConfig, covariant=True)


class RunDirectory(Generic[ConfigT]):
    """A run directory: what every task's training writes."""

    new: bool = False  # whether this process has made it, and does not continue it

    def __init__(self, path: Path, config: ConfigT) -> None:
        self.path = path
        self.config = config  # all of the run, as config.toml has it: that of its task
        self.split = path / SPLIT  # says which part each image is in
        asked = config.training.records_config
        self.states = Checkpointer(  # for --resume
            path / "checkpoints",
            config.command,
            keep_every=asked.keep_every,
            upload=asked.upload,
        )

    @classmethod
    def create(
        cls, path: Path, config: AnyConfig, parts: Mapping[str, ImageDataset] | None = None
    ) -> RunDirectory[AnyConfig]:
        """Make a new run directory. parts: the images that split.csv lists. Raises InputError: there is
        something at `path` already, or it cannot be written."""
        check_free_for_run(path, config.command)
        check_utf8(str(path), Param("out"))
        config = with_source(config, path)
        text = to_toml(config)
        with writing_to(path):
            path.mkdir(parents=True, exist_ok=True)
            # A run that was ended before it had a configuration may have left one.
            (path / SPLIT).unlink(missing_ok=True)
            write_split(path / SPLIT, parts or {})
            # Of two processes that try it, one makes the run.
            write_text(path / "config.toml", text, new=True)
        return RunDirectory(path, config)

    @classmethod
    def open(cls, path: Path, kind: type[AnyConfig] = RunConfig) -> RunDirectory[AnyConfig]:  # type: ignore[assignment]
        """Open an existing run directory. Raises InputError: there is none, or its config.toml does not
        describe a run of this `kind`."""
        return RunDirectory(path, validated(read_tree(path), kind))

    @classmethod
    def shared(
        cls,
        path: Path,
        config: AnyConfig,
        world: World,
        parts: Mapping[str, ImageDataset] | None = None,
        *,
        begun: bool = False,
    ) -> RunDirectory[AnyConfig]:
        """Make a new run of several processes: the first one makes it, with its name and configuration.

        Args:
            begun: whether torchrun has restarted the processes: then the run continues in the directory that
                it has, if it came to that.

        Raises:
            InputError: if `create` raises it, or a process on another machine does not see the directory.
        """
        new = False
        if world.first and (new := not (begun and (path / "config.toml").exists())):
            cls.create(path, config, parts)
        theirs = Path(world.broadcast(str(path.absolute())))
        if not theirs.exists():
            raise InputError(
                f"this machine does not see {theirs}, where the first process has started the run: machines "
                f"that train together need a folder that all of them see; give it as {Param('out')}"
            )
        run = cls.open(path if world.first else theirs, type(config))
        run.new = new
        return run

    @classmethod
    def after_first_model(cls, path: Path, config: AnyConfig) -> RunDirectory[AnyConfig]:
        """Make a run in the directory of another of the same images, whose model stays until this one has
        one: until then it counts as stopped at its beginning."""
        run = RunDirectory(path, with_source(config, path))
        run.note_stop(0, config.training.steps or 1)
        run.write_config()
        return run

    def in_force(self, place: Place) -> RunDirectory[ConfigT]:
        """Return the same run with the configuration by which it is trained here: of a precision that `place`
        decides where config.toml leaves it open, and without a checkpoint to begin with that is gone, where
        the run has weights of its own. config.toml stays as it is."""
        config = without_lost_init(self.config, bool(self.states.steps()))
        run = copy.copy(self)
        run.config = with_training(config, precision=place.precision(config))
        return run

    def with_training(self, **changes: object) -> RunDirectory[ConfigT]:
        """Return the same run with other settings of its training; config.toml stays as it is."""
        return RunDirectory(self.path, with_training(self.config, **changes))

    def with_data(self, source: str | None) -> RunDirectory[ConfigT]:
        """Return the same run with its data elsewhere; None: where they were. config.toml stays as it is.
        Raises InputError: they are no longer where they were."""
        if source is None:
            command = f"vitreous {self.config.command} --resume {quote(str(self.path))} --data DATA"
            check_data_present(self.config.source, self.path, f"specify its new location: {command}")
            return self
        return RunDirectory(self.path, with_source(self.config, self.path, absolute_source(source)))

    def write_config(self) -> None:
        """Write config.toml. Raises InputError: another process trains by it."""
        with self.locked():
            write_text(self.path / "config.toml", to_toml(self.config))

    def extended(self, world: World, length: str) -> tuple[RunDirectory[ConfigT], str]:
        """Return the same run with another length in all, which config.toml then has, and a sentence about
        its learning rate, where enough is known for it: from its present step on, the rate follows the curve
        of the new length and may jump there. The result is not that of a run of this length from the
        beginning. Raises InputError: the run is as far already, or it is not a length.

        Args:
            length: as `length_of` has it.
        """
        low = float(length.partition(" ")[0]) <= 0
        run = self.with_training(length=length)
        # What config.toml is to have must be a length that opens again.
        if not low:
            run = RunDirectory(self.path, configure(self.config, {"training": {"length": length}}))
        old, new = self.config.training, run.config.training
        minutes = new.minutes
        done = (self.states.steps() or [0])[-1]
        # There is no such row where the run was stopped in its first epoch.
        rows = [row for row in self.metrics() if row["epoch"]]
        per_epoch = round(rows[-1]["step"] / rows[-1]["epoch"]) if rows else None
        newest = self.states.newest() if minutes is not None else None
        facts = newest.facts if newest else {}
        # The time of validations and checkpoints counts as well.
        spent = max(facts.get("elapsed", 0.0), facts.get("seconds", 0.0))
        a_step = facts.get("seconds", 0.0) / max(done, 1)
        # There is no time for another step.
        if minutes is not None and 60 * minutes <= spent + a_step / 2:
            raise InputError(
                f"{Param('minutes')} {minutes:g} is the total, and {self.path} has already used "
                f"{spent / 60:.3g}: pass a larger number"
            )
        if minutes is None and (low or new.total_steps(per_epoch or done + 1) <= done):
            of_steps = new.steps is not None
            wanted = f"{Param('steps')} {new.steps}" if of_steps else f"{Param('epochs')} {new.epochs:g}"
            raise InputError(
                f"{wanted} is the total, and {self.path} is already at step {done}: pass a larger number"
            )
        if world.first:
            run.write_config()
        if per_epoch is None or old.minutes or new.minutes:
            return run, ""
        before = learning_rate(done, old.total_steps(per_epoch), old.schedule, per_epoch)
        after = learning_rate(done, new.total_steps(per_epoch), new.schedule, per_epoch)
        return run, (
            f"schedule: from step {done} on the learning rate follows the curve of the new length: it is "
            f"{percent(after)} of its peak there instead of {percent(before)}"
        )

    def forget_failed_start(self) -> None:
        """Remove a new directory without anything learned, so that the corrected command can use its path."""
        files = list(self.path.iterdir())
        if self.new and {file.name for file in files} <= {"config.toml", SPLIT, LOCK}:
            for file in files:
                file.unlink()
            self.path.rmdir()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from training in this directory. Raises InputError, with the one that does."""
        with self.lock_file() as file:
            file.truncate(0)
            print(f"process {os.getpid()} on {os.uname().nodename}", end="", file=file, flush=True)
            try:
                yield
            finally:
                Path(file.name).unlink(missing_ok=True)

    def lock_file(self) -> TextIO:
        """Open the file that is locked while a process trains here. Raises InputError: one does."""
        while True:
            file = (self.path / LOCK).open("a+")
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(file.fileno()), os.stat(file.name)):
                    return file
            except BlockingIOError:
                with file:
                    file.seek(0)
                    who = file.read() or "another process"
                message = f"{who} is training in {self.path}: wait until it has ended, or stop it"
                raise InputError(message) from None
            except FileNotFoundError:
                pass
            except OSError:
                # Not every file system can lock.
                return file
            # A training has ended just now and removed the file: its lock would keep no process out.
            file.close()

    def learner(
        self,
        model: nn.Module,
        place: Place,
        *,
        averaging: AverageWeight | None = None,
        compiled: bool = False,
    ) -> Learner:
        """Return the learner at the newest checkpoint, or at its beginning.

        Args:
            model: at the beginning, on the CPU.
            compiled: whether layers whose weights are sharded are compiled.

        Raises:
            InputError: the processes, the precision and the optimizer cannot be combined.
        """
        config, device, world = self.config.training, place.device, place.world
        shards = shards_for(model, config, world, device, compiled=compiled)
        learner = Learner.begin(model if shards else model.to(device), config, shards, averaging)
        self.states.restore(learner, world)
        return learner

    def callbacks(self, step: int, *, events: bool = True) -> list[Callback]:
        """Open what records the metrics from a step on. events: whether TensorBoard has them, too."""
        metrics = MetricsFile(self.path / "metrics.jsonl", step=step)
        return [metrics, TensorBoard(self.path, step=step)] if events else [metrics]

    @contextmanager
    def tracked(self) -> Iterator[tuple[Tracker, ...]]:
        """Open the experiment trackers, which are callbacks of the training, until its results are known.
        Raises InputError: one of them cannot be started; a new run is forgotten."""
        with ExitStack() as stack:
            trackers = []
            try:
                for name in self.config.training.records_config.track:
                    trackers.append(Tracker(name, self.path.name, self.config))
                    stack.callback(trackers[-1].close)
            except InputError:
                self.forget_failed_start()
                raise
            before = TRACKERS.set(tuple(trackers))
            try:
                yield tuple(trackers)
            finally:
                TRACKERS.reset(before)

    def note_stop(self, step: int | None, total: int) -> None:
        """Note at which of `total` steps the model that will be saved was stopped; None: it is finished."""
        if step is None:
            (self.path / STOPPED).unlink(missing_ok=True)
        else:
            write_text(self.path / STOPPED, json.dumps({"step": step, "steps": total}))

    def metrics(self) -> list[MetricsRow]:
        """Return the rows of metrics.jsonl."""
        return read_metrics(self.path / "metrics.jsonl")

    def model_so_far(self: RunDirectory[RunConfig], classes: Sequence[str]) -> Model:
        """Return the model of the newest checkpoint, on the CPU; the initial one where nothing is saved."""
        model = starting_model(without_lost_init(self.config, bool(self.states.steps())), classes)
        return finished(self.learner(model, ON_CPU).result)  # type: ignore[return-value]

    def model(self) -> Model:
        """Return the trained model, with its preprocessing and labels."""
        from vitreous.checkpoints.loading import load_image_model

        return load_image_model(self.path)

    def save_model(self, model: nn.Module, files: Mapping[str, str] | None = None) -> None:
        """Write `model` into model/, atomically, with files that belong to it: names and texts."""
        folder = self.path / "model"
        try:
            save_native(model, folder, files=files)
        except OSError as error:
            raise InputError(
                f"cannot save the model in {folder} ({error.strerror}): free up space, then resume with "
                f"vitreous {self.config.command} --resume {quote(str(self.path))}"
            ) from error


def finished(model: nn.Module) -> nn.Module:
    """Return a trained model ready for use: LoRA merged, everything trainable."""
    merge_lora(model.eval())
    return model.requires_grad_(True)


def with_source(config: AnyConfig, path: Path, source: str | None = None) -> AnyConfig:
    """Return a configuration that knows where its data are from its run directory `path`, too. source: other
    DATA than before; None: the same."""
    source = config.source if source is None else source
    return config.model_copy(update={"source": source, "source_from_run": relative_source(source, path)})


def with_training(config: AnyConfig, **changes: object) -> AnyConfig:
    """Return a configuration with other settings of its training."""
    return config.model_copy(update={"training": config.training.model_copy(update=changes)})


def check_free_for_run(path: Path, command: str) -> None:
    """Raise InputError where a new run would be written over something. What a run has left that was ended
    before it had a configuration is nothing."""
    begun = (f".{SPLIT}.*.tmp", ".config.toml.*.tmp", SPLIT, LOCK)
    left = path.is_dir() and all(any(file.match(name) for name in begun) for file in path.iterdir())
    if not left:
        advice = f"choose another {Param('out')}, remove it, or continue with"
        check_free(path, f"{advice} vitreous {command} --resume {quote(str(path))}")


def default_run_path(data_name: str, root: Path = Path("runs"), ending: str = "") -> Path:
    """Return runs/<data>-<date-time><ending>, with a number before the ending when two runs begin in one
    second."""
    last = Path(data_name.rpartition(":")[2]).name
    name = "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in last)
    stem = f"{name.strip('-.') or 'data'}-{datetime.now():%Y%m%d-%H%M%S}"
    path, number = root / f"{stem}{ending}", 2
    while path.exists():
        path, number = root / f"{stem}-{number}{ending}", number + 1
    return path
