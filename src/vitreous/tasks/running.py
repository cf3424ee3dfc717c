"""Runs and models of every task: start, resume and train a run; evaluate a model, and ask it.

Nothing here prints, and nothing reads a command line: commands and the Python functions stand on this.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import Any

import torch
from torch import nn

from vitreous.checkpoints.files import read_json
from vitreous.checkpoints.native import stored_task
from vitreous.checkpoints.runs import check_finished, command_of, read_tree
from vitreous.data.dataset import BadFiles, ImageDataset
from vitreous.errors import InputError
from vitreous.evaluation.text_models import Reader, Translator
from vitreous.tasks import HOMES, task_named
from vitreous.tasks.card import write_card
from vitreous.tasks.results import Evaluated, Predictions, RunResult
from vitreous.tasks.task import Answer, HeldOut, Material, Progress, Task, Tree, count_parameters_of
from vitreous.training.callbacks import Callback, Row
from vitreous.training.distributed import World
from vitreous.training.learner import Learner
from vitreous.training.length import extend_run
from vitreous.training.memory import accumulation, activation_checkpointing, free_bytes
from vitreous.training.precision import computing, pick_precision
from vitreous.training.run import Run, check_free, default_path, of_another_command
from vitreous.training.session import train_run as run_session
from vitreous.training.step import TrainStep

Callbacks = Sequence[Callback | Callable[[Row], object]]
WARMING, TIMED = 3, 8  # steps that measure how long one takes


def has_weights(spec: str) -> bool:
    """Return whether MODEL means weights from somewhere, and not a mere name."""
    return Path(spec).exists() or ":" in spec


@dataclass(frozen=True)
class Started:
    """A run that can be trained.

    Attributes:
        notes: why it is configured as it is, in sentences.
    """

    task: Task
    run: Run
    data: Any
    notes: tuple[str, ...] = ()


def start_run(
    task: str | Task,
    source: Any | None,
    settings: Tree,
    *,
    recipe: str | None = None,
    init: str | None = None,
    out: Path | None = None,
    device: torch.device,
    world: World | None = None,
    fit_memory: bool = False,
    minutes: float | None = None,
) -> Started:
    """Make a new run directory for a task on `source`.

    Args:
        source: DATA; None: what the settings say, or the task's own bundled data.
        settings: the user's own, over everything that a recipe says.
        recipe: its name; None: one is chosen from the data.
        init: a checkpoint or run whose weights the run begins with.
        out: the run directory; by default one in runs/.
        fit_memory: split the batch into as many micro-batches as the memory needs.
        minutes: as many steps as fit into this time.

    Raises:
        InputError: unknown settings, values or data, or what does not fit together.
    """
    task = task_named(task) if isinstance(task, str) else task
    world = world or World()
    config, reasons, data, name = task.plan(source, settings, recipe=recipe, init=init)
    task = task_named(config.task)
    path = out or default_path(name)
    check_free(path, config.command)
    notes = [f"recipe: {reason}" for reason in reasons]
    changes: dict[str, Any] = {"precision": pick_precision(config.training.precision, device)}
    if fit_memory:
        changes["accumulate"] = micro_batches(task, config, data, device, world)
        notes.append(f"memory: batches of {config.training.batch_size} in {changes['accumulate']} parts")
    config = config.model_copy(update={"training": config.training.model_copy(update=changes)})
    if minutes:
        seconds = world.broadcast(step_seconds(task, config, data, device, world))
        steps = max(1, round(60 * minutes / seconds))
        training = config.training.model_copy(update={"steps": steps})
        config = config.model_copy(update={"training": training})
        notes.append(f"time: {steps} steps, measured to take {minutes:g} minutes")
    return Started(task, Run.shared(path, config, world), data, tuple(notes))


def resume_run(
    path: Path,
    *,
    command: str = "train",
    task: str | None = None,
    world: World | None = None,
    shard: bool | None = None,
    epochs: float | None = None,
    steps: int | None = None,
) -> Started:
    """Open a run that continues from its newest state.

    Args:
        command: that is used; a run of another command says which.
        task: that is expected; None: the run's.
        shard: whether its weights are sharded from now on; None: as it was begun.
        epochs, steps: how many it is to have in all; None: as it was planned.

    Raises:
        InputError: it is not a run, or of another command or task; or its data are gone.
    """
    world = world or World()
    kind = task_of_run(path)
    if (theirs := kind.config.command) != command:
        if "pretrain" in (theirs, command):
            raise InputError(of_another_command(path, theirs))
        raise InputError(
            f"{path} is a run of --task {kind.name}: resume it with vitreous {theirs} --resume {path}"
        )
    if task is not None and task != kind.name:
        raise InputError(f"{path} is a run of --task {kind.name}, not {task}: leave out --task")
    run, notes = open_run(path), []
    if epochs is not None or steps is not None:
        run, note = extend_run(run, world, epochs=epochs, steps=steps)
        notes = [note] if note else []
    run = run.spread(shard)
    return Started(kind, run, kind.open_data(run.config), tuple(notes))


def train_run(
    started: Started,
    *,
    device: torch.device,
    world: World | None = None,
    callbacks: Callbacks = (),
    progress: Progress | None = None,
    tell: Callable[[str], None] | None = None,
    **options: Any,
) -> RunResult | None:
    """Train a run from where it stands; evaluate the model, write the report and the model card.

    Args:
        world: the processes that train together; only the first one writes into the run.
        callbacks: are told of each step, of validation, and of saved states: `Display` shows them.
        progress: called after each batch of the evaluation with the examples done and all of them.
        tell: takes sentences about what was left out of the data.
        options: of the evaluation, such as `beams`.

    Returns:
        None in all processes but the first.

    Raises:
        Interrupted: Ctrl-C or SIGTERM came, and the state is saved.
        InputError: the loss stays non-finite, a file cannot be written, or too many examples cannot be read.
    """
    task, run, data = started.task, started.run, started.data
    config, world = run.config, world or World()
    try:
        trained = learn(run, data, device=device, world=world, callbacks=callbacks, tell=tell)
    except InputError:
        run.forget_failed_start()
        raise
    if not world.first:
        return None
    material, answerer = trained.material, task.answerer(trained.model, trained.material)
    part = task.held_out_part(data)
    evaluation = None
    if part:
        evaluation = task.evaluate(
            answerer,
            part[1],
            device=device,
            batch_size=batch_size_of(config),
            progress=progress,
            **options,
        )
    bad = BadFiles()
    bad.reasons.update(dict(material.bad))
    bad.reasons.update(evaluation.failed if evaluation else {})
    bad.write(run.path / "bad_files.txt")
    more = task.more(run, answerer, material, data)
    report = task.report(run, answerer, evaluation, part[1] if part else None, data, **more)
    result = RunResult(
        task=task.name,
        run=run,
        answerer=answerer,
        evaluation=evaluation,
        held_out=part[0] if part else None,
        seconds=trained.seconds,
        waiting=trained.waiting,
        train_count=material.examples,
        parameters=count_parameters_of(answerer),
        bad=dict(bad),
        report=report,
        more=more,
    )
    write_card(task, result)
    return result


@dataclass(frozen=True)
class Trained:
    """A model that has learned, its training data, and the seconds (of all sessions) that it took."""

    model: Any
    material: Material
    seconds: float
    waiting: float

    @property
    def bad(self) -> dict[str, str]:
        """The examples that could not be read, with the reason."""
        return dict(self.material.bad)


def learn(
    run: Run,
    data: Any,
    *,
    device: torch.device,
    world: World | None = None,
    callbacks: Callbacks = (),
    validate: Callable[[nn.Module], Mapping[str, float]] | None = None,
    tell: Callable[[str], None] | None = None,
) -> Trained:
    """Train a run's model and save it, without evaluating it.

    Args:
        validate: measures the model while it learns; by default as the task does.

    Raises:
        Interrupted, InputError: as `train_run`.
    """
    config, world, task = run.config, world or World(), task_named(run.config.task)
    material = task.prepare(config, data, device=device, world=world)
    if tell:
        for note in material.notes:
            tell(note)
    total = config.training.total_steps(material.loader.steps_per_epoch)
    session = run_session(
        run,
        task.build(config, data, steps=total),
        material.loader,
        task.objective(config, data),
        save=lambda model: task.save(run, model.cpu(), material),
        bad=material.bad,
        images=material.examples,
        device=device,
        world=world,
        callbacks=callbacks,
        validate=validate or task.validation(config, data),
        validate_every=validation_epochs(config),
        make_average=task.averaging(config, total),
        on_resume=task.begin,
    )
    return Trained(session.model.cpu(), material, session.seconds, session.waiting)


def validation_epochs(config: Any) -> int:
    return config.evaluation.every_epochs if hasattr(config, "evaluation") else 1


def batch_size_of(config: Any) -> int:
    return config.evaluation.batch_size if hasattr(config, "evaluation") else config.training.batch_size


def micro_batches(task: Task, config: Any, data: Any, device: torch.device, world: World) -> int:
    """Return into how many micro-batches a batch is split so that it fits into the memory."""
    training = config.training
    model = task.build(config, data, steps=1).to(device)
    images = torch.zeros(2, config.model.channels, *config.model.image_size, device=device)
    with activation_checkpointing(model) if training.checkpointing else nullcontext():
        free = free_bytes(device) // (world.size if device.type == "cpu" else 1)
        return accumulation(model, images, world.share(training.batch_size), free)


def step_seconds(task: Task, config: Any, data: Any, device: torch.device, world: World) -> float:
    """Measure the seconds of one step, its batch included; the weights are thrown away."""
    data = task.some_of(data, (WARMING + TIMED) * config.training.batch_size)
    material = task.prepare(config, data, device=device, world=world)
    learner = Learner.begin(task.build(config, data, steps=1).to(device), config.training)
    task.begin(learner)
    train_step = TrainStep(
        learner,
        task.objective(config, data),
        config.training,
        device=device,
        seed=config.seed,
        world=World(),
    )
    batches = (batch for epoch in count() for batch in material.loader.epoch(epoch))
    for batch in islice(batches, WARMING):
        train_step(batch)
    synchronize(device)
    began = time.perf_counter()
    for batch in islice(batches, TIMED):
        train_step(batch)
    synchronize(device)
    return (time.perf_counter() - began) / TIMED


def synchronize(device: torch.device) -> None:
    """Wait until the device has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


# Models that are trained.


def open_run(path: Path) -> Run:
    """Open a run directory of any task."""
    return Run.open(path, task_of_run(path).config)


def task_of_run(path: Path) -> Task:
    """Return the task of a run directory."""
    return task_named(str(read_tree(path)["task"]))


def task_of(model: str | Path | nn.Module | Reader | Translator) -> Task | None:
    """Return the task of a MODEL: a run, a folder of the native format, a name, or a model itself.

    None where it does not say: a foreign checkpoint that is not opened yet, or an encoder without a task.
    Nothing is loaded.

    Raises:
        InputError: a run that was stopped has no model yet.
    """
    if isinstance(model, Reader | Translator):
        model = model.model
    if isinstance(model, nn.Module):
        name = getattr(model, "task", None)
        return task_named(name) if name in HOMES else None
    path = Path(model).expanduser()
    check_finished(path)
    for folder in (path, path / "model", path.parent if path.name == "model.safetensors" else path):
        if (folder / "config.json").is_file():
            described = read_json(folder / "config.json")
            name = stored_task(folder, described) if described.get("format") == "vitreous" else None
            return task_named(name) if name in HOMES else None
    return task_named("segmentation") if str(model).startswith("Seg-") and not path.exists() else None


def open_answerer(model: Any, *, fresh: bool = False, **overrides: Any) -> tuple[Task, Any]:
    """Return the task of a MODEL, and what answers with it: a model, a `Reader` or a `Translator`.

    Args:
        model: a run, a checkpoint, `hf:org/name`, or what answers already.
        fresh: whether a name will do, whose weights have not learned anything.
        overrides: fields of the configuration that are changed.

    Raises:
        InputError: nothing there, damaged, a name without weights, or a pre-training run.
    """
    task = task_of(model)
    encoder = task is None or task.config.command == "pretrain"
    if isinstance(model, str | Path):
        run = Path(model)
        if (run / "config.toml").is_file() and command_of(read_tree(run)) == "pretrain":
            raise InputError(of_another_command(run, "pretrain"))
        opener = task_named("classification") if task is None or encoder else task
        opened = opener.open(str(model), **overrides)
        if not (fresh or has_weights(str(model))):
            raise InputError(
                f"{model} is a name without weights, and its answers mean nothing: give a run or a checkpoint"
            )
        return open_answerer(opened)
    return task_named("classification") if task is None or encoder else task, model


def evaluate_model(
    model: str | Path,
    data: Any | None = None,
    settings: Tree | None = None,
    *,
    device: torch.device,
    precision: str = "fp32",
    batch_size: int = 64,
    workers: int = 0,
    progress: Progress | None = None,
    overrides: Mapping[str, Any] | None = None,
    **options: Any,
) -> Evaluated:
    """Evaluate a model on data that it did not learn from.

    Args:
        model: a run directory, or any checkpoint with a head.
        data: DATA; by default the held-out part of what the run was trained on.
        settings: a tree, of which only `data` may be set.
        overrides: fields of the model's configuration, such as `image_size`.

    Raises:
        InputError: no such model or data, unknown settings, or nothing was held out.
    """
    task, answerer = open_answerer(model, **(overrides or {}))
    held: HeldOut = task.held_out(str(model), answerer, data, settings or {})
    module = answerer if isinstance(answerer, nn.Module) else answerer.model
    module.to(device)
    with computing(precision, device):
        evaluation = task.evaluate(
            answerer,
            held.examples,
            device=device,
            batch_size=batch_size,
            workers=workers,
            progress=progress,
            **options,
        )
    return Evaluated(str(model), held.source, held.part, evaluation)


def predict(
    model: Any,
    images: ImageDataset,
    *,
    device: torch.device,
    precision: str = "fp32",
    batch_size: int = 64,
    workers: int = 0,
    progress: Progress | None = None,
    overrides: Mapping[str, Any] | None = None,
    **options: Any,
) -> Predictions:
    """Ask a model about images. No more than a batch of them is held in memory.

    Args:
        model: a run, a checkpoint, or what `open_answerer` gives.
        images: numbered images, whatever their targets.
        options: of the task: `top` labels, `out` for masks.

    Raises:
        InputError: the model has no answer to images, or an option cannot be had.
    """
    task, answerer = open_answerer(model, **(overrides or {}))
    module = answerer if isinstance(answerer, nn.Module) else answerer.model
    module.to(device).eval()
    answers: list[Answer] = []
    failed: dict[str, str] = {}
    ask = partial(task.predict, device=device, batch_size=batch_size, workers=workers)
    with computing(precision, device):
        for answer in ask(answerer, images, failed, **options):
            answers.append(answer)
            if progress:
                progress(len(answers) + len(failed), len(images))
    return Predictions(task.name, answers, failed, task.about_answers(answerer))
