"""Digits as strokes in three hands, and as the page of `vitreous learn` reduces a drawing to 8 x 8 pixels.

Two hands are drawn for the training of the page's model; the third measures how well drawings are recognized.
"""

from __future__ import annotations

import math
import random

import numpy as np
from PIL import Image, ImageDraw

Stroke = list[tuple[float, float]]

PAD = 256  # side of the drawing area
FINE, THICK, WIDEST = 32, 5, 24  # as in input.js: before blocks of 4 x 4 are averaged


def arc(x: float, y: float, wide: float, high: float, start: int, end: int) -> Stroke:
    """Return a part of an ellipse, from one angle to another, in degrees from the right over the bottom."""
    angles = [math.radians(start + (end - start) * step / 24) for step in range(25)]
    return [(x + wide * math.cos(angle), y + high * math.sin(angle)) for angle in angles]


ROUND: dict[int, list[Stroke]] = {
    0: [arc(0.5, 0.5, 0.32, 0.5, -90, 270)],
    1: [[(0.5, 0), (0.5, 1)]],
    2: [[*arc(0.5, 0.28, 0.36, 0.28, 200, 400), (0.1, 1), (0.9, 1)]],
    3: [[*arc(0.45, 0.25, 0.35, 0.25, 200, 450), *arc(0.45, 0.75, 0.4, 0.25, -90, 160)]],
    4: [[(0.7, 1), (0.7, 0), (0.1, 0.65), (0.95, 0.65)]],
    5: [[(0.85, 0), (0.25, 0), (0.2, 0.42), *arc(0.45, 0.68, 0.38, 0.32, -120, 150)]],
    6: [[(0.75, 0), *arc(0.55, 0.5, 0.42, 0.5, 230, 180), *arc(0.5, 0.72, 0.36, 0.28, 180, 540)]],
    7: [[(0.1, 0), (0.9, 0), (0.4, 1)]],
    8: [[*arc(0.5, 0.25, 0.3, 0.25, 90, 450), *arc(0.5, 0.75, 0.36, 0.25, -90, 270)]],
    9: [[*arc(0.5, 0.28, 0.34, 0.28, 0, 360), (0.84, 0.28), (0.8, 1)]],
}
QUICK: dict[int, list[Stroke]] = {
    0: [arc(0.5, 0.5, 0.42, 0.5, -60, 300)],
    1: [[(0.25, 0.25), (0.55, 0), (0.55, 1)]],
    2: [
        [
            *arc(0.45, 0.25, 0.35, 0.25, 180, 390),
            (0.12, 0.95),
            *arc(0.25, 0.9, 0.12, 0.1, 180, 330),
            (0.9, 0.98),
        ]
    ],
    3: [[(0.15, 0), (0.85, 0), (0.45, 0.4), *arc(0.45, 0.7, 0.4, 0.3, -90, 150)]],
    4: [[(0.3, 0), (0.1, 0.6), (0.9, 0.6)], [(0.7, 0.2), (0.65, 1)]],
    5: [[(0.25, 0), (0.2, 0.45), *arc(0.45, 0.7, 0.38, 0.3, -110, 150)], [(0.25, 0), (0.9, 0.02)]],
    6: [[(0.55, 0), (0.2, 0.6), *arc(0.5, 0.72, 0.34, 0.28, 190, 545)]],
    7: [[(0.08, 0.05), (0.92, 0), (0.45, 1)], [(0.3, 0.5), (0.8, 0.5)]],
    8: [
        [
            (0.8, 0.12),
            *arc(0.5, 0.24, 0.3, 0.24, -40, -270),
            *arc(0.5, 0.75, 0.34, 0.25, -90, 240),
            (0.8, 0.12),
        ]
    ],
    9: [[*arc(0.48, 0.3, 0.36, 0.3, -20, 340), (0.82, 0.7), *arc(0.5, 0.72, 0.32, 0.28, 0, 120)]],
}
ANGULAR: dict[int, list[Stroke]] = {  # no model is trained on this one
    0: [arc(0.5, 0.5, 0.25, 0.5, -90, 272)],
    1: [[(0.3, 0.2), (0.55, 0), (0.5, 1)], [(0.25, 1), (0.8, 1)]],
    2: [[(0.15, 0.15), (0.5, 0), (0.8, 0.15), (0.75, 0.4), (0.1, 1), (0.95, 0.95)]],
    3: [
        [(0.15, 0.08), (0.55, 0), (0.8, 0.18), (0.7, 0.4), (0.4, 0.48)],
        [(0.4, 0.48), (0.75, 0.58), (0.85, 0.8), (0.55, 1), (0.1, 0.92)],
    ],
    4: [[(0.65, 0), (0.05, 0.7), (1, 0.7)], [(0.7, 0.45), (0.7, 1)]],
    5: [[(0.9, 0), (0.15, 0), (0.15, 0.4), (0.6, 0.4), (0.88, 0.6), (0.8, 0.9), (0.45, 1), (0.05, 0.92)]],
    6: [
        [(0.8, 0.05), (0.4, 0.2), (0.15, 0.6), (0.3, 0.95), (0.65, 1), (0.85, 0.75), (0.6, 0.52), (0.2, 0.65)]
    ],
    7: [[(0.1, 0.15), (0.12, 0), (0.9, 0), (0.55, 0.5), (0.5, 1)]],
    8: [
        [(0.5, 0.48), (0.2, 0.25), (0.5, 0), (0.8, 0.22), (0.5, 0.48)],
        [(0.5, 0.48), (0.15, 0.75), (0.5, 1), (0.85, 0.75), (0.5, 0.48)],
    ],
    9: [[(0.8, 0.2), (0.5, 0), (0.2, 0.25), (0.45, 0.5), (0.8, 0.3), (0.8, 0.2), (0.7, 0.6), (0.45, 1)]],
}


def drawings(hand: dict[int, list[Stroke]], count: int, seed: int) -> list[tuple[int, list[Stroke]]]:
    """Return each digit `count` times, in other sizes, slants and places of the drawing area."""
    rng = random.Random(seed)
    return [(digit, varied(hand[digit], rng)) for digit in range(10) for _ in range(count)]


def varied(strokes: list[Stroke], rng: random.Random) -> list[Stroke]:
    narrow, size, slant = rng.uniform(0.55, 1), rng.uniform(90, 200), rng.uniform(-0.25, 0.35)
    angle = math.radians(rng.uniform(-8, 8))
    left, top = rng.uniform(20, 236 - 0.9 * size), rng.uniform(15, 241 - size)
    found = []
    for stroke in strokes:
        points = []
        for x, y in stroke:
            across, down = (x - 0.5) * narrow + (0.5 - y) * slant, y - 0.5
            turned_x = across * math.cos(angle) - down * math.sin(angle)
            turned_y = across * math.sin(angle) + down * math.cos(angle)
            shaky_x, shaky_y = rng.gauss(0, 0.008 * size), rng.gauss(0, 0.008 * size)
            points.append(((turned_x + 0.5) * size + left + shaky_x, (turned_y + 0.5) * size + top + shaky_y))
        found.append(points)
    return inside(found)


def inside(strokes: list[Stroke]) -> list[Stroke]:
    """Move strokes that leave the drawing area back into it."""
    points = np.array([point for stroke in strokes for point in stroke])
    low, high = points.min(axis=0), points.max(axis=0)
    shift = np.maximum(14 - low, 0) + np.minimum(PAD - 14 - high, 0)
    return [[(x + float(shift[0]), y + float(shift[1])) for x, y in stroke] for stroke in strokes]


def as_digit(strokes: list[Stroke]) -> Image.Image:
    """Return a drawing as the page reduces it: strokes fill the height, and blocks are averaged."""
    points = np.array([point for stroke in strokes for point in stroke])
    low, high = points.min(axis=0), points.max(axis=0)
    wide, tall = np.maximum(high - low, 1)
    down = (FINE - THICK) / tall
    across = min(down, (WIDEST - THICK) / wide)
    down = min(down, 2.5 * across)
    grow = 8  # drawn larger, then reduced: smooth edges
    side, thick = FINE * grow, THICK * grow
    canvas = Image.new("L", (side, side))
    pen = ImageDraw.Draw(canvas)
    for stroke in strokes:
        placed = [
            (
                side / 2 + grow * across * (x - (low[0] + high[0]) / 2),
                side / 2 + grow * down * (y - (low[1] + high[1]) / 2),
            )
            for x, y in stroke
        ]
        pen.line(placed, fill=255, width=thick, joint="curve")
        for x, y in placed:
            pen.ellipse((x - thick / 2, y - thick / 2, x + thick / 2, y + thick / 2), fill=255)
    return canvas.resize((8, 8), Image.Resampling.BOX)
