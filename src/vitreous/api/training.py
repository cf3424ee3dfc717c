"""`vitreous.train`: from options to settings, and to a run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, cast

from pydantic import ValidationError

from vitreous.api.arguments import path_of_run, say, settings_tree, silent
from vitreous.api.data_source import data_source
from vitreous.api.run import Run, check_one_length, check_shard, train_in_processes
from vitreous.errors import InputError, Param
from vitreous.languages.terminal import said
from vitreous.models.settings import set_leaf
from vitreous.tasks import task_named
from vitreous.tasks.task import AnyPlan, AnyTask, Tree, check_options
from vitreous.tasks.training_run import with_run
from vitreous.training.clock import Clock
from vitreous.training.config import MachineConfig, length_of
from vitreous.training.distributed import WAITING
from vitreous.training.machine import Place, pick_device
from vitreous.training.options import SETTINGS, ImageOptions, Option, TrainOptions, with_options

if TYPE_CHECKING:
    from vitreous.tasks.forecast import Forecast

TRY = "try:"  # before a checkpoint that --init names, which is compared with the others


@with_options(TrainOptions)
def train(data: object = None, **options: Unpack[TrainOptions]) -> Run:
    """Train or fine-tune a model on images, evaluate it on the held-out part, and write a report and a model
    card.

    For `deterministic`, `strict` and `split_by_time`, None means the value in `config`, and False turns the
    option off. With `dry_run`, this returns a `Forecast`.

    Example:
        >>> run = vt.train("photos/", init="none", epochs=2, out="runs/new", progress=False)
        >>> run.evaluation.count, run.evaluation.accuracy >= 0
        (4, True)
        >>> run.report.name
        'report.html'

    Args:
        data: a folder with a sub-folder for each class, a manifest, shards, "cifar10:PATH", "hf:NAME"; or in
            memory: a torch Dataset, a Hugging Face dataset, (images, labels), or a list of (image, label). By
            default the small dataset of the task, such as the digits.
        options: of `TrainOptions`.

    Raises:
        InputError: data, settings or options that contradict each other.
        Interrupted: after Ctrl-C or SIGTERM, once a checkpoint has been saved: `Run(path).resume()`
            continues.
    """
    check_one_length(minutes=options.get("minutes"), epochs=options.get("epochs"))
    settings = settings_of(options)
    task = task_named(str(options.get("task") or settings.get("task", "classification")))
    if task.config.command != "train":
        raise InputError(f"the task {task.name} is trained by vitreous {task.config.command}")
    given = {name: options.get(name) for name in (*ImageOptions.__annotations__, "recipe")}
    check_options(task, "train", **given, batch_size="auto" if options.get("batch_size") == "auto" else None)
    source = None if data is None else data_source(data, task.info.targets, settings)
    return start_training(task, source, settings, options)


@dataclass(frozen=True)
class TrainRequest:
    """What is to be trained.

    Attributes:
        source: DATA as a text; None: the task's own.
        settings: those of the file and of the options, as a tree.
        init: the weights to start from; None where they follow from the data.
    """

    task: AnyTask
    source: str | None
    settings: Tree
    init: str | None = None
    recipe: str | None = None

    @classmethod
    def of(
        cls, task: AnyTask, source: str | None, settings: Tree, options: Mapping[str, Any]
    ) -> TrainRequest:
        """Return the request that the options of a command make. Raises InputError: `init` or `recipe` is
        none."""
        init, recipe = options.get("init"), options.get("recipe")
        if init is not None:
            path = path_of_run(init)
            if not isinstance(path, str | Path):
                kind = type(init).__name__
                raise InputError(
                    f"init is a path, or a Run, not a {kind}: vitreous.save it, and pass that path"
                )
            init = str(path)
        if init == "none":
            # An explicit None is a setting, which keeps candidates from being compared.
            init, settings = None, {**settings, "init": None}
        for name, value in ((Param("init"), init), (Param("recipe"), recipe)):
            if value in ("", TRY):
                raise InputError(f"{name} is empty: is a variable not set? Name one, or leave it out")
        return cls(task, source, settings, init, recipe)

    def is_open(self) -> bool:
        """Return whether candidates are compared: nothing says what is to be trained, or a checkpoint is to
        be tried. Raises InputError: they cannot be."""
        fixed = sorted({"model", "init", "recipe"} & self.settings.keys())
        fixed = fixed or (["recipe"] if self.recipe else [])
        if self.init is None or not self.init.startswith(TRY):
            asked = fixed or self.init or self.source in (None, "digits")
            return self.task.info.compares and not asked
        if not self.task.info.compares:
            raise InputError(
                f"{Param('init')} {self.init}: candidates are not compared for {Param('task')} "
                f"{self.task.name}: leave out {TRY}"
            )
        if fixed:
            raise InputError(
                f"{Param('init')} {self.init} compares candidates, and `{fixed[0]}` names one: leave one of "
                "the two out"
            )
        return True


def settings_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a run: those of the file, overridden by `settings` and by the options that set
    one."""
    check_shard(options.get("shard"))
    tree = settings_tree(options.get("settings"), options.get("config"))
    for name, option in SETTINGS.items():
        value = options.get(name)
        if value is None or (value == "auto" and name == "batch_size"):
            continue
        if option.on is None:
            set_leaf(tree, option.sets, os.path.abspath(value) if name == "exclude" else value)
        elif value:
            set_leaf(tree, option.sets, option.on)
        else:
            switch_off(tree, option)
    length = length_of(
        epochs=options.get("epochs"), steps=options.get("steps"), minutes=options.get("minutes")
    )
    if length is not None:
        set_leaf(tree, "training.length", length)
    return tree


def switch_off(tree: dict[str, Any], option: Option) -> None:
    """Take the setting of a switch out of settings that have it on, with those that belong to that value:
    the default holds again."""
    *groups, name = option.sets.split(".")
    for group in groups:
        tree = tree.get(group, {})
    if tree.get(name) == option.on:
        for each in (name, *option.with_it):
            tree.pop(each, None)


def start_training(
    task: AnyTask, source: str | None, settings: Tree, options: Mapping[str, Any], **evaluation: object
) -> Run:
    """Make a run and train it, in all processes; of a dry run, return the forecast.

    Args:
        source, settings: as `TrainRequest` has them.
        options: of the command.
        evaluation: options of the evaluation.
    """
    # Minutes count from here, and not from the first step.
    clock = Clock.of_call()
    request = TrainRequest.of(task, source, settings, options)
    if options.get("dry_run"):
        return cast("Run", forecast_of(request, options["device"]))  # what `train` promises without it
    out = None if options["out"] is None else Path(options["out"])

    # Called in every process once they have met, as they decide together: the first one compares candidates
    # and the others wait for what comes out. A user who says what to train (a model, a checkpoint, a recipe)
    # gets that, without a comparison.
    def start(place: Place) -> AnyPlan:
        if request.is_open():
            # This imports much, and is not needed where the user says what to train.
            from vitreous.tasks.trials import plan_by_trials

            plan = plan_by_trials(
                task.plan(source, request.settings),
                request.settings,
                given=None if request.init is None else request.init.removeprefix(TRY),
                out=out,
                offline=options["offline"],
                tell=say if options["progress"] and place.world.first else silent,
                clock=clock,
                place=place,
            )
        else:
            plan = task.plan(source, request.settings, recipe=request.recipe, init=request.init)
            plan = replace(plan, clock=clock)
        return with_run(
            plan, request.settings, place, out=out, fit_memory=options.get("batch_size") == "auto"
        )

    return train_in_processes(
        start,
        device=options["device"],
        callbacks=options["callbacks"],
        progress=options["progress"],
        language=options["language"],
        waiting=minutes_of_waiting(settings),
        **evaluation,
    )


def minutes_of_waiting(settings: Tree) -> float:
    """Return how long processes wait for each other: they meet before the settings are checked, with which a
    number that is none is refused."""
    try:
        machine = MachineConfig.model_validate(settings.get("training", {}).get("machine") or {})
    except ValidationError:
        return WAITING
    return machine.timeout


def forecast_of(request: TrainRequest, device: str) -> Forecast:
    """Return the forecast of a training run. Raises InputError if `start_training` does, or if
    there are several processes."""
    from vitreous.tasks.forecast import forecast  # of dry runs alone

    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise InputError(f"{Param('dry_run')} times a single process: leave out torchrun")
    init, notes = request.init, list[str]()
    if request.is_open():
        init = None if init is None else init.removeprefix(TRY)
        notes.append(
            said(
                "candidates are compared first, within the same time: this estimate is for the training only"
            )
        )
    plan = request.task.plan(request.source, request.settings, recipe=request.recipe, init=init)
    return forecast(plan, Place(pick_device(device)), tuple(notes))
