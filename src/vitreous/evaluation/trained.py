"""Whether a MODEL has learned anything."""

from __future__ import annotations

from pathlib import Path


def has_weights(spec: str) -> bool:
    """Return whether MODEL means weights from somewhere, and not a mere name."""
    return Path(spec).exists() or ":" in spec
