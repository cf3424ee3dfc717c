"""Recipes: one TOML file each, as `--config` takes it. The comment at its top gives the command, the
hardware, the time and the accuracy to expect, with their source."""

from __future__ import annotations

import tomllib
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

from vitreous.errors import InputError, nearest
from vitreous.training.config import RunConfig
from vitreous.training.settings import configure

FOLDER = Path(__file__).parent
NAMES = tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))

# Fields of the model that a recipe for fine-tuning sets itself; the rest is the checkpoint's.
IMPOSED = {"paper-fine-tuning": ("image_size",), "mae-fine-tuning": ("pooling", "drop_path")}


class Recipe(NamedTuple):
    """A named configuration.

    Attributes:
        text: the comment at the top of its file.
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
    file = (FOLDER / f"{name}.toml").read_text(encoding="utf-8")
    comment = takewhile(lambda line: line.startswith("#"), file.splitlines())
    text = "\n".join(line.removeprefix("#").removeprefix(" ") for line in comment)
    config = configure(RunConfig(), tomllib.loads(file), {"recipe": name})
    return Recipe(name, text, config, IMPOSED.get(name, ()))
