"""`vitreous.list_recipes` and `compare_recipes`."""

from __future__ import annotations

from vitreous.tasks.pretraining.rules import find_recipe, recipe_names
from vitreous.training.recipes import sourced
from vitreous.training.settings import differences


def list_recipes() -> dict[str, str]:
    """Return the first line of each recipe's description, by the recipe's name: those of `train`, then those
    of `pretrain`."""
    return {name: find_recipe(name).text.splitlines()[0] for name in recipe_names()}


def compare_recipes(name: str, other: str) -> list[dict[str, object]]:
    """Return the settings in which a recipe differs from another; or, where `other` is "source", from what
    the code that it is from computes, with the place there and the reason. Raises InputError: there is no
    such recipe; it follows none."""
    shown = find_recipe(name)
    if other == "source":
        return [each._asdict() for each in sourced(shown) if each.why]
    rows = differences(shown.config, find_recipe(other).config)
    return [{"setting": setting, "here": here, "there": there} for setting, (here, there) in rows.items()]
