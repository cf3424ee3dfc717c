"""Recipes: one short file each. A file's docstring says the command, the hardware, the time and the accuracy
to expect, with their source; its `config()` is the recipe; its `TINY` settings make it run in seconds."""

from __future__ import annotations

from importlib import import_module
from inspect import getdoc
from typing import Any, NamedTuple

from vitreous.errors import InputError, nearest
from vitreous.training.config import RunConfig

NAMES = ("digits", "from-scratch")


class Recipe(NamedTuple):
    """A named configuration.

    Attributes:
        text: what its author wrote about it.
        config: the configuration.
        tiny: settings that make a run of it last seconds, for tests.
    """

    name: str
    text: str
    config: RunConfig
    tiny: dict[str, Any]


def recipe(name: str) -> Recipe:
    """The recipe called `name`.

    Raises:
        InputError: there is none; the nearest name is given.
    """
    if name not in NAMES:
        raise InputError(f"unknown recipe {name!r}: {nearest(name, NAMES)}")
    module = import_module(f"vitreous.training.recipes.{name.replace('-', '_')}")
    config = module.config().model_copy(update={"recipe": name})
    return Recipe(name, getdoc(module) or "", config, module.TINY)
