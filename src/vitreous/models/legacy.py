"""Names that versions before 0.2 gave to fields of configurations, so that what they wrote still loads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

FIELDS = {
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
VALUES = {"mean-colour": "mean-color", "small-colours": "small-colors"}


def with_current_names(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Translate the former names in a tree of settings, at every depth; current names stay as they are."""
    return {FIELDS.get(key, key): current(value) for key, value in tree.items()}


def current(value: Any) -> Any:
    if isinstance(value, Mapping):
        return with_current_names(value)
    return VALUES.get(value, value) if isinstance(value, str) else value
