"""What is added to the core: the table of the add-ons, and what one of them can contribute.

An add-on is a folder of `vitreous/addons/`. It imports the core, and the core knows it by a row of `ADDONS`
alone. `ADDON` in its `__init__.py`, which imports nothing heavy, says what it contributes, by addresses
"module:name"; the core asks `addons()` where it lists commands, public names, tasks and so on, and imports
what it needs with `imported`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

# Every add-on, by the name of its folder; in the order of `vitreous --help`.
ADDONS = ("studies", "learn_page")


class Command(NamedTuple):
    """A row of `vitreous --help`: the module with its function, and two examples (a test runs them)."""

    summary: str
    module: str
    examples: tuple[str, str]


@dataclass(frozen=True, kw_only=True)
class Addon:
    """What one add-on contributes.

    Attributes:
        commands: of the command line; a command `a b` is the function `b` of its module, which parses and
            prints.
        names: public names of `vitreous`, with their modules. Type checkers read them in
            `addons/names.pyi`.
        tasks: names of tasks, with the modules in whose `DEFINED` they are.
        formats: addresses of `Format`s, which are asked before those of the core whether a file is theirs.
        sources: for each `KIND` of DATA written `KIND:REST` the address of a function (rest, config) that
            returns its parts.
        source_forms: how DATA of these kinds is written, in messages.
        recipes: files of recipes of `train`, by their places in its folder.
        caches: kinds of what it keeps in the cache, each with what that is.
        pages_of_runs: addresses of functions (run, model, images) that write a page beside a report. They
            return its file's name and the words of the link to it; None where there is no such page.
        imports: other add-ons that it imports.
        words: whether its folder has en.toml and ko.toml, which extend the catalogs of the core.
    """

    commands: Mapping[str, Command] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    tasks: Mapping[str, str] = field(default_factory=dict)
    formats: tuple[str, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)
    source_forms: tuple[str, ...] = ()
    recipes: tuple[str, ...] = ()
    caches: Mapping[str, str] = field(default_factory=dict)
    pages_of_runs: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    words: bool = False


@cache
def addons() -> Mapping[str, Addon]:
    """Return every add-on, by the name of its folder."""
    return {name: import_module(f"vitreous.addons.{name}").ADDON for name in ADDONS}


def folder_of(name: str) -> Path:
    """Return the folder of an add-on."""
    return Path(__file__).parent / "addons" / name


def imported(address: str) -> Any:
    """Return what has the address "module:name"."""
    module, _, name = address.partition(":")
    return getattr(import_module(module), name)


def contributed(what: str) -> Iterator[Any]:
    """Import what the addresses of all add-ons in the field `what` are of, one after the other."""
    for addon in addons().values():
        for address in getattr(addon, what):
            yield imported(address)
