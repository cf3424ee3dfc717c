"""A run directory: the configuration, the model, the saved states, the numbers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from datetime import datetime
from pathlib import Path
from shlex import quote
from typing import Any, Generic, TypeVar

from vitreous.checkpoints.runs import check_finished as check_finished
from vitreous.checkpoints.runs import command_of as command_of
from vitreous.checkpoints.runs import read_tree as read_tree
from vitreous.checkpoints.whole_files import write_text
from vitreous.errors import InputError
from vitreous.models.names import Model
from vitreous.training.callbacks import read_metrics
from vitreous.training.checkpointer import Checkpointer
from vitreous.training.config import CommandConfig, RunConfig
from vitreous.training.distributed import World, first_value, restarted
from vitreous.training.settings import to_toml, validated

AnyConfig = TypeVar("AnyConfig", bound=CommandConfig)
Directory = TypeVar("Directory", bound="RunDirectory[Any]")


class RunDirectory(ABC, Generic[AnyConfig]):
    """What every run directory has, whatever is trained in it.

    Attributes:
        path: the directory.
        config: all of the run, as config.toml has it.
        states: what `--resume` goes on from.
        new: whether this process has made it, and does not go on with it.
    """

    new: bool = False

    def __init__(self, path: Path, config: AnyConfig) -> None:
        self.path = path
        self.config = config
        training: Any = getattr(config, "training")  # noqa: B009  # every kind of configuration has it
        self.states = Checkpointer(path / "checkpoints", config.command, keep_last=training.keep_last)

    @classmethod
    def create(cls: type[Directory], path: Path, config: AnyConfig) -> Directory:
        """A new run directory.

        Raises:
            InputError: there is something at `path` already, or it cannot be written.
        """
        check_free(path, config.command)
        try:
            path.mkdir(parents=True, exist_ok=True)
            write_text(path / "config.toml", to_toml(config))
        except OSError as error:
            raise InputError(f"cannot write to {path}: {error.strerror}; choose another --out") from None
        return cls(path, config)

    @classmethod
    @abstractmethod
    def open(cls: type[Directory], path: Path, kind: type[Any]) -> Directory:
        """An existing run directory, whose configuration is of that kind.

        Raises:
            InputError: there is none, or it is another kind's.
        """

    @classmethod
    def shared(cls: type[Directory], path: Path, config: AnyConfig, world: World) -> Directory:
        """A new run of several processes: the first one makes it, with its own name and configuration.

        Where torchrun has restarted the processes, the run goes on in the directory that it has.

        Raises:
            InputError: as `create`; or a process, on another machine, does not see the directory.
        """
        new = False
        if world.first:
            path = Path(first_value("run", str(path)))
            if new := not (restarted() and (path / "config.toml").exists()):
                cls.create(path, config)
        theirs = Path(world.broadcast(str(path.absolute())))
        world.barrier()
        if not theirs.exists():
            raise InputError(
                f"this machine does not see {theirs}, where the first process has begun the run: machines "
                "that train together need a folder that all of them see; give it as --out"
            )
        run = cls.open(path if world.first else theirs, type(config))
        run.new = new
        return run

    def spread(self: Directory, shard: bool | None) -> Directory:
        """The same run, which goes on with its weights in shards or whole; None: as it was begun. A state of
        either kind leads to the other."""
        if shard is None:
            return self
        config: Any = self.config
        training = config.training.model_copy(update={"shard": shard})
        return type(self)(self.path, config.model_copy(update={"training": training}))

    def forget_failed_start(self) -> None:
        """Remove a new directory that holds nothing yet but its configuration: the corrected command will
        want the same place."""
        if self.new and [file.name for file in self.path.iterdir()] == ["config.toml"]:
            (self.path / "config.toml").unlink()
            self.path.rmdir()


class Run(RunDirectory[RunConfig]):
    """The directory of a run that learns from images: the model and its numbers lie there, too."""

    @classmethod
    def open(cls, path: Path, kind: type[RunConfig] = RunConfig) -> Run:
        """An existing run directory.

        Args:
            kind: of configuration; pre-training has its own.

        Raises:
            InputError: there is none, or its config.toml cannot be understood.
        """
        tree = read_tree(path)
        if (command := command_of(tree)) != kind.command and "pretrain" in (command, kind.command):
            raise InputError(of_another_command(path, command))
        wanted = kind.model_fields["task"].default if "task" in kind.model_fields else "classes"
        if (task := tree.get("task", "classes")) == "translation":
            raise InputError(
                f"{path} is a translator's run, and this is for runs of --task {wanted}: to go on with it, "
                f"vitreous translate train --resume {quote(str(path))}"
            )
        if task != wanted:
            raise InputError(f"{path} is a run of --task {task}, and this is for runs of --task {wanted}")
        return cls(path, validated(tree, kind))

    def metrics(self) -> list[dict[str, Any]]:
        """The rows of metrics.jsonl."""
        return read_metrics(self.path / "metrics.jsonl")

    def model(self) -> Model:
        """The trained model, with its preprocessing and labels."""
        from vitreous.checkpoints import load_image_model

        return load_image_model(self.path)

    def save_model(self, model: Model) -> None:
        """Write `model` into model/, atomically."""
        from vitreous.checkpoints.native import save_native

        try:
            save_native(model, self.path / "model")
        except OSError as error:
            raise InputError(
                f"cannot save the model in {self.path / 'model'} ({error.strerror}): make room, then go on "
                f"with vitreous {self.config.command} --resume {quote(str(self.path))}"
            ) from error


def of_another_command(path: Path, command: str) -> str:
    """One sentence for a run that was to be pre-trained and is not, or the other way round."""
    if command == "pretrain":
        return (
            f"{path} is a pre-training run and has no classes: use vitreous probe, inspect or train --init; "
            f"it goes on with vitreous pretrain --resume {quote(str(path))}"
        )
    return (
        f"{path} is no pre-training run: it goes on with vitreous {command} --resume {quote(str(path))}; to "
        f"pre-train from what it has learned: vitreous pretrain DATA --init {quote(str(path))}"
    )


def check_free(path: Path, command: str) -> None:
    """Raises InputError where a new run would be written over something."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise InputError(
            f"{path} exists already, and nothing is written over: choose another --out, remove it, or go on "
            f"with vitreous {command} --resume {quote(str(path))}"
        )


def default_path(data_name: str, root: Path = Path("runs")) -> Path:
    """runs/<data>-<date-time>, with a number behind it when two runs begin in one second."""
    last = Path(data_name.rpartition(":")[2]).name
    name = "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in last)
    stem = f"{name.strip('-.') or 'data'}-{datetime.now():%Y%m%d-%H%M%S}"
    path, number = root / stem, 2
    while path.exists():
        path, number = root / f"{stem}-{number}", number + 1
    return path
