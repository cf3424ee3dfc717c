"""Options of commands: how they are parsed.

A command takes the options that are declared for the function of the Python API; only those that are given
are passed on to it, which has the defaults."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict, TypeVar, Unpack, get_args, get_type_hints

from cyclopts import Parameter, Token

from vitreous.languages.terminal import CallError
from vitreous.outside import finite_number
from vitreous.outside import parse_digits as parse_whole
from vitreous.training.options import ANY_SETTING, Option, alternatives

FunctionT = TypeVar("FunctionT", bound=Callable[..., object])
LARGEST = 2**31 - 1  # of whole numbers


def parse_integer(_: object, tokens: Sequence[Token]) -> int:
    """An integer, which is not rounded."""
    text = tokens[0].value.strip()
    try:
        sign = -1 if text.startswith("-") else 1
        return sign * parse_whole(text.removeprefix("-"), high=LARGEST)
    except ValueError:
        option, text = tokens[0].keyword, text[:40]
        if text.removeprefix("-").isdecimal():
            raise CallError(
                "{option} {text!r} is too large: use {most} at most", option=option, text=text, most=LARGEST
            ) from None
        raise CallError("{option} {text!r} is not a whole number", option=option, text=text) from None


def number_or_auto(kind: object, tokens: Sequence[Token]) -> int | str:
    """An integer, or the word auto."""
    return "auto" if tokens[0].value == "auto" else parse_integer(kind, tokens)


def number(_: object, tokens: Sequence[Token]) -> float:
    """A finite number."""
    text = tokens[0].value.strip()
    try:
        return finite_number(text)
    except ValueError:
        option, text = tokens[0].keyword, text[:40]
        raise CallError("{option} {text!r} is not a finite number", option=option, text=text) from None


def at_least(option: str, least: int) -> Callable[[object, int | None], None]:
    """Raises InputError where an option's number is lower."""

    def check(_: object, value: int | None) -> None:
        if value is not None and value < least:
            raise CallError(
                "{option} {value} is too low: use {least} or more", option=option, value=value, least=least
            )

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
        raise CallError(
            "--image-size {text!r} is not a size: write 384, or 384x512 for height x width", text=text[:40]
        )
    return sides[0], sides[-1]


def parse_settings(_: object, tokens: Sequence[Token]) -> dict[str, object]:
    """{"model.depth": 6} from --set model.depth=6."""
    from vitreous.models.settings import parse_value

    parsed: dict[str, object] = {}
    for token in tokens:
        name, equals, value = (part.strip() for part in token.value.partition("="))
        if not equals or not name:
            raise CallError(
                "--set {text!r} is not a setting: write --set training.peak_lr=1e-3", text=token.value
            )
        if name in parsed and parsed[name] != parse_value(value):
            raise CallError(
                "--set {name} is given twice: keep one (several names are one list: --set "
                "'training.freeze=[stem, blocks.0]')",
                name=name,
            )
        parsed[name] = parse_value(value)
    return parsed


Int = Annotated[int, Parameter(converter=parse_integer, metavar="N")]
Number = Annotated[float, Parameter(converter=number, metavar="NUMBER")]
Text = Annotated[str, Parameter(metavar="TEXT")]
MODEL_HELP = (
    "a run directory, a checkpoint of any format, hf:org/name[/file][@revision], an https: address, "
    "vitreous:small, or a model name such as ViT-B/16 (fresh weights)"
)
ModelParameter = Annotated[str, Parameter(help=MODEL_HELP)]
EXPORTED = ", or an exported model such as an .onnx or .pt2 file"
FeatureModel = Annotated[
    str, Parameter(help=f"vitreous:best (the best pre-trained encoder at hand), {MODEL_HELP}{EXPORTED}")
]
TrainedModel = Annotated[str, Parameter(help=f"a run directory, any checkpoint with a head{EXPORTED}")]
ImagesParameter = Annotated[
    str, Parameter(help="files, folders, globs; if --out is a folder, also manifests, shards, Parquet, URLs")
]
Json = Annotated[
    bool, Parameter(name="--json", show_default=False, help="print exactly one JSON object on stdout")
]

Ints = Annotated[list[Int], Parameter(consume_multiple=True)]
Texts = Annotated[list[Text], Parameter(consume_multiple=True)]
AUTO_OR_NUMBER = Parameter(converter=number_or_auto, metavar="N|auto", show_choices=False)
SettingsParameter = Annotated[
    dict[str, object],
    Parameter(
        name="--set",
        converter=parse_settings,
        accepts_keys=False,
        n_tokens=-1,
        metavar="NAME=VALUE",
        help=ANY_SETTING,
    ),
]
WRITTEN_OTHERWISE: dict[str, object] = {  # than in Python
    "image_size": Annotated[tuple[int, int], Parameter(converter=parse_size, n_tokens=1, metavar="SIZE")],
    "settings": SettingsParameter,
}
LEAST = {"batch_size": 1, "workers": 0}


def with_parsed_options(**own: object) -> Callable[[FunctionT], FunctionT]:
    """Return a decorator of a command with `**options` of a class: it takes those that are declared there,
    parsed as their types say, with the sentences there as help.

    Args:
        own: how some of them are parsed that are written otherwise than in Python.
    """
    otherwise = {**WRITTEN_OTHERWISE, **own}

    def decorate(function: FunctionT) -> FunctionT:
        (declared,) = get_args(get_type_hints(function, include_extras=True)["options"])
        hints: dict[str, object] = {}
        for name, hint in declared.__annotations__.items():
            if name in otherwise:
                hints[name] = Annotated[otherwise[name], help_of(hint)]
            elif not hint.__metadata__[-1].in_python:
                hints[name] = parsed_option(name, hint)
        options = TypedDict(declared.__name__, hints, total=False)  # type: ignore[misc]
        function.__annotations__["options"] = Unpack[options]
        return function

    return decorate


def help_of(hint: Any) -> Parameter:
    """Return what the help says of an option, with its default."""
    option: Option = hint.__metadata__[-1]
    default = f" [default: {option.default}]" if option.default else ""
    return Parameter(help=(option.in_shell or option.text) + default)


def parsed_option(name: str, hint: Any) -> object:
    """Return how an option is parsed whose Python parameter has this type, with its help."""
    about, kinds = help_of(hint), alternatives(hint)
    if bool in kinds:
        # Only one that a file may have switched on is switched off.
        off = f"--no-{name.replace('_', '-')}" if hint.__metadata__[-1].default is None else ()
        return Annotated[bool, about, Parameter(negative=off)]
    if Literal["auto"] in kinds:
        return Annotated[get_args(hint)[0], AUTO_OR_NUMBER, about]
    parsers = ((Path, Path), (Sequence[int], Ints), (Sequence[str], Texts), (float, Number), (int, Int))
    parsed = next((parsed for each, parsed in parsers if each in kinds), Text)
    if name in LEAST:
        least = Parameter(validator=at_least(f"--{name.replace('_', '-')}", LEAST[name]))
        return Annotated[parsed, least, about]
    return Annotated[parsed, about]
