"""The help of commands, and errors in how one is called, in the language of the locale."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING

from cyclopts import (
    CoercionError,
    CycloptsError,
    MissingArgumentError,
    RepeatArgumentError,
    UnknownCommandError,
    UnknownOptionError,
    UnusedCliTokensError,
)

from vitreous.languages.terminal import meaning_of, said, summary_of, word

if TYPE_CHECKING:
    from cyclopts.help import ColumnSpec, HelpEntry, HelpPanel
    from rich.console import Console, ConsoleOptions
    from rich.text import Text

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
