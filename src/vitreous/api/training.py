"""`vitreous.train` and `pretrain`, and the recipes that they follow."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, cast

from vitreous.api.arguments import ImageSize, ModelLike, Settings, path_of_run, say, settings_tree, silent
from vitreous.api.data_source import data_source
from vitreous.api.run import GivenCallbacks, Run, check_length, check_shard, train_in_processes
from vitreous.errors import InputError, LazyModule, Param
from vitreous.languages.terminal import said
from vitreous.models.settings import set_leaf
from vitreous.tasks import task_named
from vitreous.tasks.forecast import Forecast, forecast
from vitreous.tasks.openness import TRY, is_open
from vitreous.tasks.task import AnyPlan, AnyTask, Tree
from vitreous.tasks.training_run import with_run
from vitreous.training.clock import Clock
from vitreous.training.config import length_of
from vitreous.training.distributed import WAITING
from vitreous.training.place import Place
from vitreous.training.precision import pick_device

if TYPE_CHECKING:
    from vitreous.tasks import trials
else:  # only a run of which nothing else is asked tries candidates
    trials = LazyModule("vitreous.tasks.trials")

# The setting that an option is short for.
OF_TRAINING = "batch_size", "precision"
OF_MACHINE = "deterministic", "shard"
LEAVES = {
    "model": "model.name",
    "image_size": "model.image_size",
    **{name: f"training.{name}" for name in OF_TRAINING},
    **{name: f"training.machine.{name}" for name in OF_MACHINE},
    "exclude": "data.split.exclude",
    "workers": "data.reading.workers",
    "group_by": "data.split.group_by",
    "seed": "seed",
}
# What an option that is a switch sets, and the settings beside it that only then have a meaning.
SWITCHES: dict[str, tuple[str, object, tuple[str, ...]]] = {
    "strict": ("data.reading.bad_files", 0.0, ()),
    "split_by_time": ("data.split.kind", "time", ("time",)),
}
# What only tasks with images understand.
OF_IMAGES = (
    *("model", "init", "recipe", "image_size", "minutes", "workers", "strict"),
    *("group_by", "split_by_time", "exclude"),
)


class TrainingOptions(TypedDict, total=False):
    """What every training may be given; `train` says what it means."""

    epochs: int | float | None
    batch_size: int | None
    out: str | Path | None
    device: str
    precision: str | None
    shard: bool | None
    deterministic: bool | None
    seed: int | None
    settings: Settings | None
    config: str | Path | None
    callbacks: GivenCallbacks
    progress: bool
    language: str | None


def train(
    data: object = None,
    *,
    task: str | None = None,
    model: str | None = None,
    init: ModelLike | None = None,
    recipe: str | None = None,
    image_size: ImageSize | None = None,
    epochs: int | float | None = None,
    minutes: int | float | None = None,
    batch_size: int | Literal["auto"] | None = None,
    out: str | Path | None = None,
    device: str = "auto",
    precision: str | None = None,
    shard: bool | None = None,
    deterministic: bool | None = None,
    seed: int | None = None,
    workers: int | None = None,
    strict: bool | None = None,
    group_by: str | None = None,
    split_by_time: bool | None = None,
    exclude: str | Path | None = None,
    offline: bool = False,
    dry_run: bool = False,
    settings: Settings | None = None,
    config: str | Path | None = None,
    callbacks: GivenCallbacks = (),
    progress: bool = True,
    language: str | None = None,
) -> Run:
    """Train or fine-tune a model on images; evaluate it on the held-out part, write the report and the card.

    Args:
        data: a folder with a sub-folder for each class, a manifest, shards, "cifar10:PATH", "hf:NAME"; or in
            memory: a torch Dataset, a Hugging Face dataset, (images, labels), a list of (image, label). By
            default the task's own small data: the digits.
        task: classification (the default), multilabel, regression, or a task of an add-on.
        model: the architecture, with fresh weights: ViT-S/16, R50+ViT-B/16 ...; by default it follows from
            the data.
        init: pre-trained weights to start from: hf:google/vit-base-patch16-224, a run, a checkpoint of any
            format. try:CHECKPOINT compares it with the other candidates, of which the best becomes the model.
            none: random weights, without a comparison.
        recipe: the name of a recipe (vitreous recipe lists them); by default it follows from the data.
        image_size: pixels of the images that the model takes: 384, or (height, width); by default its own.
        epochs: number of epochs; the total, when resuming.
        minutes: minutes of training, instead of epochs; the total, when resuming.
        batch_size: images in each step; auto: the number of the recipe, in micro-batches that fit the memory.
        out: the run directory; by default a new one in runs/.
        device: auto, cpu, cuda, cuda:N or mps; auto is a GPU where there is one.
        precision: auto (the default), fp32, bf16, or fp8 on GPUs that have it.
        shard: under torchrun, shard the weights over the processes (FSDP).
        deterministic: compute the same bits each time, on the same machine; slower. None, here and of
            `strict` and `split_by_time`: as `config` has it; False undoes what that switches on.
        seed: random seed of initialization, shuffling and augmentation.
        workers: threads that decode images; by default one for each core.
        strict: stop at an image that cannot be read, instead of leaving it out.
        group_by: keep images of one group (a patient, a video) in one part: a column of the manifest, or a
            regular expression that is searched in the name of each image.
        split_by_time: hold out the newest images, by when a camera took them; the setting data.split.time
            names another source of the time.
        exclude: a CSV file whose column path names images to leave out; `check_data` writes one beside its
            report.
        offline: never ask the Hugging Face hub for an encoder to begin with; one in its cache is used.
        dry_run: train nothing and write nothing, and return a `Forecast`: what would be read, the steps, the
            batch, the memory and the time, from a batch that is read and two steps that are timed.
        settings, config: any leaf of the configuration, {"training.peak_lr": 1e-3}; and a TOML file of them.
        callbacks: `vitreous.training.callbacks.Callback` objects, or functions that get each row of metrics.
        progress: show progress, and why the recipe was chosen, on stderr.
        language: language of the report: en or ko; by default that of the locale.

    Raises:
        InputError: data, settings or options that do not fit together.
        Interrupted: Ctrl-C or SIGTERM came, and the state is saved: `Run(path).resume()` continues.
    """
    options = dict(locals())
    check_length(minutes=minutes, epochs=epochs)
    fit_memory = batch_size == "auto"
    options["batch_size"] = None if fit_memory else batch_size
    tree = run_settings(options)
    named = task_named(str(task or tree.get("task", "classification")))
    if named.config.command != "train":
        raise InputError(f"the task {named.name} is trained by vitreous {named.config.command}")
    given = {name: options[name] for name in OF_IMAGES}
    named.check_options("train", **given, batch_size="auto" if fit_memory else None)
    source = None if data is None else data_source(data, named.about.targets, tree)
    return start_training(named, source, tree, {**options, "fit_memory": fit_memory})


def run_settings(options: Tree) -> dict[str, Any]:
    """Return the settings of a run: those of the file, `settings` over them, then the options."""
    check_shard(options.get("shard"))
    tree = settings_tree(options.get("settings"), options.get("config"))
    for option, (leaf, on, others) in SWITCHES.items():
        if options.get(option):
            set_leaf(tree, leaf, on)
        elif options.get(option) is False:
            switch_off(tree, leaf, on, others)
    for option, leaf in LEAVES.items():
        if (value := options.get(option)) is not None:
            set_leaf(tree, leaf, os.path.abspath(value) if option == "exclude" else value)
    length = length_of(
        epochs=options.get("epochs"), steps=options.get("steps"), minutes=options.get("minutes")
    )
    if length is not None:
        set_leaf(tree, "training.length", length)
    return tree


def switch_off(tree: dict[str, Any], leaf: str, on: object, others: tuple[str, ...]) -> None:
    """Take a leaf out of settings that have the value `on` there, with the others of its group that belong
    to that value: the default holds again."""
    *groups, name = leaf.split(".")
    for group in groups:
        tree = tree.get(group, {})
    if tree.get(name) == on:
        for each in (name, *others):
            tree.pop(each, None)


def start_training(
    task: str | AnyTask,
    source: str | None,
    settings: Tree,
    options: Tree,
    **evaluation: object,
) -> Run:
    """Make a run of a task and train it, in all processes.

    Args:
        options: of `train`.
        evaluation: options of the evaluation.
    """
    clock = Clock()
    init, out = options.get("init"), options.get("out")
    if init is not None:
        path = path_of_run(init)
        if not isinstance(path, str | Path):
            raise InputError(
                f"init is a path, or a Run, not a {type(init).__name__}: vitreous.save it, and give that path"
            )
        init = str(path)
    if init == "none":
        init, settings = None, {**settings, "init": None}  # an explicit setting: no trial
    for name, value in ((Param("init"), init), (Param("recipe"), options.get("recipe"))):
        if value in ("", TRY):
            raise InputError(f"{name} is empty: is a variable not set? Name one, or leave it out")

    if options.get("dry_run"):
        found = forecast_of(task, source, settings, {**options, "init": init})
        return cast("Run", found)  # what `train` promises without the option

    def start(place: Place) -> AnyPlan:
        named = task_named(task) if isinstance(task, str) else task
        recipe, begin, folder = options.get("recipe"), init, None if out is None else Path(out)
        if is_open(named, source, settings, recipe, begin):
            given = None if begin is None else begin.removeprefix(TRY)
            plan = trials.plan_by_trials(
                named.plan(source, settings),
                settings,
                given=given,
                out=folder,
                offline=bool(options.get("offline")),
                tell=say if options.get("progress", True) and place.world.first else silent,
                clock=clock,
                place=place,
            )
        else:
            plan = replace(named.plan(source, settings, recipe=recipe, init=begin), clock=clock)
        return with_run(plan, settings, place, out=folder, fit_memory=bool(options.get("fit_memory")))

    machine = settings.get("training", {}).get("machine")
    waiting = machine.get("timeout") if isinstance(machine, Mapping) else None
    if not isinstance(waiting, int | float) or waiting <= 0:  # another value is refused with the settings
        waiting = WAITING
    return train_in_processes(
        start,
        device=options.get("device", "auto"),
        callbacks=options.get("callbacks", ()),
        progress=options.get("progress", True),
        language=options.get("language"),
        waiting=waiting,
        **evaluation,
    )


def forecast_of(task: str | AnyTask, source: str | None, settings: Tree, options: Tree) -> Forecast:
    """Return what a training would be. Raises InputError: as `start_training`; or several processes ask."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise InputError(f"{Param('dry_run')} times a single process: leave out torchrun")
    named = task_named(task) if isinstance(task, str) else task
    recipe, init, notes = options.get("recipe"), options.get("init"), list[str]()
    if is_open(named, source, settings, recipe, init):
        init = None if init is None else init.removeprefix(TRY)
        notes.append(said("candidates are compared first, within the same time: this is the training alone"))
    plan = named.plan(source, settings, recipe=recipe, init=init)
    return forecast(plan, Place(pick_device(options.get("device", "auto"))), tuple(notes))
