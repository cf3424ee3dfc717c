"""Options of commands: how they are parsed; their help and the errors in how a command is called, in the
language of the locale.

A command takes the options that are declared for the function of the Python API; only those that are given
are passed on to it, which has the defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    TypedDict,
    TypeVar,
    Unpack,
    get_args,
    get_type_hints,
)

from cyclopts import (
    CoercionError,
    CycloptsError,
    MissingArgumentError,
    Parameter,
    RepeatArgumentError,
    Token,
    UnknownCommandError,
    UnknownOptionError,
    UnusedCliTokensError,
)

from vitreous.languages.terminal import CallError, meaning_of, said, summary_of, word
from vitreous.outside import finite_number
from vitreous.outside import parse_digits as parse_whole
from vitreous.training.options import ANY_SETTING, Option, alternatives

if TYPE_CHECKING:
    from cyclopts.help import ColumnSpec, HelpEntry, HelpPanel
    from rich.console import Console, ConsoleOptions
    from rich.text import Text

FunctionT = TypeVar("FunctionT", bound=Callable[..., object])
LARGEST = 2**31 - 1  # of whole numbers
# What other programs call options of ours.
OTHER_NAMES = {
    "--lr": "--set training.peak_lr=1e-3",
    "--learning-rate": "--set training.peak_lr=1e-3",
    "--val": "--set data.validation_fraction=0.1",
    "--val-split": "--set data.validation_fraction=0.1",
    "--weight-decay": "--set training.optimizer.weight_decay=0.05",
    "--patience": "--set training.records.early_stopping.patience=5",
    "--freeze": "--set training.freeze=backbone",
    "--batch": "--batch-size",
    "--imgsz": "--image-size",
    "--img-size": "--image-size",
    "--weights": "--init",
    "--pretrained": "--init",
    "--checkpoint": "--init",
    "--gpus": "torchrun --nproc-per-node",
}


def parse_integer(_: object, tokens: Sequence[Token]) -> int:
    """Return an integer, which is not rounded."""
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
    """Return an integer, or the word auto."""
    return "auto" if tokens[0].value == "auto" else parse_integer(kind, tokens)


def number(_: object, tokens: Sequence[Token]) -> float:
    """Return a finite number."""
    text = tokens[0].value.strip()
    try:
        return finite_number(text)
    except ValueError:
        option, text = tokens[0].keyword, text[:40]
        raise CallError("{option} {text!r} is not a finite number", option=option, text=text) from None


def at_least(option: str, least: int) -> Callable[[object, int | None], None]:
    """Raise InputError where an option's number is lower."""

    def check(_: object, value: int | None) -> None:
        if value is not None and value < least:
            raise CallError(
                "{option} {value} is too low: use {least} or more", option=option, value=value, least=least
            )

    return check


def parse_size(_: object, tokens: Sequence[Token]) -> tuple[int, int]:
    """Return (H, W) from "384" or "384x512"."""
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
    """Return {"model.depth": 6} from --set model.depth=6."""
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
AnyText = Annotated[str, Parameter(metavar="TEXT")]
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
Texts = Annotated[list[AnyText], Parameter(consume_multiple=True)]
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
    parsed = next((parsed for each, parsed in parsers if each in kinds), AnyText)
    if name in LEAST:
        least = Parameter(validator=at_least(f"--{name.replace('_', '-')}", LEAST[name]))
        return Annotated[parsed, least, about]
    return Annotated[parsed, about]


class HelpFormatter:
    """Lays out the help of one command as cyclopts does, in the language of the locale."""

    def __init__(self, command: str) -> None:
        self.command = command

    def render_usage(self, console: Console, options: ConsoleOptions, usage: object) -> None:
        from rich.text import Text

        parts = " ".join(map(word, str(usage).split()))
        console.print(Text(f"{word('Usage')}: {parts}\n", style="bold"))

    def render_description(self, console: Console, options: ConsoleOptions, description: object) -> None:
        console.print(description)

    def __call__(self, console: Console, options: ConsoleOptions, panel: HelpPanel) -> None:
        from cyclopts.help import DefaultFormatter

        shown = panel.copy(
            title=word(str(panel.title)),
            entries=[entry.copy(description=self.description(entry)) for entry in panel.entries],
        )
        columns = parameter_columns if panel.format == "parameter" else None
        DefaultFormatter(column_specs=columns)(console, options, shown)

    def description(self, entry: HelpEntry) -> Text:
        """Return what an option or a command is, and what else there is to know of its value."""
        from rich.text import Text

        english = getattr(entry.description, "primary_renderable", "")
        label = entry.positional_label
        names = [*entry.all_options, *([label] if label else [])]
        if label or names[0].startswith("-"):
            text = Text(word(meaning_of(self.command, names, str(english))))
        else:
            text = Text(summary_of(f"{self.command} {names[0]}".strip(), str(english)))
        if entry.choices:
            text.append(f" [{word('choices')}: {', '.join(entry.choices)}]", "cyclopts.choices")
        if entry.default is not None:
            text.append(f" [{word('default')}: {entry.default}]", "cyclopts.default")
        if entry.required:
            text.append(f" [{word('required')}]", "cyclopts.required")
        return text


def parameter_columns(
    console: Console, options: ConsoleOptions, entries: Sequence[HelpEntry]
) -> tuple[ColumnSpec, ...]:
    """Return the columns of options: those of cyclopts, of which the last takes a description as it is."""
    from cyclopts.help.specs import get_default_parameter_columns

    *names, description = get_default_parameter_columns(console, options, list(entries))
    return (*names, description.copy(renderer="description"))


def unknown_command(name: str, known: Sequence[str], group: str = "vitreous") -> str:
    """Return a sentence about a command that is not there, with the one that may be meant."""
    if close := get_close_matches(name.lower(), known, n=1, cutoff=0.5):
        return said("unknown command {word!r}: did you mean {near!r}?", word=name, near=close[0])
    return said("unknown command {word!r}: {group} --help lists the commands", word=name, group=group)


def unknown_option(error: UnknownOptionError, command: str) -> str:
    """Return a sentence about an option that a command does not have, with the one that may be meant."""
    option = (error.token.keyword or str(error.token.value)).split("=")[0]
    known = [name for each in error.argument_collection if each.parse for name in each.names]
    close = get_close_matches(option, known, n=1, cutoff=0.6)
    if near := OTHER_NAMES.get(option) or (close[0] if close else None):
        return said("unknown option {option}: did you mean {near}?", option=option, near=near)
    return said("unknown option {option}: {command} --help lists the options", option=option, command=command)


def sentence_about(error: CycloptsError) -> str:
    """Return what is wrong with a call, in one sentence."""
    command = " ".join(("vitreous", *(error.command_chain or ())))
    argument = error.argument
    if isinstance(error, UnusedCliTokensError):
        words = " ".join(error.unused_tokens or ())
        return said(
            "unexpected {words!r}: {command} --help says what the command takes", words=words, command=command
        )
    if isinstance(error, UnknownCommandError):
        known = [name for name in error.app or () if name[0] != "-"]
        return unknown_command((error.unused_tokens or [""])[0], known, command)
    if isinstance(error, UnknownOptionError):
        return unknown_option(error, command)
    if isinstance(error, RepeatArgumentError):
        return said("{name} is given twice: keep one", name=error.token.keyword)
    if isinstance(error, MissingArgumentError) and argument is not None:
        given = error.keyword or next((each.keyword for each in argument.tokens if each.keyword), None)
        if given is None:
            name = argument.name
            return said(
                "{command} needs {name}: {command} --help says what it is", command=command, name=name
            )
        return said("{name} needs a value: {command} --help says which", command=command, name=given)
    if isinstance(error, CoercionError) and error.token is not None:
        name, value = error.token.keyword or (argument.name if argument else ""), error.token.value
        if error.target_type is bool:
            return said("{name} takes no value: leave out {value!r}", name=name, value=value)
        return said(
            "{name} does not take {value!r}: {command} --help says what it takes",
            name=name,
            value=value,
            command=command,
        )
    return str(error)
