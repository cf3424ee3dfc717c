"""The textures of `made_sets.py`: 24 patterns, each a height field in 0 ... 1 over the plane."""

from __future__ import annotations

import colorsys
import math
from collections.abc import Callable

import numpy as np
from PIL import Image

Rng = np.random.Generator
Field = Callable[[np.ndarray, np.ndarray, Rng], np.ndarray]  # (x, y in periods, rng) -> height


def wave(x: np.ndarray) -> np.ndarray:
    return 0.5 + 0.5 * np.sin(2 * math.pi * x)


def saw(x: np.ndarray) -> np.ndarray:
    return x - np.floor(x)


def triangle(x: np.ndarray) -> np.ndarray:
    return np.abs(2 * saw(x) - 1)


def near(distance: np.ndarray, radius: float) -> np.ndarray:
    """1 within the radius, with a soft edge."""
    return np.clip((radius - distance) / 0.06 + 0.5, 0, 1)


def cell(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Distance to the center of the unit cell."""
    return np.hypot(saw(x) - 0.5, saw(y) - 0.5)


def joints(x: np.ndarray, y: np.ndarray, shift: float) -> np.ndarray:
    """A wall: rows of tiles of 2 x 1, each row shifted by that share of a tile."""
    row = np.floor(y)
    across = triangle(x / 2 + shift * row)
    return 1 - np.clip(np.maximum(near(1 - across, 0.08), near(1 - triangle(y), 0.16)), 0, 1)


def points(x: np.ndarray, y: np.ndarray, rng: Rng) -> tuple[np.ndarray, np.ndarray]:
    """Distances to the nearest and to the second of randomly strewn points, about one in each cell."""
    low, high = int(np.floor(min(x.min(), y.min()))) - 1, int(np.ceil(max(x.max(), y.max()))) + 1
    side = np.arange(low, high)
    centers = np.stack(np.meshgrid(side, side), -1).reshape(-1, 2) + rng.random((len(side) ** 2, 2))
    distance = np.hypot(x[..., None] - centers[:, 0], y[..., None] - centers[:, 1])
    nearest = np.partition(distance, 1, axis=-1)
    return nearest[..., 0], nearest[..., 1]


def clouds(x: np.ndarray, y: np.ndarray, rng: Rng) -> np.ndarray:
    """Smooth noise: a sum of waves in every direction."""
    total = np.zeros_like(x)
    for _ in range(14):
        angle, phase = rng.uniform(0, 2 * math.pi, 2)
        frequency = rng.uniform(0.3, 1.0)
        total += np.sin(2 * math.pi * frequency * (x * np.cos(angle) + y * np.sin(angle)) + phase)
    return np.clip(0.5 + total / 8, 0, 1)


TEXTURES: dict[str, Field] = {
    "stripes": lambda x, y, rng: wave(x),
    "thin-lines": lambda x, y, rng: near(triangle(x), 0.2),
    "paired-lines": lambda x, y, rng: np.maximum(near(triangle(x), 0.15), near(triangle(x + 0.25), 0.15)),
    "ramps": lambda x, y, rng: saw(x),
    "checks": lambda x, y, rng: (np.floor(x) + np.floor(y)) % 2,
    "grid": lambda x, y, rng: np.maximum(near(triangle(x), 0.2), near(triangle(y), 0.2)),
    "tartan": lambda x, y, rng: 0.5 * (triangle(x) > 0.5) + 0.5 * (triangle(y) > 0.5),
    "dots": lambda x, y, rng: near(cell(x, y), 0.28),
    "staggered-dots": lambda x, y, rng: near(cell(x + 0.5 * np.floor(y), y), 0.28),
    "rings": lambda x, y, rng: near(np.abs(cell(x, y) - 0.32), 0.08),
    "squares": lambda x, y, rng: near(np.maximum(np.abs(saw(x) - 0.5), np.abs(saw(y) - 0.5)), 0.28),
    "diamonds": lambda x, y, rng: near(np.abs(saw(x) - 0.5) + np.abs(saw(y) - 0.5), 0.34),
    "crosses": lambda x, y, rng: near(
        np.minimum(np.abs(saw(x) - 0.5), np.abs(saw(y) - 0.5)) + 0.5 * (cell(x, y) > 0.38), 0.09
    ),
    "bricks": lambda x, y, rng: joints(x, y, 0.5),
    "tiles": lambda x, y, rng: joints(x, y, 0.0),
    "waves": lambda x, y, rng: wave(y + 0.3 * np.sin(2 * math.pi * x)),
    "zigzag": lambda x, y, rng: wave(y + 0.8 * triangle(x)),
    "scales": lambda x, y, rng: np.hypot(saw(x + 0.5 * np.floor(y)) - 0.5, saw(y)) % 0.7 / 0.7,
    "basket": lambda x, y, rng: np.where((np.floor(x) + np.floor(y)) % 2 > 0, wave(3 * x), wave(3 * y)),
    "target": lambda x, y, rng: wave(np.hypot(x - x.mean(), y - y.mean())),
    "rays": lambda x, y, rng: wave(10 * np.arctan2(y - y.mean(), x - x.mean()) / (2 * math.pi)),
    "cracks": lambda x, y, rng: 1 - near(np.subtract(*points(x, y, rng)[::-1]), 0.08),
    "pebbles": lambda x, y, rng: near(points(x, y, rng)[0], 0.32),
    "clouds": clouds,
}


def texture(name: str, rng: Rng, validation: bool) -> Image.Image:
    """The pattern at a random scale and angle, in two colors, under a light from one side.

    Validation turns dark and light round, and its light is stronger.
    """
    size = int(rng.integers(72, 145))
    periods, angle = rng.uniform(3.5, 7.5), math.radians(rng.uniform(-25, 25))
    phase = rng.uniform(0, 10, 2)
    y, x = np.mgrid[0:size, 0:size] / size * periods
    bend = 0.12 * np.sin(2 * math.pi * (y / periods) * rng.uniform(0.5, 1.5) + rng.uniform(0, 6))
    u = x * math.cos(angle) - y * math.sin(angle) + phase[0] + bend
    v = x * math.sin(angle) + y * math.cos(angle) + phase[1]
    height = TEXTURES[name](u, v, rng)[..., None]
    dark, light = rng.uniform(0.08, 0.4), rng.uniform(0.6, 0.92)
    low, high = (light, dark) if validation else (dark, light)
    first, second = (
        np.array(colorsys.hls_to_rgb(rng.random(), value, rng.uniform(0.1, 0.8))) for value in (low, high)
    )
    direction = rng.uniform(0, 2 * math.pi)
    slope = (x * math.cos(direction) + y * math.sin(direction)) / periods
    light_side = 1 + rng.uniform(*((0.5, 0.9) if validation else (0.0, 0.3))) * (slope - slope.mean())
    pixels = (first + (second - first) * height) * light_side[..., None]
    return Image.fromarray(np.clip(255 * pixels, 0, 255).astype(np.uint8))
