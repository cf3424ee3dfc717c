"""`vitreous.train` and `pretrain`, and the `Run` that they return."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Literal, TextIO

from vitreous.api.arguments import ImageSize, Settings, progress_bar, settings_tree
from vitreous.api.data import data_source
from vitreous.errors import InputError, nearest, require_packages
from vitreous.results import Result

if TYPE_CHECKING:
    import torch
    from matplotlib.figure import Figure

    from vitreous.evaluation.result import Evaluation
    from vitreous.tasks.running import RunResult, Started
    from vitreous.training.distributed import World

Start = Callable[["torch.device", "World"], "Started"]


class Run(Result):
    """A run directory: what `train` and `pretrain` return, or an existing one, `Run("runs/photos")`.

    Attributes:
        path: the directory.
        result: what the training of this session gave; None for an existing run, and in every process of a
            distributed training but the first.

    Raises:
        InputError: the path is not a run directory.
    """

    def __init__(self, path: str | Path, result: RunResult | None = None) -> None:
        from vitreous.tasks.running import open_run

        self.path = Path(path)
        self.result = result
        self.config = open_run(self.path).config

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    @property
    def task(self) -> str:
        """The name of its task."""
        return str(self.config.task)

    @cached_property
    def model(self) -> Any:
        """The trained model, in evaluation mode. Raises InputError where training has not finished."""
        from vitreous.checkpoints import load

        return load(self.path)

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """The rows of metrics.jsonl: step, epoch, loss, learning rate and what validation measured."""
        from vitreous.tasks.running import open_run

        return open_run(self.path).metrics()

    @property
    def evaluation(self) -> Evaluation | None:
        """The evaluation of the held-out part after this session; None where the run was opened."""
        return self.result.evaluation if self.result else None

    @property
    def report(self) -> Path | None:
        """The HTML report; None where there is none yet."""
        path = self.path / "report.html"
        return path if path.is_file() else None

    def resume(
        self,
        *,
        epochs: int | float | None = None,
        steps: int | None = None,
        shard: bool | None = None,
        device: str = "auto",
        callbacks: Iterable[Any] = (),
        progress: bool = True,
    ) -> Run:
        """Continue from the newest checkpoint; extend the run if it is to have more epochs or steps.

        Args:
            epochs, steps: the total number; None: as it was planned.
            shard: whether the weights are sharded from now on; None: as it was.
            callbacks: see `train`.

        Raises:
            InputError: the run has already trained as long, or its data are gone.
            Interrupted: Ctrl-C or SIGTERM came, and the state is saved.
        """
        return resume_run(
            self.path,
            command=str(self.config.command),
            epochs=epochs,
            steps=steps,
            shard=shard,
            device=device,
            callbacks=callbacks,
            progress=progress,
        )

    def to_json(self) -> dict[str, Any]:
        if self.result:
            return self.result.to_json()
        return {"run": str(self.path), "task": self.task}

    def table(self) -> list[dict[str, Any]]:
        """Return `metrics`."""
        return self.metrics

    def figures(self) -> dict[str, Figure]:
        """Return the learning curves: each logged number over the steps."""
        require_packages("matplotlib", extra="train", what="figures")
        from matplotlib.figure import Figure

        rows = self.metrics
        names = sorted({name for row in rows for name in row} - {"step", "epoch"})
        drawn = {}
        for name in names:
            points = [(row["step"], row[name]) for row in rows if isinstance(row.get(name), int | float)]
            figure = Figure(figsize=(5, 3), layout="constrained")
            axes = figure.subplots()
            axes.plot(*zip(*points, strict=True))
            axes.set_xlabel("step")
            axes.set_ylabel(name)
            drawn[name] = figure
        return drawn


def train(
    data: Any = None,
    *,
    task: str | None = None,
    model: str | None = None,
    init: Any = None,
    recipe: str | None = None,
    image_size: ImageSize | None = None,
    epochs: int | float | None = None,
    minutes: int | float | None = None,
    batch_size: int | Literal["auto"] | None = None,
    out: str | Path | None = None,
    device: str = "auto",
    precision: str | None = None,
    shard: bool | None = None,
    seed: int | None = None,
    workers: int | None = None,
    strict: bool = False,
    settings: Settings | None = None,
    config: str | Path | None = None,
    callbacks: Iterable[Any] = (),
    progress: bool = True,
) -> Run:
    """Train or fine-tune a model on images; evaluate it on the held-out part, write the report and the card.

    Args:
        data: a folder with a sub-folder for each class, a manifest, shards, "cifar10:PATH", "hf:NAME"; or in
            memory: a torch Dataset, a Hugging Face dataset, (images, labels), a list of (image, label). By
            default the task's own small data: the digits.
        task: classification (the default), multilabel, segmentation, captioning ...
        model: a name such as "ViT-S/16"; by default the data decide.
        init: a checkpoint or a run to fine-tune.
        recipe: one of `list_recipes()`; by default the data decide.
        epochs, minutes: how long; one of them.
        batch_size: images of a step; "auto": the recipe's, in micro-batches that fit the memory.
        out: the run directory; by default a new one in runs/.
        precision: auto, fp32, bf16 or fp8.
        shard: under torchrun, shard the weights over the processes (FSDP).
        seed: of weights, order and augmentation.
        workers: threads that decode.
        strict: an image that cannot be read is an error.
        settings: any leaf of the configuration, {"training.peak_lr": 1e-3}; and a TOML file of them.
        callbacks: `vitreous.training.callbacks.Callback` objects, or functions that get each row of metrics.
        progress: show progress, and why the recipe was chosen, on stderr.

    Raises:
        InputError: data, settings or options that do not fit together.
        Interrupted: Ctrl-C or SIGTERM came, and the state is saved: `Run(path).resume()` continues.
    """
    from vitreous.tasks import task_named
    from vitreous.tasks.running import start_run

    check_minutes(minutes, epochs)
    fit_memory = batch_size == "auto"
    leaves = {
        "model.name": model,
        "model.image_size": image_size,
        "training.epochs": epochs,
        "training.batch_size": None if fit_memory else batch_size,
        "training.precision": precision,
        "training.shard": shard,
        "data.strict": strict or None,
        "data.workers": workers,
        "seed": seed,
    }
    tree = merged_settings(settings, config, leaves)
    named = task_named(str(task or tree.get("task", "classification")))
    if named.config.command != "train":
        instead = "vitreous.pretrain" if named.config.command == "pretrain" else "vitreous translate train"
        raise InputError(f"the task {named.name} is trained by {instead}")
    given = {
        "--model": model,
        "--init": init,
        "--recipe": recipe,
        "--image-size": image_size,
        "--minutes": minutes,
        "--batch-size auto": fit_memory,
        "--workers": workers,
        "--strict": strict,
    }
    named.check_options("train", given)
    check_shard(shard)
    source = None if data is None else data_source(data, numbers=named.name == "regression")

    def start(here: torch.device, world: World) -> Started:
        return start_run(
            named,
            source,
            tree,
            recipe=recipe,
            init=checkpoint_path(init),
            out=None if out is None else Path(out),
            device=here,
            world=world,
            fit_memory=fit_memory,
            minutes=minutes,
        )

    return train_in_processes(start, device=device, callbacks=callbacks, progress=progress)


def pretrain(
    data: Any = None,
    *,
    objective: str | None = None,
    model: str | None = None,
    init: Any = None,
    image_size: ImageSize | None = None,
    epochs: int | float | None = None,
    batch_size: int | None = None,
    out: str | Path | None = None,
    device: str = "auto",
    precision: str | None = None,
    shard: bool | None = None,
    seed: int | None = None,
    workers: int | None = None,
    settings: Settings | None = None,
    config: str | Path | None = None,
    callbacks: Iterable[Any] = (),
    progress: bool = True,
) -> Run:
    """Pre-train an encoder on images alone; labels, where there are any, are not used.

    Args:
        objective: masked-patch, mae (the default), simmim or dino.
        data, model, init, epochs, ...: see `train`.

    Raises:
        InputError, Interrupted: see `train`.
    """
    from vitreous.tasks.pretraining.config import OBJECTIVES
    from vitreous.tasks.running import start_run

    leaves = {
        "model.name": model,
        "model.image_size": image_size,
        "training.epochs": epochs,
        "training.batch_size": batch_size,
        "training.precision": precision,
        "training.shard": shard,
        "data.workers": workers,
        "seed": seed,
    }
    tree = merged_settings(settings, config, leaves)
    name = str(objective or tree.get("task", "mae"))
    if name not in OBJECTIVES:
        raise InputError(f"unknown objective {name!r}: {nearest(name, OBJECTIVES)}")
    check_shard(shard)
    source = None if data is None else data_source(data)

    def start(here: torch.device, world: World) -> Started:
        path = None if out is None else Path(out)
        return start_run(name, source, tree, init=checkpoint_path(init), out=path, device=here, world=world)

    return train_in_processes(start, device=device, callbacks=callbacks, progress=progress)


def train_translator(
    pairs: str | None = None,
    *,
    steps: int | None = None,
    epochs: int | float | None = None,
    batch_size: int | None = None,
    out: str | Path | None = None,
    device: str = "auto",
    precision: str | None = None,
    shard: bool | None = None,
    seed: int | None = None,
    settings: Settings | None = None,
    config: str | Path | None = None,
    callbacks: Iterable[Any] = (),
    progress: bool = True,
    **search: Any,
) -> Run:
    """Train the Transformer of 2017 on pairs of texts.

    Args:
        pairs: a TSV file, two text files with a comma between, hf:NAME; by default numbers in words.
        search: `beams` and `length_penalty` of the evaluation.
        steps, epochs, ...: see `train`.

    Raises:
        InputError, Interrupted: see `train`.
    """
    from vitreous.tasks.running import start_run

    leaves = {
        "seed": seed,
        "training.steps": steps,
        "training.epochs": epochs,
        "training.precision": precision,
        "training.batch_size": batch_size,
        "training.shard": shard,
    }
    tree = merged_settings(settings, config, leaves)
    check_shard(shard)

    def start(here: torch.device, world: World) -> Started:
        path = None if out is None else Path(out)
        return start_run("translation", pairs, tree, out=path, device=here, world=world)

    return train_in_processes(start, device=device, callbacks=callbacks, progress=progress, **search)


def resume_run(
    path: str | Path,
    *,
    command: str = "train",
    task: str | None = None,
    epochs: int | float | None = None,
    steps: int | None = None,
    shard: bool | None = None,
    device: str = "auto",
    callbacks: Iterable[Any] = (),
    progress: bool = True,
    **options: Any,
) -> Run:
    """Continue a run of a command; see `Run.resume`.

    Args:
        task: that is expected; None: the run's.
        options: of the evaluation.
    """
    from vitreous.tasks import running

    check_shard(shard)
    total = None if epochs is None else float(epochs)

    def start(here: torch.device, world: World) -> Started:
        return running.resume_run(
            Path(path), command=command, task=task, world=world, shard=shard, epochs=total, steps=steps
        )

    return train_in_processes(start, device=device, callbacks=callbacks, progress=progress, **options)


def train_in_processes(
    start: Start,
    *,
    device: str,
    callbacks: Iterable[Any],
    progress: bool,
    **options: Any,
) -> Run:
    """Train in every process that torchrun has started; evaluate in the first.

    Args:
        start: makes or opens the run.
        options: of the evaluation.
    """
    require_packages("matplotlib", "sklearn", "tensorboard", extra="train", what="training")
    from vitreous.tasks.running import train_run
    from vitreous.training.callbacks import Display
    from vitreous.training.device import pick_device
    from vitreous.training.distributed import process_group
    from vitreous.training.trainer import Interrupted

    with own_warnings(), process_group(pick_device(device)) as (world, here):
        started = start(here, world)

        def tell(note: str) -> None:
            if progress and world.first:
                print(note, file=sys.stderr)

        for note in started.notes:
            tell(note)
        shown = [Display(started.task.training_words)] if progress and world.first else []
        try:
            with progress_bar("evaluating", progress) as advance:
                result = train_run(
                    started,
                    device=here,
                    world=world,
                    callbacks=[*shown, *callbacks],
                    progress=advance,
                    tell=tell,
                    **options,
                )
        except Interrupted as stopped:
            command, path = started.run.config.command, quote(str(started.run.path))
            if world.first:
                stopped.add_note(
                    f"stopped at step {stopped.step}, and the state is saved: resume with "
                    f"vitreous {command} --resume {path}"
                )
            raise
        return Run(started.run.path, result)


def merged_settings(
    settings: Settings | None, config: str | Path | None, leaves: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the settings with those leaves over them that are given."""
    given = {name: value for name, value in leaves.items() if value is not None}
    tree = settings_tree(settings, config)
    from vitreous.models.settings import set_leaf

    for name, value in given.items():
        set_leaf(tree, name, value)
    return tree


def checkpoint_path(init: Any) -> str | None:
    """Return the path of what a run begins with: a path or a `Run`. Raises InputError for a model."""
    path = getattr(init, "path", init)
    if path is None or isinstance(path, str | Path):
        return None if path is None else str(path)
    raise InputError(
        f"init is a path, or a Run, not a {type(init).__name__}: vitreous.save it, and give that path"
    )


def check_minutes(minutes: int | float | None, epochs: int | float | None) -> None:
    """Raise InputError for two lengths, or one of nothing."""
    if minutes is None:
        return
    if epochs is not None:
        raise InputError("--minutes and --epochs both say how long: give one of them")
    if not minutes > 0:
        raise InputError(f"--minutes {minutes:g} leaves no time to train: give a number above 0")


def check_shard(shard: bool | None) -> None:
    """Raise InputError where there are no processes to shard the weights over."""
    import os

    if shard and "TORCHELASTIC_RUN_ID" not in os.environ:
        raise InputError(
            "--shard spreads the weights over processes, and there is one: begin them with torchrun "
            "--nproc-per-node 2 -m vitreous ..., or leave it out"
        )


@contextmanager
def own_warnings() -> Iterator[None]:
    """Print the package's warnings as a sentence on stderr; those of libraries are not for users."""

    def one_line(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        if "vitreous" in Path(filename).parts:
            print(f"vitreous: {message}", file=sys.stderr)

    before, warnings.showwarning = warnings.showwarning, one_line
    try:
        yield
    finally:
        warnings.showwarning = before
