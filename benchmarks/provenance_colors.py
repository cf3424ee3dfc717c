"""Images and their appearance, for `provenance.py` and `provenance_tensorflow.py`: NumPy alone."""

from __future__ import annotations

import numpy as np

DRAWN = 56  # pixels of a side of the image whose colors are changed 20,000 times: a quarter of 224


def noise(height: int, width: int) -> np.ndarray:
    """An image that is the same everywhere: smooth waves with some noise."""
    rng = np.random.default_rng(0)
    y, x = np.mgrid[0 : 1 : height * 1j, 0 : 1 : width * 1j]
    waves = np.stack([np.sin(7 * x + 3 * y), np.cos(5 * y), np.sin(11 * x * y)], axis=-1)
    return np.clip(110 + 70 * waves + rng.normal(0, 20, waves.shape), 0, 255).astype(np.uint8)


def appearance(image: np.ndarray) -> np.ndarray:
    """Seven numbers of an image (H, W, 3) of bytes: mean and standard deviation of each channel, and how much
    neighbors differ."""
    values = image.astype(np.float64)
    edges = np.abs(np.diff(values, axis=1)).mean()
    return np.round([*values.mean(axis=(0, 1)), *values.std(axis=(0, 1)), edges], 3)
