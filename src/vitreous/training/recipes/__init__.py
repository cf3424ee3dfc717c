"""Recipes: one function each. Its docstring gives the command, the hardware, the time and the accuracy to
expect, with their source; what it returns is the recipe."""

from __future__ import annotations

from importlib import import_module
from inspect import getdoc
from typing import NamedTuple

from vitreous.errors import InputError, nearest
from vitreous.training.config import RunConfig

MODULES = {
    "digits": "own_images",
    "from-scratch": "own_images",
    "paper-imagenet1k": "paper",
    "paper-imagenet21k": "paper",
    "paper-fine-tuning": "paper",
    "augreg": "imagenet",
    "s16-baseline": "imagenet",
    "deit": "imagenet",
    "deit-distilled": "imagenet",
    "deit3": "imagenet",
    "mae-fine-tuning": "imagenet",
    "linear-probe": "own_images",
}
NAMES = tuple(MODULES)

# Fields of the model that a recipe for fine-tuning sets itself; the rest is the checkpoint's.
IMPOSED = {"paper-fine-tuning": ("image_size",), "mae-fine-tuning": ("pooling", "drop_path")}


class Recipe(NamedTuple):
    """A named configuration.

    Attributes:
        text: the docstring of its function.
        imposed: fields of the model that it keeps when a checkpoint brings the rest.
    """

    name: str
    text: str
    config: RunConfig
    imposed: tuple[str, ...]


def recipe(name: str) -> Recipe:
    """Return the recipe called `name`.

    Raises:
        InputError: there is none; the nearest name is given.
    """
    if name not in NAMES:
        raise InputError(f"unknown recipe {name!r}: {nearest(name, NAMES)}")
    make = getattr(import_module(f"{__name__}.{MODULES[name]}"), name.replace("-", "_"))
    config = make().model_copy(update={"recipe": name})
    return Recipe(name, getdoc(make) or "", config, IMPOSED.get(name, ()))
