"""A tiny model and a few images, in memory and as files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

import vitreous as vt
from vitreous.models.vit import ViT


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a folder of its own."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def model() -> ViT:
    created = vt.create(
        "ViT-Ti/16", image_size=16, patch_size=8, width=16, depth=2, heads=2, mlp_dim=16, num_classes=2
    )
    assert isinstance(created, ViT)
    return created


@pytest.fixture
def pixels() -> NDArray[np.uint8]:
    """(24, 16, 16, 3): twelve dark images, then twelve bright ones."""
    rng = np.random.default_rng(0)
    dark, bright = (rng.integers(low, low + 100, (12, 16, 16, 3), dtype=np.uint8) for low in (0, 150))
    return np.concatenate([dark, bright])


@pytest.fixture
def labels() -> list[str]:
    return ["dark"] * 12 + ["bright"] * 12


@pytest.fixture
def photos(tmp_path: Path, pixels: NDArray[np.uint8], labels: list[str]) -> Path:
    """A folder with a sub-folder for each class."""
    for number, (image, label) in enumerate(zip(pixels, labels, strict=True)):
        path = tmp_path / "photos" / label / f"{number:02d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(path)
    return tmp_path / "photos"
