"""Recipes: one short file each. A file's docstring says the command, the hardware, the time and the accuracy
to expect, with their source; its `config()` is the recipe. `TINY` makes any of them run in seconds. `IMPOSED`
names what a fine-tuning recipe says about the model; the rest of the model is then the checkpoint's."""

from __future__ import annotations

from importlib import import_module
from inspect import getdoc
from typing import Any, NamedTuple

from vitreous.errors import InputError, nearest
from vitreous.training.config import RunConfig

NAMES = (
    "digits",
    "from-scratch",
    "paper-imagenet1k",
    "paper-imagenet21k",
    "paper-fine-tuning",
    "augreg",
    "s16-baseline",
    "deit",
    "deit-distilled",
    "deit3",
    "mae-fine-tuning",
    "linear-probe",
)

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
    """The recipe called `name`.

    Raises:
        InputError: there is none; the nearest name is given.
    """
    if name not in NAMES:
        raise InputError(f"unknown recipe {name!r}: {nearest(name, NAMES)}")
    module = import_module(f"vitreous.training.recipes.{name.replace('-', '_')}")
    config = module.config().model_copy(update={"recipe": name})
    tiny, imposed = getattr(module, "TINY", TINY), getattr(module, "IMPOSED", ())
    return Recipe(name, getdoc(module) or "", config, tiny, imposed)
