"""What kind of model lies in a folder of the project's own format, without a weight being read."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path


def kind_in(path: Path) -> str | None:
    """ "ViT", "Segmenter", "Captioner", ... of a run directory or a model's folder; None for any other
    place.

    Raises:
        InputError: a run that was stopped has no model yet.
    """
    from vitreous.training.run import check_finished

    check_finished(path)
    for config in (path / "model" / "config.json", path / "config.json"):
        if config.is_file():
            try:
                told = json.loads(config.read_text(encoding="utf-8"))
            except (OSError, ValueError):
                return None
            kind = told.get("kind") if isinstance(told, dict) else None
            return kind if isinstance(kind, str) else None
    return None


def task_of(run: Path) -> str:
    """What a run was told to learn: "classes", unless its config.toml says otherwise."""
    try:
        return str(tomllib.loads((run / "config.toml").read_text(encoding="utf-8")).get("task", "classes"))
    except (OSError, ValueError):
        return "classes"  # whoever opens the run says what is wrong with it
