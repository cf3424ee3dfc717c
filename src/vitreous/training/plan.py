"""From what the user asked for to a whole `RunConfig`: the data, then a recipe, then the user's settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
from pydantic import ValidationError

from vitreous.data.checking import looks_masked
from vitreous.data.config import DataConfig
from vitreous.data.dataset import Splits
from vitreous.data.sources import open_data
from vitreous.errors import InputError
from vitreous.models.settings import explain
from vitreous.training.choose import Choice, choose_recipe
from vitreous.training.config import RunConfig
from vitreous.training.distributed import World
from vitreous.training.fine_tuning import choose_fine_tuning
from vitreous.training.initial_model import absolute_source, fitted_to_checkpoint, starting_model
from vitreous.training.memory import accumulation, activation_checkpointing, free_bytes
from vitreous.training.precision import pick_precision
from vitreous.training.recipes import recipe
from vitreous.training.settings import check_known, configure, without_none_words

Tree = Mapping[str, Any]
MOST_NAMED = 6  # settings of the user's that are named


class Plan(NamedTuple):
    """A run before it begins: its configuration, why it is this one, and its data."""

    config: RunConfig
    reasons: tuple[str, ...]
    splits: Splits


def plan(source: str, settings: Tree, *, recipe_name: str | None = None, init: str | None = None) -> Plan:
    """The configuration of a run on `source`.

    Args:
        settings: the user's own, over everything that a recipe says.
        recipe_name: the recipe to use; None: one is chosen from the number and size of the images.
        init: a checkpoint whose weights, architecture and preprocessing the run begins with.

    Raises:
        InputError: unknown settings, values or data, or what does not fit together.
    """
    check_known({key: value for key, value in settings.items() if key != "model"}, RunConfig)
    settings = without_none_words(settings, RunConfig)
    splits = open_data(source, data_config(settings))
    if looks_masked(splits.train.classes):
        raise InputError(
            f"{source} holds images and their masks: add --task segmentation; or, should these be two "
            "classes, give their folders other names"
        )
    init = init or settings.get("init")
    if recipe_name:
        choice = Choice(recipe(recipe_name).config, (f"{recipe_name}, as asked",))
    else:
        choice = choose_fine_tuning(splits.summary) if init else choose_recipe(source, splits.summary)
    config = choice.config
    if init:
        imposed = recipe(recipe_name).imposed if recipe_name else ()
        config = fitted_to_checkpoint(config, init, settings, imposed)
    config = configure(config, settings, with_classes(settings, splits))
    check_batch(config, splits)
    reasons = (*choice.reasons, *overruled(settings))
    return Plan(config.model_copy(update={"source": absolute_source(source)}), reasons, splits)


def overruled(settings: Tree) -> tuple[str, ...]:
    """What the user set instead, as one more sentence; nothing where nothing was set."""
    own = [f"{name}={value}" for name, value in leaves(settings)]
    if not own:
        return ()
    more = f", and {len(own) - MOST_NAMED} more" if len(own) > MOST_NAMED else ""
    return (f"over all this your own settings: {', '.join(own[:MOST_NAMED])}{more}",)


def leaves(tree: Tree, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """("training.epochs", 2) for every value of a tree of settings."""
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def settled(
    config: RunConfig, splits: Splits, device: torch.device, *, fit_memory: bool, world: World
) -> RunConfig:
    """What depends on the machine, decided once, so that config.toml says it and a resumed run keeps it.

    Args:
        fit_memory: cut the batch into as many parts as it takes to fit (`--batch-size auto`).
    """
    training = config.training
    changes: dict[str, Any] = {"precision": pick_precision(training.precision, device)}
    if fit_memory:
        model = starting_model(config, splits.train.classes).to(device)
        images = torch.zeros(2, config.model.channels, *config.model.image_size, device=device)
        with activation_checkpointing(model) if training.checkpointing else nullcontext():
            free = free_bytes(device) // (world.size if device.type == "cpu" else 1)
            changes["accumulate"] = accumulation(model, images, world.share(training.batch_size), free)
    return config.model_copy(update={"training": training.model_copy(update=changes)})


def with_classes(settings: Tree, splits: Splits) -> dict[str, Any]:
    """The head has one output for each class of the data."""
    wanted, present = settings.get("model", {}).get("num_classes"), splits.summary.classes
    if wanted not in (None, present):
        raise InputError(
            f"model.num_classes is {wanted}, but {splits.name} has {present} classes: leave it out"
        )
    return {"model": {"num_classes": present}}


def check_batch(config: RunConfig, splits: Splits) -> None:
    """An epoch has at least one whole batch."""
    if (images := len(splits.train)) < config.training.batch_size:
        raise InputError(
            f"a batch of {config.training.batch_size} is more than the {images} images to train on: set "
            f"--batch-size {max(images // 4, 1)}, for example"
        )


def data_config(settings: Tree) -> DataConfig:
    try:
        return DataConfig(**settings.get("data", {}))
    except ValidationError as error:
        raise InputError(explain(error, "data")) from None
