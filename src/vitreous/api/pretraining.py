"""`vitreous.pretrain`, and the recipes that it and `train` follow."""

from __future__ import annotations

from typing import Unpack

from vitreous.api.data_source import data_source
from vitreous.api.run import Run, check_one_length
from vitreous.api.training import settings_of, start_training
from vitreous.errors import InputError, Param, nearest
from vitreous.tasks import OBJECTIVES, task_named
from vitreous.tasks.pretraining.rules import find_recipe, pretraining_recipe, recipe_names
from vitreous.training.options import PretrainOptions, with_options
from vitreous.training.recipes import sourced
from vitreous.training.settings import settings_differences


@with_options(PretrainOptions)
def pretrain(data: object = None, **options: Unpack[PretrainOptions]) -> Run:
    """Pre-train an encoder on images without labels; any labels are ignored.

    Example:
        >>> run = vt.pretrain("photos/", epochs=1, out="runs/encoder", progress=False)
        >>> vt.embed(run, "photos/", progress=False).values.shape
        (24, 128)

    Args:
        data: see `train`; labels may be missing, as in a list or array of images, or a manifest without the
            column label.
        options: of `PretrainOptions`.

    Raises:
        InputError, Interrupted: see `train`.
    """
    check_one_length(minutes=options.get("minutes"), epochs=options.get("epochs"))
    settings = settings_of(options)
    objective, recipe = options.get("objective"), options.get("recipe")
    own = pretraining_recipe(recipe).config.task if recipe else OBJECTIVES[0]
    name = str(objective or settings.get("task", own))
    if recipe and name != own:
        raise InputError(
            f"the recipe {recipe} is for {Param('objective')} {own}, not {name}: leave one of them out"
        )
    if name not in OBJECTIVES:
        raise InputError(f"unknown objective {name!r}: {nearest(name, OBJECTIVES)}")
    source = None if data is None else data_source(data, "unlabeled")
    return start_training(task_named(name), source, settings, options)


def list_recipes() -> dict[str, str]:
    """Return the first line of each recipe's description, by the recipe's name: those of `train`, then those
    of `pretrain`.

    Example:
        >>> list(vt.list_recipes())[:3]
        ['augreg', 'bit-hyperrule', 'deit']
    """
    return {name: find_recipe(name).text.splitlines()[0] for name in recipe_names()}


def compare_recipes(name: str, other: str) -> list[dict[str, object]]:
    """Return the settings in which a recipe differs from another.

    Example:
        >>> vt.compare_recipes("deit", "deit3")[0]
        {'setting': 'training.length', 'here': '300 epochs', 'there': '400 epochs'}

    Args:
        name: of the recipe.
        other: the name of another recipe; or "source", for the code that the recipe comes from, with the
            place in that code and the reason for each difference.

    Raises:
        InputError: the recipe does not exist, or it has no source.
    """
    shown = find_recipe(name)
    if other == "source":
        return [each._asdict() for each in sourced(shown) if each.why]
    rows = settings_differences(shown.config, find_recipe(other).config)
    return [{"setting": setting, "here": here, "there": there} for setting, (here, there) in rows.items()]
