"""The numbers behind a report, as one file beside it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from vitreous.checkpoints.whole_files import whole


def save_arrays(arrays: Mapping[str, np.ndarray], path: Path) -> Path:
    """Write `arrays` compressed to `path`, an .npz, beside first."""
    with whole(path) as beside, beside.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)
    return path
