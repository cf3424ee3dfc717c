"""Recipes of the tasks beyond classification: TOML files, as `--config` takes them, with explanations."""

from __future__ import annotations

import tomllib
from pathlib import Path

from vitreous.training.settings import AnyConfig, Tree, configure


def packaged_config(kind: type[AnyConfig], name: str, settings: Tree | None = None) -> AnyConfig:
    """Return the recipe `name`, with what the data decide over it."""
    text = (Path(__file__).parent / f"{name}.toml").read_text(encoding="utf-8")
    return configure(kind(), tomllib.loads(text), settings or {})
