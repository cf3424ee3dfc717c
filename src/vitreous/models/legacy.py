"""Names that version 0.1 gave to configuration fields and to weights, so that what it wrote still loads."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from typing import Any, TypeVar

from torch import Tensor

T = TypeVar("T")

FIELDS = {
    "accumulate": "grad_accum_steps",
    "centre_momentum": "center_momentum",
    "colour": "color",
    "colour_jitter": "color_jitter",
    "deviation": "magnitude_std",
    "erasing": "random_erasing",
    "grey": "gray",
    "initialisation": "initialization",
    "normalise_pixels": "normalize_pixels",
    "optimiser": "optimizer",
    "optimisers": "optimizers",
    "representation": "representation_size",
    "repeats": "repeated_augmentation",
    "solarise": "solarize",
    "standardisation": "standardization",
    "standardisation_eps": "standardization_eps",
    "tokeniser": "tokenizer",
}
TASKS = {"classes": "classification", "text": "captioning"}
VALUES = {"mean-colour": "mean-color", "small-colours": "small-colors"}


def with_current_names(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Translate the former names in a tree of settings, at every depth; current names stay as they are."""
    renamed = {FIELDS.get(key, key): current(value) for key, value in tree.items()}
    if renamed.get("form") == "convolution" and (renamed.get("norm_before") or renamed.get("norm_after")):
        renamed["form"] = "linear"  # as version 0.1 built it
    return renamed


def current_weights(weights: Mapping[str, T], wanted: Container[str]) -> dict[str, T]:
    """Translate the former names of weights, for a model whose weights are `wanted`.

    A segmenter was a Vision Transformer and now has one; the positions of every layer were not in the blocks;
    a model without prefix tokens had a parameter of no size.
    """
    renamed: dict[str, T] = {}
    for name, weight in weights.items():
        now = re.sub(r"\blayer_positions\.(\d+)\.", r"blocks.\1.position.", name)
        now = re.sub(r"\binner_position\.", "position.", now)
        now = next((each for each in (name, now, f"encoder.{now}") if each in wanted), name)
        empty = isinstance(weight, Tensor) and not weight.numel()
        if now in wanted or not empty:
            renamed[now] = weight
    return renamed


def current(value: Any) -> Any:
    if isinstance(value, Mapping):
        return with_current_names(value)
    return VALUES.get(value, value) if isinstance(value, str) else value


def with_task(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return a run's config.toml with its task, which version 0.1 said in other ways.

    Pre-training runs named their objective in [pretraining], with the settings of all of them; runs with
    several labels differed in training.loss alone.
    """
    several = tree.get("training", {}).get("loss") == "sigmoid"
    default = "mae" if "pretraining" in tree else "multilabel" if several else "classification"
    return {"task": default, **with_renamed_task(tree)}


def with_renamed_task(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with the present names of tasks, where they name one."""
    result = dict(tree)
    if "task" in tree:
        result["task"] = TASKS.get(tree["task"], tree["task"])
    if "objective" in (pretraining := tree.get("pretraining", {})):
        result["task"] = pretraining["objective"]
        chosen = str(pretraining["objective"]).replace("-", "_")
        result["pretraining"] = {chosen: pretraining[chosen]} if chosen in pretraining else {}
    return result
