"""A run of any task until its model is trained: `start_run` or `resume_run`, then `learn`, which reads from
top to bottom (`vitreous.tasks.finish` has what follows). At the end: how a run is fitted to its machine.
Nothing here prints or reads a command line."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import torch
from torch import nn

from vitreous.data.dataset import ImageDataset, named_parts
from vitreous.data.workers import processes_here
from vitreous.errors import InputError, Param, is_installed
from vitreous.languages.terminal import said
from vitreous.models.config import ViTConfig
from vitreous.tasks import task_named, task_of_run
from vitreous.tasks.task import AnyPlan, AnyTask, Material, Plan, Trained, Tree
from vitreous.training.callbacks import Callback, Row
from vitreous.training.clock import Clock
from vitreous.training.config import CommandConfig, RunConfig
from vitreous.training.distributed import ALONE, BadFileSync, World, first_value, naming_the_lost
from vitreous.training.initial_model import without_lost_init
from vitreous.training.memory import accumulation, activation_checkpointing, free_bytes
from vitreous.training.precision import CUBLAS_WORKSPACE, WIDE, numerics, pick_precision
from vitreous.training.run import (
    Run,
    check_free_for_run,
    default_path,
    finished,
    of_another_command,
    with_training,
)
from vitreous.training.settings import AnyConfig
from vitreous.training.step import LossOf, data_parallel
from vitreous.training.trainer import Interrupted, NotFinite, Trainer

MOST_FITTED = 6000  # images that are read again for the baselines
BEGUN = count()  # runs of this process: torchrun's restarted processes begin the same ones in the same order
Callbacks = Sequence[Callback | Callable[[Row], object]]


def start_run(
    task: str | AnyTask,
    source: object | None,
    settings: Tree,
    *,
    recipe: str | None = None,
    init: str | None = None,
    **place: Any,
) -> AnyPlan:
    """Plan a training of a task on `source`, and make its run directory.

    Args:
        source: DATA; None: what the settings say, or the task's own bundled data.
        settings: the user's own, over everything that a recipe says.
        recipe, init: as `vitreous.train` has them.
        place: as of `with_run`.

    Raises:
        InputError: unknown settings, values or data, or what does not fit together.
    """
    named = task_named(task) if isinstance(task, str) else task
    return with_run(named.plan(source, settings, recipe=recipe, init=init), settings, **place)


def with_run(
    plan: AnyPlan,
    settings: Tree,
    *,
    out: Path | None = None,
    device: torch.device,
    world: World = ALONE,
    fit_memory: bool = False,
) -> AnyPlan:
    """Return a plan that is fitted to the machine, with its run directory. Raises InputError: the machine
    cannot do it, or there is something at `out` already.

    Args:
        settings: the user's own: what they say is not changed.
        out: the directory; None: one by the name of the plan.
        fit_memory: split the batch into as many micro-batches as the memory needs.
    """
    config, notes = plan.config, list[str]()
    over = plan.run.path if plan.run else None
    path, begun = over or out or default_path(plan.name), False
    if world.first and not over:  # it makes the directory, maybe before another process has come this far
        first, begun = first_value(f"run/{next(BEGUN)}", str(path))
        path = Path(first)
        if not begun:
            check_free_for_run(path, config.command)
    if config.training.computed.deterministic:
        os.environ.setdefault(*CUBLAS_WORKSPACE)
    config = with_precision(config, device)
    size = config.training.batch_size
    if size % world.size and not settings.get("training", {}).get("batch_size"):  # not the user's
        size = max(size - size % world.size, world.size)
        config = with_training(config, batch_size=size)
        notes.append(
            said(
                "batch: {size} images, which {processes} processes share equally",
                size=size,
                processes=world.size,
            )
        )
    if fit_memory and config.training.computed.shard and world.size > 1:
        raise InputError(
            f"{Param('batch_size')} auto measures a whole model, and {Param('shard')} is for those that do "
            "not fit: give a "
            "number, and training.machine.grad_accum_steps for micro-batches"
        )
    # All processes measure, or none: an objective may compare the images of all.
    unsure = config.training.computed.grad_accum_steps == 1 and world.any((may_not_fit(config, device),))[0]
    if fit_memory or unsure:
        parts = micro_batches(plan.task, config, plan.data, device, world)
        machine = config.training.computed
        if parts != machine.grad_accum_steps:
            machine = machine.model_copy(update={"grad_accum_steps": parts})
            config = with_training(config, machine=machine)
        if fit_memory or parts > 1:
            notes.append(
                said(
                    "memory: batches of {size} in {parts} micro-batches of {each} images",
                    size=size,
                    parts=parts,
                    each=size // parts,
                )
            )
    if over:
        if world.first:
            Run.after_first_model(path, config)
        world.broadcast(None)  # its config.toml is written
        run = Run.open(path, type(config))
    else:
        run = Run.shared(path, config, world, recorded_parts(plan.data), begun=begun)
    if plan.compared:
        plan.compared.begin(run)
    return replace(plan, config=run.config, run=run).with_reasons(*notes)


def task_to_resume(path: Path, command: str = "train", task: str | None = None) -> AnyTask:
    """Return the task of a run that is to be continued. Raises InputError: as `resume_run`."""
    kind = task_of_run(path)
    if (theirs := kind.config.command) != command:
        if "pretrain" in (theirs, command):
            raise InputError(of_another_command(path, theirs))
        raise InputError(
            f"{path} is a run of {Param('task')} {kind.name}: resume it with vitreous {theirs} --resume "
            f"{path}"
        )
    if task is not None and task != kind.name:
        raise InputError(
            f"{path} is a run of {Param('task')} {kind.name}, not {task}: leave out {Param('task')}"
        )
    return kind


def resume_run(
    path: Path,
    *,
    command: str = "train",
    task: str | None = None,
    world: World = ALONE,
    shard: bool | None = None,
    epochs: float | None = None,
    steps: int | None = None,
    minutes: float | None = None,
    data: str | None = None,
) -> AnyPlan:
    """Open a run that continues from its newest state.

    Args:
        command: that is used; a run of another command says which.
        task: that is expected; None: the run's.
        shard: whether its weights are sharded from now on; None: as it was begun.
        epochs, steps, minutes, data: its length in all, and where its data are now; None: as it was planned.

    Raises:
        InputError: it is not a run, or of another command or task; or its data are gone.
    """
    kind = task_to_resume(path, command, task)
    run, note = open_run(path).with_data(data), ""
    opened = kind.open_data(run.config, run.split)
    if world.first and data is not None:
        run.write_config()
    if epochs is not None or steps is not None or minutes is not None:
        run, note = run.extended(world, epochs=epochs, steps=steps, minutes=minutes)
    run = run if shard is None else run.with_shards(shard)
    return Plan(kind, run.config, opened, run.path.name, (note,) if note else (), run)


def recorded_parts(data: Any) -> Mapping[str, ImageDataset]:
    """Return the images that a run's split.csv lists, by part; none for data of another kind."""
    if not isinstance(data.train, ImageDataset):
        return {}
    return named_parts(data.train, data.validation, data.test)


def silent(sentence: str) -> None:
    """Say nothing."""


def learn(
    run: Run[CommandConfig],
    data: Any,
    *,
    device: torch.device,
    world: World = ALONE,
    callbacks: Callbacks = (),
    validate: Callable[[nn.Module], Mapping[str, float]] | None = None,
    tell: Callable[[str], None] | None = None,
    clock: Clock | None = None,
    resumable: bool = True,
) -> Trained[Any, Any]:
    """Train a run's model from its newest checkpoint, or from the beginning, and save it; do not evaluate it.

    Args:
        validate: measures the model while it learns, in every process; by default as the task does.
        clock: of the command, whose minutes count from its beginning to its report; None: they are those of
            the training alone.
        resumable: whether checkpoints are saved, and events for TensorBoard.

    Raises:
        Interrupted: Ctrl-C or SIGTERM came, and the state is saved.
        NotFinite: the loss stays non-finite; the last good weights are saved.
        InputError: as `train_run`.
    """
    task, say = task_named(run.config.task), tell or silent

    # ---- Configuration: what is left to this machine

    run = Run(run.path, without_lost_init(run.config, bool(run.states.steps())))
    run = run.with_training(precision=with_precision(run.config, device).training.precision)

    # ---- Data

    material = task.prepare(run.config, data, device=device, world=world)
    for note in material.notes:
        say(note)
    bad = BadFileSync(material.bad, material.examples, world)
    total = run.config.training.total_steps(material.loader.steps_per_epoch)
    compiled = compiles(material, run.config, device, total)
    machine = run.config.training.computed.model_copy(update={"compile": compiled})
    run = run.with_training(machine=machine)
    config, training = run.config, run.config.training

    # ---- Model

    elsewhere = training.computed.shard and world.size > 1 and not world.first
    with torch.device("meta") if elsewhere else nullcontext():  # the first process shares its weights out
        model = task.build(config, data, steps=total)

    # ---- Objective, and what measures the model while it learns

    objective, averaging = task.objective(config, data), material.averaging
    validate = validate or task.validation(config, data, world)
    if not validate and training.recorded.early_stopping:
        raise InputError(
            "training.records.early_stopping needs a validation part: set data.validation_fraction=0.1"
        )

    with ExitStack() as stack:
        stack.enter_context(
            numerics(device, training.precision, deterministic=training.computed.deterministic)
        )
        if world.first:
            stack.enter_context(run.locked())

        # ---- Optimizer and average, at the newest checkpoint; its weights may be in shards (FSDP)

        learner = run.learner(model, device=device, world=world, averaging=averaging)
        seconds_before = learner.seconds
        finish = 0.0
        if clock is not None:  # trials, and opening the data, are a part of the time that was given
            learner.elapsed = max(learner.elapsed, learner.seconds) + clock.seconds
            finish = clock.slowness * work_after(config, data)

        def where_it_stood() -> str:
            return f"training stopped at step {learner.step}; {run.states.advice()}"

        stack.enter_context(naming_the_lost(world, where_it_stood))
        stack.callback(bad.write, run.path)
        if training.computed.checkpointing:
            stack.enter_context(activation_checkpointing(model))

        # ---- Loss: several processes average its gradient, by DDP where each has all weights

        loss = data_parallel(LossOf(learner.model, objective), learner.shards, training, world)

        # ---- Loop

        recorders = run.callbacks(learner.step, events=resumable) if world.first else []
        trainer = Trainer(
            learner,
            material.loader,
            loss,
            training,
            seed=config.seed,
            world=world,
            checkpointer=run.states if resumable else None,
            callbacks=[*recorders, *callbacks],
            validate=validate,
            validate_every=config.validate_every,
            bad=bad,
            name=task.about.training,
            finish=finish,
        )
        stopped: Interrupted | NotFinite | None = None
        try:
            trainer.fit()
        except (Interrupted, NotFinite) as error:
            stopped = error
        seconds = learner.seconds
        spent = seconds - seconds_before
        waiting = trainer.waited / spent if spent else 0.0

        # ---- The model that is kept

        if stopped is None and learner.is_out_of_patience(training):
            say(
                said(
                    "early stopping: ended at step {step} of {total}, since {worse} validations in a row "
                    "were not better than that at step {best}; a higher "
                    "training.records.early_stopping.patience in config.toml goes on",
                    step=learner.step,
                    total=trainer.total,
                    worse=learner.worse,
                    best=learner.best_step,
                )
            )
        stopping = training.recorded.early_stopping
        if stopped is None and stopping and learner.best_step not in (None, learner.step):
            run.states.restore_best(learner, world)
            say(said("the model is that of the best validation, at step {step}", step=learner.step))
        if stopped is not None and averaging:  # the mean of the last checkpoints is still to come
            result = finished(learner.full_model(learner.model)).cpu()
        else:
            result = finished(learner.result).cpu()

        # ---- Saving it

        interrupted = isinstance(stopped, Interrupted)
        if world.first:
            run.note_stop(learner.step if interrupted else trainer.total, trainer.total)
            task.save(run, result, material)
            if not interrupted:
                run.note_stop(None, trainer.total)
        if isinstance(stopped, NotFinite):
            raise NotFinite(f"{stopped}; they are in {run.path / 'model'}") from None
        if stopped is not None:
            raise stopped
        return Trained(run, data, material, result, seconds, waiting)


def open_run(path: Path) -> Run[CommandConfig]:
    """Open a run directory of any task."""
    return Run.open(path, task_of_run(path).config)


# Seconds of a processor: a report, an image that is evaluated, and one that a baseline is fitted on.
REPORT, READ, DESCRIBED = 8.0, 0.03, 0.005


def work_after(config: CommandConfig, data: Any) -> float:
    """Return about how many seconds of a processor evaluation and report take that follow a training."""
    parts = (getattr(data, name, None) for name in ("test", "validation"))
    held_out = next((part for part in parts if part is not None), ())
    learned = min(len(data.train), MOST_FITTED) if config.of_images else 0
    return REPORT + READ * len(held_out) + DESCRIBED * learned


CONVOLVED = 200  # numbers for each pixel in a stem of convolutions
LONG_RUN = 1000  # steps, in which a compiled step makes up for its compilation


def with_precision(config: AnyConfig, device: torch.device) -> AnyConfig:
    """Return a configuration whose precision is decided: by the device, and by the model's width."""
    precision = pick_precision(config.training.precision, device, config.width or WIDE)
    return with_training(config, precision=precision)


def compiles(material: Material, config: CommandConfig, device: torch.device, total: int) -> bool:
    """Return whether a step of a run is compiled: where nothing is set, on a GPU if that pays."""
    asked = config.training.computed.compile
    if asked is not None:
        return asked
    return device.type == "cuda" and material.fixed_shapes and total >= LONG_RUN and is_installed("triton")


def may_not_fit(config: CommandConfig, device: torch.device) -> bool:
    """Return whether a training step could need more than a quarter of the free memory, by a generous guess:
    then it is measured."""
    training = config.training
    if not isinstance(config, RunConfig) or training.computed.shard:  # texts are short
        return False
    model = config.model
    if not isinstance(model, ViTConfig):
        return True
    height, width = model.image_size
    numbers = model.depth * model.sequence_length * 12 * (model.width + model.mlp_dim)
    convolved = 0 if model.stem.kind == "patch" else CONVOLVED * height * width
    return 4 * training.batch_size * (numbers + convolved) > free_bytes(device) / 4


def micro_batches(task: AnyTask, config: RunConfig, data: object, device: torch.device, world: World) -> int:
    """Return into how many micro-batches a batch is split so that it fits into the memory."""
    training = config.training
    model = task.build(config, data, steps=1).to(device)
    images = torch.zeros(2, config.model.channels, *config.model.image_size, device=device)
    forward = task.forward_of(model)
    with activation_checkpointing(model) if training.computed.checkpointing else nullcontext():
        free = free_bytes(device) // (processes_here() if device.type == "cpu" else 1)
        return accumulation(model, images, world.share(training.batch_size), free, forward=forward)
