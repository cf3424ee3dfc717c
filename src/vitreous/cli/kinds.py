"""What kind of model lies in a folder of the project's own format, without a weight being read."""

from __future__ import annotations

import json
from pathlib import Path


def kind_in(path: Path) -> str | None:
    """ "ViT", "Segmenter", "Captioner", ... of a run directory or a model's folder; None for any other
    place."""
    for config in (path / "model" / "config.json", path / "config.json"):
        if config.is_file():
            try:
                told = json.loads(config.read_text(encoding="utf-8"))
            except (OSError, ValueError):
                return None
            kind = told.get("kind") if isinstance(told, dict) else None
            return kind if isinstance(kind, str) else None
    return None
