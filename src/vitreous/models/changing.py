"""A configuration with some of its fields changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vitreous.models.bit import BiTConfig
from vitreous.models.config import ViTConfig
from vitreous.models.names import build


def change(config: ViTConfig | BiTConfig, settings: Mapping[str, Any]) -> ViTConfig | BiTConfig:
    """The same configuration but for `settings`, a tree: {"width": 3, "stem": {"norm_before": True}}.

    Raises:
        InputError: an unknown name, or values that do not fit together.
    """
    changed: ViTConfig | BiTConfig = build(type(config), {}, merge(config.model_dump(), settings))
    return changed


def merge(tree: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """`tree` overlaid with `settings`. A part whose kind changes keeps none of its old fields."""
    if settings.get("kind", tree.get("kind")) != tree.get("kind"):
        return dict(settings)
    merged = dict(tree)
    for key, value in settings.items():
        if isinstance(value, Mapping) and isinstance(old := tree.get(key), Mapping):
            value = merge(old, value)
        merged[key] = value
    return merged
