"""What an option is, and those of a training, each written once: its type, what it means, and the setting
that it is short for. From these are the signature and the docstring of the Python function, the option of the
command with its help, the settings of the run, and what a task understands. `vitreous.api.options` has those
of everything that is done with a model.

Only types are imported: the help of a command is read before PyTorch is.
"""

import inspect
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from pathlib import Path
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    ForwardRef,
    Literal,
    NamedTuple,
    Protocol,
    TypeAlias,
    TypedDict,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    runtime_checkable,
)

from vitreous.extensions import objectives, tasks

if TYPE_CHECKING:
    from torch import nn

    from vitreous.training.callbacks import Callback, MetricsRow

FunctionT = TypeVar("FunctionT", bound=Callable[..., object])
TASKS = [name for name, task in tasks().items() if task.command == "train"]
OBJECTIVES = objectives()


@runtime_checkable
class RunLike(Protocol):
    """A run in memory, which has a folder: of `vitreous.train`, or `vitreous.Run.open`."""

    @property
    def path(self) -> Path: ...
    @property
    def resume(self) -> Callable[..., object]: ...


@runtime_checkable
class HasModel(Protocol):
    """What answers with a model that it has."""

    @property
    def model(self) -> "nn.Module": ...


# MODEL: a path or name, a run, or a module of vitreous, timm, transformers ...
ModelLike: TypeAlias = "str | Path | RunLike | HasModel | nn.Module"
ImageSize = int | tuple[int, int]
Settings = Mapping[str, object]


class Option(NamedTuple):
    """What there is to know of an option beside its type.

    Attributes:
        text: what it means, in the help and in the docstring.
        sets: the setting that it is short for.
        on: of a switch the value that True sets; False undoes it where a file has it.
        with_it: settings of the same group that have a meaning only with that value.
        default: of the Python function.
        in_python: whether only the Python function has it.
        in_shell: the help, where the option is written otherwise there.
        of: of what is asked of a model, what only some tasks have: the "labels" of images, or the "images"
            themselves; "": every task has it.
    """

    text: str
    sets: str = ""
    on: object = None
    with_it: tuple[str, ...] = ()
    default: object = None
    in_python: bool = False
    in_shell: str = ""
    of: str = ""


DeviceOption = Annotated[
    str, Option("auto, cpu, cuda, cuda:N or mps; auto is a GPU if there is one", default="auto")
]
ANY_SETTING = "any setting of the configuration; can be repeated: --set model.depth=6"
SIZE = "input size of the model in pixels: 384, or 384x512 (height x width)"
ConfigFile = Annotated[str | Path | None, Option("a TOML file of such settings", of="images")]


class RunOptions(TypedDict, total=False):
    """Options of every training."""

    epochs: Annotated[int | float | None, Option("number of epochs; the total, when resuming")]
    out: Annotated[str | Path | None, Option("the run directory; by default a new one in runs/")]
    device: DeviceOption
    precision: Annotated[
        str | None,
        Option("auto (the default), fp32 or bf16", sets="training.precision"),
    ]
    shard: Annotated[
        bool | None,
        Option("under torchrun, shard the weights over the processes (FSDP)", sets="training.machine.shard"),
    ]
    deterministic: Annotated[
        bool | None,
        Option(
            "give bit-identical results on the same machine; slower", sets="training.machine.deterministic"
        ),
    ]
    seed: Annotated[
        int | None, Option("random seed of initialization, shuffling and augmentation", sets="seed")
    ]
    settings: Annotated[
        "Settings | None",
        Option('any setting of the configuration: {"training.peak_lr": 1e-3}', in_shell=ANY_SETTING),
    ]
    config: ConfigFile
    callbacks: Annotated[
        "Iterable[Callback | Callable[[MetricsRow], object]]",
        Option(
            "`vitreous.training.callbacks.Callback` objects, or functions that get each row of metrics",
            default=(),
            in_python=True,
        ),
    ]
    progress: Annotated[
        bool,
        Option(
            "show progress, and why the recipe was chosen, on stderr",
            default=True,
            in_python=True,
        ),
    ]
    language: Annotated[str | None, Option("language of the report: en or ko; by default that of the locale")]


class ImageOptions(TypedDict, total=False):
    """Options of a training on images."""

    model: Annotated[
        str | None,
        Option(
            "the architecture, with fresh weights: ViT-S/16, R50+ViT-B/16 ...; by default chosen from "
            "the data",
            sets="model.name",
        ),
    ]
    init: Annotated[
        "ModelLike | None",
        Option(
            "pre-trained weights to start from: hf:google/vit-base-patch16-224, a run, a checkpoint of any "
            "format. try:CHECKPOINT compares it with the other candidates, the best of which becomes the "
            "model. none: random weights, without a comparison"
        ),
    ]
    image_size: Annotated[
        "ImageSize | None",
        Option(
            "input size of the model in pixels: 384, or (height, width); by default its own",
            sets="model.image_size",
            in_shell=SIZE,
        ),
    ]
    minutes: Annotated[
        int | float | None,
        Option("minutes from the command to its report, instead of epochs; the total, when resuming"),
    ]
    workers: Annotated[
        int | None,
        Option("number of threads that decode images; by default one per core", sets="data.reading.workers"),
    ]
    strict: Annotated[
        bool | None,
        Option(
            "stop at the first image that cannot be read, instead of leaving it out",
            sets="data.reading.bad_files",
            on=0.0,
        ),
    ]
    group_by: Annotated[
        str | None,
        Option(
            "keep images of one group (a patient, a video) in the same set: a column of the manifest, or a "
            "regular expression that finds the group in the name of each image",
            sets="data.split.group_by",
        ),
    ]
    split_by_time: Annotated[
        bool | None,
        Option(
            "hold out the newest images by camera time; the setting data.split.time selects another source "
            "of the time",
            sets="data.split.kind",
            on="time",
            with_it=("time",),
        ),
    ]
    dry_run: Annotated[
        bool,
        Option(
            "train and write nothing: report what would be read, the steps, batch, memory and time, "
            "estimated from one batch and two timed steps",
            default=False,
        ),
    ]
    exclude: Annotated[
        str | Path | None,
        Option(
            "a CSV file whose column path names images to leave out; data check writes one with its report",
            sets="data.split.exclude",
        ),
    ]


class OwnTrainOptions(TypedDict, total=False):
    task: Annotated[str | None, Option(f"{TASKS[0]} (the default), {', '.join(TASKS[1:])}")]
    recipe: Annotated[
        str | None,
        Option("the name of a recipe (vitreous recipe lists them); by default chosen from the data"),
    ]
    batch_size: Annotated[
        int | Literal["auto"] | None,
        Option(
            "images in each step; auto: the recipe's number, in micro-batches as large as memory allows",
            sets="training.batch_size",
        ),
    ]
    offline: Annotated[
        bool,
        Option(
            "never ask the Hugging Face hub for an encoder to start from; a cached one is used",
            default=False,
        ),
    ]


class TrainOptions(OwnTrainOptions, ImageOptions, RunOptions, total=False):
    """Options of `train`."""


class OwnPretrainOptions(TypedDict, total=False):
    objective: Annotated[str | None, Option(f"{OBJECTIVES[0]} (the default), {', '.join(OBJECTIVES[1:])}")]
    recipe: Annotated[
        str | None,
        Option("the recipe of a paper, such as mae or paper-masked-patch; by default chosen from the data"),
    ]
    batch_size: Annotated[int | None, Option("images in each step", sets="training.batch_size")]


class PretrainOptions(OwnPretrainOptions, ImageOptions, RunOptions, total=False):
    """Options of `pretrain`."""


def options_of(declared: type) -> dict[str, Option]:
    """Return the options that a class declares, by their names."""
    return {name: hint.__metadata__[-1] for name, hint in declared.__annotations__.items()}


SETTINGS = {name: option for name, option in options_of(TrainOptions).items() if option.sets}


def alternatives(annotation: object) -> tuple[object, ...]:
    """Return the types of an option: the members of a union, or the only one."""
    hint = get_args(annotation)[0]
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def annotation_text(annotation: object) -> str:
    """Return the type of an option as a signature has it."""
    kinds = [
        kind.__forward_arg__ if isinstance(kind, ForwardRef) else inspect.formatannotation(kind)
        for kind in alternatives(annotation)
    ]
    shown = " | ".join(kinds).replace("NoneType", "None")
    return shown.replace("pathlib.", "").replace("collections.abc.", "")


def with_options(declared: type) -> Callable[[FunctionT], FunctionT]:
    """Return a decorator of a function with `**options` of a class: its signature and its docstring list
    them, and it gets all of them, with the default of those that the caller leaves out."""
    options = options_of(declared)
    defaults = {name: option.default for name, option in options.items()}

    def decorate(function: FunctionT) -> FunctionT:
        @wraps(function)
        def complete(*arguments: object, **given: object) -> object:
            return function(*arguments, **{**defaults, **given})

        signature = inspect.signature(function)
        own = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
        named = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=default,
                annotation=annotation_text(declared.__annotations__[name]),
            )
            for name, default in defaults.items()
        ]
        complete.__signature__ = signature.replace(parameters=[*own, *named])  # type: ignore[attr-defined]
        if function.__doc__:  # not under python -OO
            listed = "\n".join(
                textwrap.fill(f"{name}: {option.text}.", 106, subsequent_indent=" " * 4)
                for name, option in options.items()
            )
            listed = textwrap.indent(listed, " " * 8)
            complete.__doc__ = re.sub(r" +options: .*", lambda _: listed, function.__doc__)
        return cast(FunctionT, complete)

    return decorate
