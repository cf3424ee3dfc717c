"""Which recipe suits the data: by rule, each choice with its reason in words."""

from __future__ import annotations

from typing import Any, NamedTuple

from vitreous.data.pictures import DataSummary
from vitreous.training.config import RunConfig
from vitreous.training.recipes import recipe
from vitreous.training.settings import configure


class Choice(NamedTuple):
    """A configuration, and why it is this one: a sentence for each part."""

    config: RunConfig
    reasons: tuple[str, ...]


def choose_recipe(source: str, data: DataSummary) -> Choice:
    """The recipe for training from scratch on data of this number and size."""
    if source == "digits":
        return Choice(recipe("digits").config, ("the recipe made for the bundled digits",))
    config = recipe("small").config
    model: dict[str, Any] = {"num_classes": data.classes, "channels": data.channels}
    settings: dict[str, Any] = {"model": model}
    if data.channels == 1:
        settings["preprocessing"] = {"mean": (0.5,), "std": (0.5,)}
    if data.multi_label:
        settings["training"] = {"loss": "sigmoid"}
    size = config.model.image_size[0]
    reasons = [
        f"{data.pictures} pictures of {data.classes} classes, about {data.width}x{data.height}: "
        f"a small ViT with a convolutional stem at {size}x{size}"
    ]
    return Choice(configure(config, settings), tuple(reasons))
