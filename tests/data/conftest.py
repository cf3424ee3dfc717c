"""Made images of two or more classes that a test can put anywhere."""

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image


def smooth(seed: int, height: int, width: int) -> Image.Image:
    """An image with soft blobs of color, as photographs have."""
    small = np.random.default_rng(seed).integers(0, 256, (4, 5, 3), dtype=np.uint8)
    return Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC)


def jpeg(seed: int, height: int = 48, width: int = 64) -> bytes:
    """A file's bytes."""
    file = io.BytesIO()
    smooth(seed, height, width).save(file, "JPEG", quality=92)
    return file.getvalue()


def fill(root: Path, classes: tuple[str, ...] = ("cat", "dog"), count: int = 10) -> Path:
    """A class folder for each class, each image unlike all others."""
    for number, name in enumerate(classes):
        (root / name).mkdir(parents=True)
        for index in range(count):
            (root / name / f"{index}.jpg").write_bytes(jpeg(1000 * number + index))
    return root


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    return fill(tmp_path / "photos")


@pytest.fixture
def make() -> Callable[..., Path]:
    return fill


@pytest.fixture
def make_jpeg() -> Callable[..., bytes]:
    return jpeg


@pytest.fixture
def make_smooth() -> Callable[..., Image.Image]:
    return smooth
