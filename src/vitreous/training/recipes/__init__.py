"""Recipes: one TOML file each, as `--config` takes it. The comment at its top gives the command, the
hardware, the time and the accuracy to expect, with their source.

`[[rows]]` of a file are for some models (`models`), numbers of images (`below`, `from`) or images of an area
below that of a square (`smaller`, its side): the rows of the tables in papers. provenance.json has what the
code of the sources sets and does, found by running it.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from functools import cache
from itertools import takewhile
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar

from vitreous.errors import InputError, nearest
from vitreous.extensions import recipe_files
from vitreous.models.bit import BiTConfig
from vitreous.models.config import ViTConfig
from vitreous.models.names import config_of
from vitreous.outside import read_text
from vitreous.training.config import RunConfig
from vitreous.training.settings import AnyRun, Tree, configure, leaves

FOLDER = Path(__file__).parent
MEASURED = FOLDER / "provenance.json"  # of benchmarks/provenance.py, which runs the sources
PATHS = [*FOLDER.glob("*.toml"), *recipe_files("train")]
FILES = {path.stem: path for path in sorted(PATHS, key=lambda path: path.stem)}
NAMES = tuple(FILES)

# Fields of the model that a recipe for fine-tuning sets itself; the rest is the checkpoint's.
IMPOSED = {
    **dict.fromkeys(
        ("paper-fine-tuning", "paper-fine-tuning-imagenet", "bit-hyperrule", "vtab-1k"), ("image_size",)
    ),
    "mae-fine-tuning": ("pooling", "final_norm", "drop_path"),
}


RecipeT = TypeVar("RecipeT", bound=RunConfig, covariant=True)


class Recipe(NamedTuple, Generic[RecipeT]):
    """A named configuration."""

    name: str
    text: str  # the comment at the top of its file
    config: RecipeT
    imposed: tuple[str, ...] = ()  # fields of the model that it keeps when a checkpoint brings the rest
    rows: tuple[Tree, ...] = ()  # settings for some models, or numbers of images
    model: Tree = MappingProxyType({})  # what it says of its model besides the name

    def suited(
        self,
        *,
        name: str | None = None,
        encoder: ViTConfig | BiTConfig | None = None,
        images: int | None = None,
        size: tuple[int, int] | None = None,
    ) -> RecipeT:
        """Return its configuration with the rows that apply.

        Args:
            name: of the model that is trained instead of the recipe's, with its dropout and pooling.
            encoder: the configuration of the checkpoint that is fine-tuned.
            images: in the training set.
            size: (H, W) of an image of the data.
        """
        chosen: list[Tree] = []
        if name is not None:
            known = type(config_of(name)).model_fields
            chosen.append(
                {"model": {"name": name, **{key: self.model[key] for key in self.model if key in known}}}
            )
        for row in self.rows:
            if applies(row, name, encoder or self.config.model, images, size):
                patches = {"patch_size": encoder.patch_size} if isinstance(encoder, ViTConfig) else {}
                chosen += [{"model": patches}, {key: row[key] for key in row if key not in CONDITIONS}]
        return configure(self.config, *chosen)


CONDITIONS = ("models", "below", "from", "smaller")


def applies(
    row: Tree, name: str | None, model: object, images: int | None, size: tuple[int, int] | None
) -> bool:
    """Return whether a row is for this model, this number of images and images of this size."""
    if "models" in row:
        named = (name,) if name else row["models"]
        return any(each in row["models"] and (name or same_size(model, each)) for each in named)
    if "smaller" in row:
        return size is not None and size[0] * size[1] < row["smaller"] ** 2
    return images is not None and row.get("from", 0) <= images < row.get("below", float("inf"))


def same_size(model: object, name: str) -> bool:
    """Return whether a configuration has the size that a name stands for."""
    wanted = config_of(name)
    if isinstance(model, ViTConfig) and isinstance(wanted, ViTConfig):
        sizes = ("width", "depth", "patch_size")
        same = all(getattr(model, size) == getattr(wanted, size) for size in sizes)
        return same and model.stem.kind == wanted.stem.kind
    both = [(getattr(each, "layers", None), getattr(each, "width_factor", None)) for each in (model, wanted)]
    return both[0] == both[1]


def recipe(name: str) -> Recipe[RunConfig]:
    """Return the recipe called `name`. Raises InputError: there is none; the nearest name is given."""
    if name not in NAMES:
        raise InputError(f"unknown recipe {name!r}: {nearest(name, NAMES)}")
    return read_recipe(FILES[name], RunConfig())


def read_recipe(path: Path, defaults: AnyRun) -> Recipe[AnyRun]:
    """Return the recipe of a file."""
    file = read_text(path)
    comment = takewhile(lambda line: line.startswith("#"), file.splitlines())
    text = "\n".join(line.removeprefix("#").removeprefix(" ") for line in comment)
    tree = tomllib.loads(file)
    rows, name = tuple(tree.pop("rows", ())), path.stem
    config = configure(defaults, tree, {"recipe": name})
    model = tree.get("model", {})
    own = {key: value for key, value in model.items() if key != "name"} if "name" in model else {}
    return Recipe(name, text, config, IMPOSED.get(name, ()), rows, own)


class Sourced(NamedTuple):
    """What the code of a recipe's source computes for a setting."""

    setting: str
    here: Any  # the value of the recipe
    there: object  # that of the source
    where: str  # the configuration or the command that was run
    why: str  # the reason for another value; "" where both are equal


@cache
def executed() -> Mapping[str, list[dict[str, Any]]]:
    """Return what benchmarks/provenance.py found by running the sources."""
    return json.loads(MEASURED.read_text(encoding="utf-8"))


def source_differences(name: str) -> list[dict[str, Any]]:
    """Return what was found beside the code of the source.

    Each `quantity` has the largest `difference`, `where` it is, the `source` that ran, the `limit` of chance
    and rounding, `why` where it is more, and the `null`: how far the source is from itself, where it
    ran twice.
    """
    found = []
    for row in executed()["rows"]:
        if row["recipe"] == name:
            found.append({key: row[key] for key in row if key != "recipe"})
    return found


def sourced(chosen: Recipe[RunConfig]) -> list[Sourced]:
    """Return every setting of a recipe, and of its rows, that the code of its source computes. Raises
    InputError: the recipe follows no code that was run."""
    found = [each for each in executed()["settings"] if each["recipe"] == chosen.name]
    if not found and not source_differences(chosen.name):
        raise InputError(f"{chosen.name} is vitreous's own recipe and has no source to compare with")
    compared = []
    for each in found:
        values, condition = leaves(chosen.config), ""
        if each["row"] is not None:
            row = chosen.rows[each["row"]]
            name, side = row.get("models", [None])[0], row.get("smaller", 1) - 1
            images = row["below"] - 1 if "below" in row else row.get("from")
            suited = chosen.suited(name=name, images=images, size=(side, side) if side else None)
            values, condition = leaves(suited), condition_of(row)
        there = tuple(each["there"]) if isinstance(each["there"], list) else each["there"]
        here = leaf_value(values, each["setting"])
        compared.append(Sourced(condition + each["setting"], here, there, each["where"], each["why"]))
    return compared


def condition_of(row: Tree) -> str:
    """Return what a row is for, before the name of a setting."""
    if "models" in row:
        return f"{', '.join(row['models'])}: "
    if "smaller" in row:
        return f"images below {row['smaller']}x{row['smaller']}: "
    return f"below {row['below']:,} images: " if "below" in row else f"from {row['from']:,} images: "


def leaf_value(values: Tree, setting: str) -> Any:
    """Return a leaf; None for one in a group that is off."""
    while setting not in values and "." in setting:
        setting = setting.rpartition(".")[0]
    return values.get(setting)
