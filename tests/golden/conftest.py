"""The golden data: tiny models of the original codebases, with inputs and what those codebases compute."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

HERE = Path(__file__).parent
SHARED = HERE.parents[2] / "shared" / "golden"


class Golden(NamedTuple):
    """One folder of the golden data."""

    folder: Path
    manifest: dict[str, Any]
    expected: dict[str, Tensor]

    def array(self, name: str) -> Tensor:
        """A further array of the folder: input.npy and its like."""
        return torch.from_numpy(np.load(self.folder / f"{name}.npy"))


@pytest.fixture(scope="session")
def golden_root() -> Path:
    """The shared data where they are, the copy beside the tests otherwise."""
    return SHARED if (SHARED / "index.json").is_file() else HERE / "data"


@pytest.fixture(scope="session")
def golden(golden_root: Path) -> Callable[[str], Golden]:
    def find(name: str) -> Golden:
        folder = golden_root / name
        with np.load(folder / "expected.npz") as arrays:
            expected = {key: torch.from_numpy(arrays[key]) for key in arrays.files}
        return Golden(folder, json.loads((folder / "manifest.json").read_text()), expected)

    return find
