"""`vitreous.pretrain`, and the recipes that it and `train` follow."""

from __future__ import annotations

from pathlib import Path
from typing import Unpack

from vitreous.api.arguments import ImageSize, ModelLike
from vitreous.api.data_source import data_source
from vitreous.api.run import Run, check_known, check_length
from vitreous.api.training import TrainingOptions, run_settings, start_training
from vitreous.errors import InputError, Param, nearest
from vitreous.tasks import OBJECTIVES
from vitreous.tasks.pretraining.rules import find_recipe, pretraining_recipe, recipe_names
from vitreous.training.recipes import sourced
from vitreous.training.settings import differences


class ImageTrainingOptions(TrainingOptions, total=False):
    """What a training on images may be given."""

    model: str | None
    init: ModelLike | None
    image_size: ImageSize | None
    minutes: int | float | None
    workers: int | None
    strict: bool | None
    group_by: str | None
    split_by_time: bool | None
    exclude: str | Path | None
    dry_run: bool


def pretrain(
    data: object = None,
    *,
    objective: str | None = None,
    recipe: str | None = None,
    **options: Unpack[ImageTrainingOptions],
) -> Run:
    """Pre-train an encoder on images alone; labels, where there are any, are not used.

    Args:
        data: see `train`; labels may be missing: a list or an array of images, a manifest without the column
            label.
        objective: what is learned, by the name of its task (`vitreous pretrain --help` lists them); by
            default the first of them.
        recipe: the recipe of a paper, such as paper-masked-patch or mae; by default it follows from the
            data.
        batch_size: images in each step.
        options: model, init, image_size, epochs, minutes, out, device, precision, shard, deterministic, seed,
            workers, strict, group_by, split_by_time, exclude, dry_run, settings, config, callbacks, progress
            and language; see `train`.

    Raises:
        InputError, Interrupted: see `train`.
    """
    check_known("pretrain", options, ImageTrainingOptions.__optional_keys__)
    check_length(minutes=options.get("minutes"), epochs=options.get("epochs"))
    tree = run_settings(options)
    own = pretraining_recipe(recipe).config.task if recipe else OBJECTIVES[0]
    name = str(objective or tree.get("task", own))
    if recipe and name != own:
        raise InputError(
            f"the recipe {recipe} is for {Param('objective')} {own}, not {name}: leave one of them out"
        )
    if name not in OBJECTIVES:
        raise InputError(f"unknown objective {name!r}: {nearest(name, OBJECTIVES)}")
    source = None if data is None else data_source(data, "unlabeled")
    return start_training(name, source, tree, {**options, "recipe": recipe})


def list_recipes() -> dict[str, str]:
    """Return the first line of each recipe's description, by the recipe's name: those of `train`, then those
    of `pretrain`."""
    return {name: find_recipe(name).text.splitlines()[0] for name in recipe_names()}


def compare_recipes(name: str, other: str) -> list[dict[str, object]]:
    """Return the settings in which a recipe differs from another.

    Args:
        name: of the recipe.
        other: the name of another one; or "source": the code that it is from, with the place there and the
            reason.

    Raises:
        InputError: there is no such recipe; it follows none.
    """
    shown = find_recipe(name)
    if other == "source":
        return [each._asdict() for each in sourced(shown) if each.why]
    rows = differences(shown.config, find_recipe(other).config)
    return [{"setting": setting, "here": here, "there": there} for setting, (here, there) in rows.items()]
