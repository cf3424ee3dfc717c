"""How a run begins, until its plan is complete: a new one that is fitted to its machine (`with_run`), or one
that continues (`resume_run`). Training it is `vitreous.tasks.fit`. Nothing here prints or reads a command
line."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import torch

from vitreous.data.dataset import ImageDataset, named_parts
from vitreous.data.workers import processes_here
from vitreous.errors import InputError, Param
from vitreous.languages.terminal import said
from vitreous.tasks import task_named, task_of_run
from vitreous.tasks.task import AnyPlan, AnyTask, Plan, Tree, other_command
from vitreous.training.config import CommandConfig, RunConfig
from vitreous.training.distributed import first_value
from vitreous.training.machine import (
    CUBLAS_WORKSPACE,
    ON_CPU,
    Place,
    accumulation,
    activation_checkpointing,
    free_bytes,
)
from vitreous.training.run import RunDirectory, check_free_for_run, default_run_path, with_training

BEGUN = count()  # runs of this process: torchrun's restarted processes begin the same ones in the same order


def with_run(
    plan: AnyPlan,
    settings: Tree,
    place: Place,
    *,
    out: Path | None = None,
    fit_memory: bool = False,
) -> AnyPlan:
    """Return a plan that is fitted to the machine, with its run directory. Raises InputError: the machine
    cannot do it, or there is something at `out` already.

    Args:
        settings: the user's own: what they say is not changed.
        out: the directory; None: one by the name of the plan.
        fit_memory: split the batch into as many micro-batches as the memory needs.
    """
    config, notes, world = plan.config, list[str](), place.world
    over = plan.run.path if plan.run else None
    path, begun = over or out or default_run_path(plan.name), False
    if world.first and not over:  # it makes the directory, maybe before another process has come this far
        first, begun = first_value(f"run/{next(BEGUN)}", str(path))
        path = Path(first)
        if not begun:
            check_free_for_run(path, config.command)
    if config.training.computed.deterministic:
        os.environ.setdefault(*CUBLAS_WORKSPACE)
    config = with_training(config, precision=place.precision(config))  # before config.toml is written
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
            f"{Param('batch_size')} auto needs the whole model, and {Param('shard')} is for those that do "
            "not fit: pass a "
            "number, and training.machine.grad_accum_steps for micro-batches"
        )
    # All processes measure, or none: an objective may compare the images of all.
    machine = config.training.computed
    unsure = not machine.shard and config.step_bytes > free_bytes(place.device) / 4
    unsure = machine.grad_accum_steps == 1 and world.any((unsure,))[0]
    if fit_memory or unsure:
        parts = parts_that_fit(plan.task, config, plan.data, place)
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
            RunDirectory.after_first_model(path, config)
        world.broadcast(None)  # its config.toml is written
        run = RunDirectory.open(path, type(config))
    else:
        run = RunDirectory.shared(path, config, world, recorded_parts(plan.data), begun=begun)
    if plan.compared:
        plan.compared.begin(run)
    run = run.in_force(place)
    return replace(plan, config=run.config, run=run).with_reasons(*notes)


def task_to_resume(path: Path, command: str, task: str | None) -> AnyTask:
    """Return the task of a run that is to be continued. Raises InputError if `resume_run` does."""
    kind = task_of_run(path)
    if kind.config.command != command:
        raise InputError(other_command(kind, path, command))
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
    place: Place = ON_CPU,
    shard: bool | None = None,
    length: str | None = None,
    data: str | None = None,
) -> AnyPlan:
    """Open a run that continues from its newest state.

    Args:
        command: that is used; a run of another command says which.
        task: that is expected; None: the run's.
        shard: whether its weights are sharded from now on; None: as it was begun.
        length, data: its length in all, and where its data are now; None: as it was planned.

    Raises:
        InputError: it is not a run, or of another command or task; or its data are gone.
    """
    kind = task_to_resume(path, command, task)
    run, note = open_run(path).with_data(data), ""
    opened = kind.open_data(run.config, run.split)
    if place.world.first and data is not None:
        run.write_config()
    if length is not None:
        run, note = run.extended(place.world, length)
    if shard is not None:
        run = run.with_training(machine=run.config.training.computed.model_copy(update={"shard": shard}))
    return plan_of_run(run, opened, place).with_reasons(*filter(None, [note]))


def plan_of_run(run: RunDirectory[CommandConfig], data: Any, place: Place = ON_CPU) -> AnyPlan:
    """Return the plan of a run whose directory is there, on these data."""
    run = run.in_force(place)
    return Plan(task_named(run.config.task), run.config, data, run.path.name, run=run)


def recorded_parts(data: Any) -> Mapping[str, ImageDataset]:
    """Return the images that a run's split.csv lists, by part; none for data of another kind."""
    if not isinstance(data.train, ImageDataset):
        return {}
    return named_parts(data.train, data.validation, data.test)


def open_run(path: Path) -> RunDirectory[CommandConfig]:
    """Open a run directory of any task."""
    return RunDirectory.open(path, task_of_run(path).config)


def parts_that_fit(task: AnyTask, config: RunConfig, data: object, place: Place) -> int:
    """Return into how many micro-batches a batch is split so that it fits into the memory."""
    training, device = config.training, place.device
    model = task.build(config, data, steps=1).to(device)
    images = torch.zeros(2, config.model.channels, *config.model.image_size, device=device)
    forward = partial(model, generator=torch.Generator()) if task.info.generator else model
    with activation_checkpointing(model) if training.computed.checkpointing else nullcontext():
        free = free_bytes(device) // (processes_here() if device.type == "cpu" else 1)
        return accumulation(model, images, place.world.share(training.batch_size), free, forward=forward)
