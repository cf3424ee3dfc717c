"""Recipes: one function each. Its docstring gives the command, the hardware, the time and the accuracy to
expect, with their source; what it returns is the recipe. `TINY` makes any of them run in seconds. `IMPOSED`
names the fields of the model that a fine-tuning recipe sets; the rest of the model is then the
checkpoint's."""

from __future__ import annotations

from importlib import import_module
from inspect import getdoc
from typing import Any, NamedTuple

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
    "deit": "deit",
    "deit-distilled": "deit",
    "deit3": "deit",
    "mae-fine-tuning": "imagenet",
    "linear-probe": "own_images",
}
NAMES = tuple(MODULES)

SMALL_MODEL: dict[str, Any] = {
    "image_size": 32,
    "patch_size": 8,
    "width": 32,
    "depth": 2,
    "heads": 2,
    "mlp_dim": 32,
}
TINY: dict[str, Any] = {"training": {"steps": 2, "batch_size": 8}, "model": SMALL_MODEL}


class Recipe(NamedTuple):
    """A named configuration.

    Attributes:
        text: what its author wrote about it.
        config: the configuration.
        tiny: settings that make a run of it last seconds, for tests.
        imposed: fields of the model that it keeps when a checkpoint brings the rest.
    """

    name: str
    text: str
    config: RunConfig
    tiny: dict[str, Any]
    imposed: tuple[str, ...]


def recipe(name: str) -> Recipe:
    """Return the recipe called `name`.

    Raises:
        InputError: there is none; the nearest name is given.
    """
    if name not in NAMES:
        raise InputError(f"unknown recipe {name!r}: {nearest(name, NAMES)}")
    module = import_module(f"vitreous.training.recipes.{MODULES[name]}")
    make = getattr(module, name.replace("-", "_"))
    config = make().model_copy(update={"recipe": name})
    tiny, imposed = getattr(module, "TINY", {}).get(name, TINY), getattr(module, "IMPOSED", {}).get(name, ())
    return Recipe(name, getdoc(make) or "", config, tiny, imposed)
