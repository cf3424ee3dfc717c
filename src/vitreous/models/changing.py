"""A configuration with some of its fields changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vitreous.models.bit import BiTConfig
from vitreous.models.config import ViTConfig
from vitreous.models.names import build
from vitreous.models.settings import merged


def change(config: ViTConfig | BiTConfig, settings: Mapping[str, Any]) -> ViTConfig | BiTConfig:
    """The same configuration but for `settings`, a tree: {"width": 3, "stem": {"norm_before": True}}.

    Raises:
        InputError: an unknown name, or values that do not fit together.
    """
    changed: ViTConfig | BiTConfig = build(type(config), {}, merged(config.model_dump(), settings))
    return changed
