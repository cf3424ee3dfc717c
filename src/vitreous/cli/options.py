"""Options of commands. Most of them follow from the function of the Python API that a command calls: its
keyword parameters, their types, and what its docstring says of them (`options_of`). Only those that are given
are passed on, so that the function has the defaults.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Annotated, Any, TypedDict, TypeVar, Unpack, get_type_hints

from cyclopts import Parameter, Token

from vitreous.errors import InputError
from vitreous.outside import finite_number
from vitreous.outside import whole_number as parse_whole

LARGEST = 2**31 - 1  # of whole numbers
Command = TypeVar("Command", bound=Callable[..., Any])


def whole_number(_: object, tokens: Sequence[Token]) -> int:
    """An integer, which is not rounded."""
    text = tokens[0].value.strip()
    try:
        sign = -1 if text.startswith("-") else 1
        return sign * parse_whole(text.removeprefix("-"), high=LARGEST)
    except ValueError:
        large = text.removeprefix("-").isdecimal()
        wrong = f"too large: use {LARGEST} at most" if large else "not a whole number"
        raise InputError(f"{tokens[0].keyword} {text[:40]!r} is {wrong}") from None


def number_or_auto(kind: object, tokens: Sequence[Token]) -> int | str:
    """An integer, or the word auto."""
    return "auto" if tokens[0].value == "auto" else whole_number(kind, tokens)


def number(_: object, tokens: Sequence[Token]) -> float:
    """A finite number."""
    text = tokens[0].value.strip()
    try:
        return finite_number(text)
    except ValueError:
        raise InputError(f"{tokens[0].keyword} {text[:40]!r} is not a finite number") from None


def at_least(option: str, least: int) -> Callable[[object, int | None], None]:
    """Raises InputError where an option's number is lower."""

    def check(_: object, value: int | None) -> None:
        if value is not None and value < least:
            raise InputError(f"{option} {value} is too low: use {least} or more")

    return check


def parse_size(_: object, tokens: Sequence[Token]) -> tuple[int, int]:
    """(H, W) from "384" or "384x512"."""
    text = tokens[0].value
    parts = text.lower().split("x")
    try:
        sides = [parse_whole(part, low=1, high=LARGEST) for part in parts]
    except ValueError:
        sides = []
    if len(sides) not in (1, 2):
        raise InputError(
            f"--image-size {text[:40]!r} is not a size: write 384, or 384x512 for height x width"
        )
    return sides[0], sides[-1]


def parse_settings(_: object, tokens: Sequence[Token]) -> dict[str, Any]:
    """{"model.depth": 6} from --set model.depth=6."""
    from vitreous.models.settings import parse_value

    parsed: dict[str, Any] = {}
    for token in tokens:
        name, equals, value = (part.strip() for part in token.value.partition("="))
        if not equals or not name:
            raise InputError(f"--set {token.value!r} is not a setting: write --set training.peak_lr=1e-3")
        if name in parsed and parsed[name] != parse_value(value):
            raise InputError(
                f"--set {name} is given twice: keep one (several names are one list: --set "
                "'training.freeze=[stem, blocks.0]')"
            )
        parsed[name] = parse_value(value)
    return parsed


Int = Annotated[int, Parameter(converter=whole_number, metavar="N")]
Number = Annotated[float, Parameter(converter=number, metavar="NUMBER")]
Text = Annotated[str, Parameter(metavar="TEXT")]
BatchSize = Annotated[Int, Parameter(validator=at_least("--batch-size", 1))]
MODEL_HELP = (
    "a run directory, a checkpoint of any format, hf:org/name[/file][@revision], an https: address, "
    "vitreous:small, or a model name such as ViT-B/16 (fresh weights)"
)
Model = Annotated[str, Parameter(help=MODEL_HELP)]
EXPORTED = ", or an exported .onnx or .pt2 file or OpenVINO folder"
AnyModel = Annotated[str, Parameter(help=MODEL_HELP + EXPORTED)]
TrainedModel = Annotated[str, Parameter(help=f"a run directory, any checkpoint with a head{EXPORTED}")]
Images = Annotated[
    str, Parameter(help="files, folders, globs; with a folder as --out also manifests, shards, Parquet, URLs")
]
Json = Annotated[
    bool, Parameter(name="--json", show_default=False, help="print exactly one JSON object on stdout")
]

# Of parameters of the Python API, by their annotation: what is parsed.
TYPES: dict[str, Any] = {
    "Any": Text,
    "bool": bool,
    "float": Number,
    "int": Int,
    "int | float": Number,
    "Sequence[int]": Annotated[list[Int], Parameter(consume_multiple=True)],
    "Sequence[str]": Annotated[list[Text], Parameter(consume_multiple=True)],
    "str": Text,
    "str | Path": Path,
}
SIZE_HELP = "pixels of the images that the model takes: 384, or 384x512 (height x width)"
AUTO = "what vitreous optimize has chosen, or bf16 where that is faster and gives the same answers"
# Parameters with one meaning in all functions, which their docstrings need not say.
SHARED: dict[str, Any] = {
    "batch_size": Annotated[
        BatchSize, Parameter(help="images in a batch; by default 16 on a CPU, 64 on a GPU")
    ],
    "config": Annotated[Path, Parameter(help="a TOML file of such settings")],
    "device": Annotated[Text, Parameter(help="auto, cpu, cuda or cuda:N")],
    "image_size": Annotated[
        tuple[int, int],
        Parameter(converter=parse_size, n_tokens=1, metavar="SIZE", help=SIZE_HELP),
    ],
    "language": Annotated[Text, Parameter(help="language of the page: en or ko; by default the locale's")],
    "precision": Annotated[Text, Parameter(help=f"fp32; bf16; auto: {AUTO}")],
    "settings": Annotated[
        dict[str, Any],
        Parameter(
            name="--set",
            converter=parse_settings,
            accepts_keys=False,
            n_tokens=-1,
            metavar="NAME=VALUE",
            help="any field of the configuration, as often as needed: --set model.depth=6",
        ),
    ],
    "workers": Annotated[
        Int,
        Parameter(
            validator=at_least("--workers", 0),
            help="threads that decode images; by default one for each core",
        ),
    ],
}
PYTHON_ONLY = {"callbacks", "preprocessing", "progress", "ready"}  # parameters that are objects


def options_of(
    *functions: Callable[..., Any], without: Collection[str] = (), **types: Any
) -> Callable[[Command], Command]:
    """Decorate a command: its `**options` are the keyword parameters of functions of the Python API but for
    those that it has itself; and what it does not say of its parameters their docstrings do.

    Args:
        functions: where several have a parameter, the first of them.
        without: parameters that are not options.
        types: of parameters that are parsed in another way than `SHARED` and `TYPES` have it.
    """

    def decorate(command: Command) -> Command:
        own = get_type_hints(command, include_extras=True)
        described = {name: words for each in functions[::-1] for name, words in descriptions(each).items()}
        fields: dict[str, Any] = {}
        for function in functions:
            for each in inspect.signature(function).parameters.values():
                words = described.get(each.name, "")
                if each.name in own:
                    help = help_of(own[each.name]) or words
                    command.__annotations__[each.name] = Annotated[own[each.name], Parameter(help=help)]
                elif each.kind is each.KEYWORD_ONLY and each.name not in {*PYTHON_ONLY, *without, *fields}:
                    fields[each.name] = option(each, words, types.get(each.name))
        command.__annotations__["options"] = Unpack[TypedDict("Options", fields, total=False)]  # type: ignore[operator]
        return command

    return decorate


def descriptions(function: Callable[..., Any]) -> dict[str, str]:
    """Return what the section Args of a docstring says of each parameter that has a line of its own, with
    `names` as the shell has them: of options, arguments and commands."""
    from vitreous.cli import COMMANDS

    def in_shell(found: re.Match[str]) -> str:
        name = found[1]
        if parameter := inspect.signature(function).parameters.get(name):
            return "--" + name.replace("_", "-") if parameter.kind is parameter.KEYWORD_ONLY else name.upper()
        several = " ".join(name.split("_")[::-1])  # check_data is `data check`
        return f"vitreous {several}" if several in COMMANDS else name

    section = inspect.cleandoc(function.__doc__ or "").partition("\nArgs:\n")[2].partition("\n\n")[0]
    section = re.sub(r"`([^`]*)`", in_shell, section)
    entries = (entry.strip().partition(": ") for entry in re.split(r"\n(?=    \S)", section))
    return {name: " ".join(words.split()).rstrip(".") for name, _, words in entries}


def option(parameter: inspect.Parameter, words: str, hint: Any = None) -> Any:
    """Return the annotation of an option: how it is parsed, and its help with the default.

    Args:
        words: of the docstring; those of `hint` come before them, those of `SHARED` after them.
        hint: the annotation, where it is not that of `SHARED` or `TYPES`.
    """
    annotation = parameter.annotation
    written = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    kind = re.sub(r"\w+\.", "", written)
    shared = SHARED.get(parameter.name)
    help = help_of(hint) or words or help_of(shared)
    if parameter.default not in (None, False, ()):
        help += f" [default: {parameter.default}]"
    negative = f"--no-{parameter.name}" if kind == "bool | None" else ()
    parsed = hint or shared or TYPES[kind.removesuffix(" | None")]
    return Annotated[parsed, Parameter(help=help, negative=negative)]


def help_of(hint: Any) -> str:
    """Return the help in an annotation, if there is any."""
    return next((each.help for each in getattr(hint, "__metadata__", ()) if each.help), "")
