"""The tables that everything else is found by: of the tasks, and of the add-ons with what one of them can
contribute. They import nothing heavy; what they name by an address "module:name" is imported with `imported`
where it is needed.

An add-on is a folder of `vitreous/addons/`. It imports the core, and the core knows it by a row of `ADDONS`
alone. `ADDON` in its `__init__.py` says what it contributes; the core asks `addons()` where it lists
commands, public names, tasks and so on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

# Every add-on, by the name of its folder; in the order of `vitreous --help`.
ADDONS = ("optimize", "serving", "segmentation", "text", "self_supervision", "studies", "learn_page")


class Command(NamedTuple):
    """A row of `vitreous --help`: the module with its function, and two examples (a test runs them).

    Attributes:
        texts: whether its arguments are texts: an empty one is one, too.
    """

    summary: str
    module: str
    examples: tuple[str, str]
    texts: bool = False


class Kind(NamedTuple):
    """A kind of model: addresses, and what its names are.

    Attributes:
        config: the class of its configuration.
        build: a function (config, **attributes) that makes a model, or its class.
        task: what its models are for.
        prefix: how the names of its models begin; "" where they have none.
        named: a function (name) that returns the fields of the configuration that a name stands for.
        parameters: of each name that `list_models` lists.
        source: where the sizes of these are from.
        inspect: a function (answerer, examples, folder, request) that writes the page of `vitreous inspect`
            on images with their names, or on texts; "" where its page is that of a ViT.
        drawings: a table {part: function (config)} of `vitreous.inspection.drawing`; "" where there is none.
        sees: whether it sees images, and has a preprocessing.
        overridable: whether fields of the configuration can be changed when a model is loaded.
    """

    config: str
    build: str
    task: str
    prefix: str = ""
    named: str = ""
    parameters: Mapping[str, int] = MappingProxyType({})
    source: str = ""
    inspect: str = ""
    drawings: str = ""
    sees: bool = True
    overridable: bool = True


# What the outputs of a model's head are: logits of classes that exclude each other or that do not, numbers in
# the unit of the labels, or something that only its task can read.
OutputKind = Literal["softmax", "sigmoid", "number", "own"]
CLASSES: tuple[OutputKind, ...] = ("softmax", "sigmoid")


class TaskRow(NamedTuple):
    """A row of the table of tasks: where a task is, and what is asked of it before it is imported.

    Attributes:
        module: in whose `DEFINED` it is.
        outputs: what the outputs of its models are: whatever has a model and no task (exported files, the
            programs that run them, averages of views) reads answers by this.
        command: that trains it.
        pipeline: what the Hugging Face hub calls it.
        check: the address of a function (data, workers=) that returns the report of `data check`; "" where
            there is none.
        folders: names that folders of its data have, of one kind and of another: two such folders are no
            classes.
        data_help: what DATA is with it, in the help of `train`.
    """

    module: str
    outputs: OutputKind = "own"
    command: str = "train"
    pipeline: str = ""
    check: str = ""
    folders: tuple[tuple[str, ...], ...] = ()
    data_help: str = ""


# The tasks of the core, to which a program can add its own; those of add-ons are in their rows. The first is
# that of a head without a task.
IMAGE_CLASSES = "vitreous.tasks.classification"
TASKS = {
    "classification": TaskRow(IMAGE_CLASSES, outputs="softmax", pipeline="image-classification"),
    "multilabel": TaskRow(IMAGE_CLASSES, outputs="sigmoid", pipeline="image-classification"),
    "regression": TaskRow("vitreous.tasks.regression", outputs="number"),
    "masked-patch": TaskRow("vitreous.tasks.pretraining.task", command="pretrain"),
    "mae": TaskRow("vitreous.tasks.pretraining.task", command="pretrain"),
}


class FormatRow(NamedTuple):
    """A row of the table of checkpoint formats: the address of its `Format`, whether it is written, and the
    descriptions that it reads beside config.json."""

    address: str
    written: bool = True
    sidecars: tuple[str, ...] = ()


# The checkpoint formats of the core, in the order of detection (DINOv2's keys are timm's and one more); those
# of add-ons are in their rows. Help names them before any is imported.
CODEBASES = "vitreous.checkpoints.formats"
FORMATS = {
    "vitreous": FormatRow("vitreous.checkpoints.native:VITREOUS"),
    "google": FormatRow(f"{CODEBASES}.google:GOOGLE"),
    "bit": FormatRow(f"{CODEBASES}.bit:BIT"),
    "torchvision": FormatRow(f"{CODEBASES}.torchvision:TORCHVISION"),
    "vit-pytorch": FormatRow(f"{CODEBASES}.vit_pytorch:VIT_PYTORCH"),
    "frankzvit": FormatRow(f"{CODEBASES}.state_dicts:FRANKZVIT"),
    "pytorch-pretrained-vit": FormatRow(f"{CODEBASES}.pretrained_vit:PRETRAINED_VIT", written=False),
    "jeonsworld": FormatRow(f"{CODEBASES}.pretrained_vit:JEONSWORLD", written=False),
    "monai": FormatRow(f"{CODEBASES}.monai:MONAI", written=False),
    "vit-5": FormatRow(f"{CODEBASES}.vit5:VIT5"),
    "efficientnet-lite": FormatRow(f"{CODEBASES}.efficientnet_lite:EFFICIENTNET_LITE", written=False),
    "openmmlab": FormatRow(f"{CODEBASES}.openmmlab:OPENMMLAB", written=False),
    "aimv2": FormatRow(f"{CODEBASES}.aimv2:AIMV2"),
    "huggingface": FormatRow(
        f"{CODEBASES}.huggingface_writing:HUGGINGFACE",
        sidecars=("preprocessor_config.json", "processor_config.json"),
    ),
    "perception-encoder": FormatRow(f"{CODEBASES}.perception_encoder:PERCEPTION_ENCODER", written=False),
    "open-clip": FormatRow(f"{CODEBASES}.open_clip:OPEN_CLIP", sidecars=("open_clip_config.json",)),
    "dinov3": FormatRow(f"{CODEBASES}.dinov3:DINOV3"),
    "dinov2": FormatRow(f"{CODEBASES}.state_dicts:DINOV2"),
    "timm": FormatRow(f"{CODEBASES}.timm_writing:TIMM"),
}
WRITTEN_FORMATS = ", ".join(name for name, row in FORMATS.items() if row.written)


class DataKind(NamedTuple):
    """A kind of DATA, written `KIND:REST`: the address of a function (rest, config) that returns its parts by
    name, how it is written, in messages, and whether a validation set is split off by default."""

    opened: str
    form: str
    validated: bool = True


@dataclass(frozen=True, kw_only=True)
class Addon:
    """What one add-on contributes.

    Attributes:
        commands: of the command line; a command `a b` is the function `b` of its module, which parses and
            prints.
        names: public names of `vitreous`, with their modules. Type checkers read them in
            `addons/names.pyi`.
        tasks: by their names.
        kinds: of models, by the names of their classes.
        formats: addresses of `Format`s, which are asked before those of the core whether a file is theirs.
        sources: kinds of DATA, by their names.
        recipes: of `train` and `pretrain`, files by their places in its folder.
        caches: kinds of what it keeps in the cache, each with what that is.
        published: for each model_type of transformers that it reads, the task of such models.
        families: of models that it reads, each with its format.
        next_steps: for each training command what can be done after it, by the name of a sentence in
            `head.commands` of the catalog.
        reads_outputs: whether these steps read what a model gives by the `outputs` of its task, and are
            nothing for a task with outputs of its own.
        pages_of_runs: addresses of functions (run, model, images) that write a page beside a report. They
            return its file's name and the words of the link to it; None where there is no such page.
        programs: addresses of `ProgramFormat`s, formats of exported models.
        writers: addresses of tables of `Writer`s of exported models, by (format, precision).
        substitutes: addresses of functions (model) that return the `Substitute` that computes MODEL in its
            place, or None.
        imports: other add-ons that it imports.
        words: whether its folder has en.toml and ko.toml, which extend the catalogs of the core.
    """

    commands: Mapping[str, Command] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    tasks: Mapping[str, TaskRow] = field(default_factory=dict)
    kinds: Mapping[str, Kind] = field(default_factory=dict)
    formats: tuple[str, ...] = ()
    sources: Mapping[str, DataKind] = field(default_factory=dict)
    recipes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    caches: Mapping[str, str] = field(default_factory=dict)
    published: Mapping[str, str] = field(default_factory=dict)
    families: Mapping[str, str] = field(default_factory=dict)
    next_steps: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    reads_outputs: bool = False
    pages_of_runs: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    writers: tuple[str, ...] = ()
    substitutes: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    words: bool = False


@cache
def addons() -> Mapping[str, Addon]:
    """Return every add-on, by the name of its folder."""
    return {name: import_module(f"vitreous.addons.{name}").ADDON for name in ADDONS}


@cache
def kinds() -> Mapping[str, Kind]:
    """Return the kinds of models of all add-ons, by the names of their classes."""
    return {name: kind for addon in addons().values() for name, kind in addon.kinds.items()}


def kind_of(config: object) -> Kind | None:
    """Return the kind of model that a configuration is of; None for those of the core."""
    address = f"{type(config).__module__}:{type(config).__qualname__}"
    return next((kind for kind in kinds().values() if kind.config == address), None)


def folder_of(name: str) -> Path:
    """Return the folder of an add-on."""
    return Path(__file__).parent / "addons" / name


def imported(address: str) -> Any:
    """Return what has the address "module:name"."""
    module, _, name = address.partition(":")
    return getattr(import_module(module), name)


def tasks() -> Mapping[str, TaskRow]:
    """Return every task by its name, those of the core first."""
    rows = dict(TASKS)
    for addon in addons().values():
        rows |= addon.tasks
    return rows


def objectives() -> tuple[str, ...]:
    """Return the objectives of pre-training, those of add-ons first; the first is that of a run which names
    none."""
    names = [name for name, row in tasks().items() if row.command == "pretrain"]
    return tuple(sorted(names, key=TASKS.__contains__))


def outputs_of(model: object) -> OutputKind:
    """Return what the outputs of a model are, or of what has one as `model`; of a head without a task those
    of a classifier, of a task that is in no table its own."""
    return outputs_of_task(getattr(getattr(model, "model", model), "task", None))


def outputs_of_task(name: str | None) -> OutputKind:
    """Return what the outputs of a model for a task are."""
    row = tasks().get(next(iter(TASKS)) if name is None else name)
    return row.outputs if row else "own"


def recipe_files(command: str) -> list[Path]:
    """Return the files of recipes of all add-ons for `train` or `pretrain`."""
    found = []
    for name, addon in addons().items():
        found += [folder_of(name) / place for place in addon.recipes.get(command, ())]
    return found


def task_of_folders(classes: Collection[str]) -> str | None:
    """Return the task of an add-on, where what was taken for classes are the folders of its data."""
    for name, task in tasks().items():
        kinds = [set(classes) & set(names) for names in task.folders]
        if kinds and all(kinds) and len(classes) == len(kinds):
            return name
    return None


def contributed(what: str) -> Iterator[Any]:
    """Import what the addresses of all add-ons in the field `what` are of, one after the other."""
    for addon in addons().values():
        for address in getattr(addon, what):
            yield imported(address)
