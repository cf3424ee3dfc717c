"""What commands print in the terminal, in the language of the locale: help, errors in their call, progress.

The code has the English. `commands.ko.toml`, here and in the folders of add-ons, has the Korean: of commands
and options by their names, of sentences by the English ones."""

from __future__ import annotations

import os
import pkgutil
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from vitreous.errors import InputError
from vitreous.extensions import WRITTEN_FORMATS, addons, objectives, tasks
from vitreous.languages import extend_catalog, language_of_locale
from vitreous.results import duration


def said(english: str, /, **values: object) -> str:
    """Return a sentence with its values; an English literal, of which the catalog has the Korean."""
    sentence = terminal_catalog(language_of_locale(os.environ))["sentences"].get(english, english)
    return sentence.format(**values)


class CallError(InputError):
    """What is wrong in how a command is called, in the language of the locale.

    Args:
        english: a literal, as of `said`.
    """

    def __init__(self, english: str, /, **values: object) -> None:
        super().__init__(said(english, **values))


def said_time(seconds: float, *, estimated: bool = False) -> str:
    """Return a time in the unit that suits it.

    Args:
        estimated: whether it is an estimate: whole seconds, minutes or tenths of hours.
    """
    if estimated:
        unit = 1 if seconds < 120 else 60 if seconds < 7200 else 360
        seconds = unit * max(round(seconds / unit), 1)
    number, unit_name = duration(seconds).split(" ")
    translated = word(unit_name)
    return f"{number} {unit_name}" if translated == unit_name else f"{number}{translated}"


def word(english: str) -> str:
    """Return a word of the help or of a result, or what it says of itself."""
    return str(terminal_catalog(language_of_locale(os.environ))["words"].get(english, english))


def reason(english: str) -> str:
    """Return why a recipe or its numbers differ from the code of its source: data, stored in English."""
    return str(terminal_catalog(language_of_locale(os.environ))["reasons"].get(english, english))


def summary_of(command: str, english: str, language: str | None = None) -> str:
    """Return what a command does, in one sentence."""
    return str(of_command(command, language).get("summary", english))


def meaning_of(command: str, names: Sequence[str], english: str, language: str | None = None) -> str:
    """Return what an option or an argument of a command means.

    Args:
        command: its name, such as "data check".
        names: those of the option.
        language: that of the locale if None.
    """
    language = language or language_of_locale(os.environ)
    known = of_command(command, language)
    found = next((known[name] for name in names if name in known), None)
    return english if found is None else found.format(**values_of_options(language))


def of_command(command: str, language: str | None) -> Mapping[str, str]:
    """Return the sentences about a command and its options: its own, or those of all commands."""
    words = terminal_catalog(language or language_of_locale(os.environ))
    return {**words["options"], **words["commands"].get(command, {})}


@cache
def values_of_options(language: str) -> dict[str, str]:
    """Return what add-ons contribute to sentences about options of the core."""
    words = terminal_catalog(language)
    first, *others = objectives()
    _, *trained = (name for name, task in tasks().items() if task.command == "train")
    data = {name: task.data_help for name, task in tasks().items() if task.data_help}
    return {
        "formats": WRITTEN_FORMATS,
        "objective": first,
        "objectives": ", ".join(others),
        "tasks": ", ".join(trained),
        "data": "".join(f"; {words['data'].get(name, english)}" for name, english in data.items()),
    }


@cache
def terminal_catalog(language: str) -> dict[str, dict[str, Any]]:
    """Return the words of a language, each kind a table; English has none."""
    whole: dict[str, dict[str, object]] = {
        kind: {} for kind in ("words", "options", "commands", "data", "reasons", "sentences")
    }
    if language != "en":
        for package in ("vitreous.languages", *(f"vitreous.addons.{name}" for name in addons())):
            try:
                text = pkgutil.get_data(package, f"commands.{language}.toml")
            except OSError:  # an add-on without commands
                continue
            assert text is not None
            extend_catalog(whole, tomllib.loads(text.decode("utf-8")))
    return whole
