"""The numbers behind a report, as one file beside it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np


def save_arrays(arrays: Mapping[str, np.ndarray], path: Path) -> Path:
    """Write `arrays` compressed to `path`, an .npz, beside first."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with beside.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)
    return path
