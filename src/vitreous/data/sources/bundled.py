"""Datasets that need no files: scikit-learn's handwritten digits and synthetic JPEGs."""

from __future__ import annotations

import io
import math

import numpy as np
from PIL import Image

from vitreous.data.config import DataConfig
from vitreous.data.dataset import ArrayImages, ImageDataset, Parts
from vitreous.data.split import with_own_parts
from vitreous.errors import InputError, require_packages


def open_digits(config: DataConfig) -> Parts:
    """(train, validation, test): scikit-learn's own stratified split, so that others can repeat it. By
    default there is no validation part: each of so few images counts."""
    config = without_validation(config)
    require_packages("sklearn", extra="train", what="digits")
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    values, targets = load_digits(return_X_y=True)
    gray = np.rint(values.reshape(-1, 8, 8) * (255 / 16)).astype(np.uint8)
    images = ArrayImages(
        gray, targets.astype(np.int64), tuple(str(digit) for digit in range(10)), name="digits"
    )
    if not config.test_fraction or config.folds:
        return with_own_parts(images, {}, config, where="digits")
    train, test = train_test_split(
        np.arange(len(gray)), test_size=config.test_fraction, stratify=targets, random_state=config.split_seed
    )
    return with_own_parts(images.subset(train), {"test": images.subset(test)}, config, where="digits")


def without_validation(config: DataConfig) -> DataConfig:
    """Return the configuration without a validation part, unless one is asked for."""
    asked = config.validation_fraction != "auto"
    return config if asked else config.model_copy(update={"validation_fraction": 0.0})


CLASSES = 10
VARIANTS = 8  # images of each class; the dataset goes round them
FORM = "synthetic:N@SIZE, such as synthetic:1000@224 or synthetic:1000@375x500 (HxW)"


class SyntheticImages(ImageDataset):
    """Gratings, one direction and color for each of ten classes, with noise: learned at once.

    80 different images however many are asked for, so train and test share them: only speed means
    anything.
    """

    source = "synthetic"

    def __init__(self, count: int, height: int, width: int) -> None:
        self.classes = tuple(f"grating-{number}" for number in range(CLASSES))
        self.targets = np.arange(count, dtype=np.int64) % CLASSES
        self.files = [
            grating(number % CLASSES, number // CLASSES, height, width)
            for number in range(min(CLASSES * VARIANTS, count))
        ]

    def encoded(self, index: int) -> bytes:
        return self.files[index % len(self.files)]


def grating(group: int, variant: int, height: int, width: int) -> bytes:
    """Waves across an image, as JPEG bytes."""
    rng = np.random.default_rng((group, variant))
    angle = math.pi * group / CLASSES
    y, x = np.mgrid[:height, :width] / min(height, width)
    phase = 12 * math.pi * (x * math.cos(angle) + y * math.sin(angle)) + rng.uniform(0, 2 * math.pi)
    tint = 0.5 + 0.5 * np.cos(2 * math.pi * (group / CLASSES + np.arange(3) / 3))
    values = (0.5 + 0.3 * np.sin(phase))[:, :, None] * (0.4 + 0.6 * tint) * 255
    noisy = values + rng.normal(0, 12, values.shape)
    file = io.BytesIO()
    Image.fromarray(noisy.round().clip(0, 255).astype(np.uint8)).save(file, "JPEG", quality=90)
    return file.getvalue()


def open_synthetic(rest: str) -> SyntheticImages:
    """From the part after `synthetic:`."""
    count, at, size = rest.partition("@")
    sides = size.lower().split("x")
    if not at or len(sides) > 2 or not all(part.isdigit() and int(part) > 0 for part in (count, *sides)):
        raise InputError(f"synthetic:{rest} is not a synthetic dataset: write {FORM}")
    return SyntheticImages(int(count), int(sides[0]), int(sides[-1]))
