"""What tests share: a quiet, repeatable PyTorch, and a few images."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image


@pytest.fixture(autouse=True)
def _repeatable() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """photos/ with two classes of twelve images that differ in color."""
    where = tmp_path_factory.mktemp("images")
    random = np.random.default_rng(0)
    for shade, name in enumerate(("apples", "pears")):
        (where / "photos" / name).mkdir(parents=True)
        for number in range(12):
            pixels = random.integers(0, 80, (48, 64, 3), dtype=np.uint8)
            pixels[..., shade] += 150
            Image.fromarray(pixels).save(where / "photos" / name / f"{number}.jpg")
    return where
