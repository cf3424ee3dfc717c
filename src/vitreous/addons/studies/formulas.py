"""Images that formulas draw, as many as are asked for: supervision without photographs or labels.

A class is a formula, and its images are what it draws with small changes of its numbers, in any place, size,
color and style, over clutter. Four families take turns: fractals of iterated function systems (Kataoka et
al., arXiv 2101.08515), closed contours whose radius is a sum of waves (2206.09132), characters of a few
strokes, and patterns that fill the image. Which image is drawn depends on the class and its number alone.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter

from vitreous.data.config import DataConfig
from vitreous.data.dataset import ClassTargets, ImageDataset, SourceParts
from vitreous.errors import InputError
from vitreous.rng import numpy_generator

FORM = "formulas:CLASSESxIMAGES@SIZE, such as formulas:1000x200@64: 200 images of each of 1,000 formulas"
CHAINS, STEPS = 320, 16  # of the chaos game
FINE = 2  # pixels of the drawing in one of the image, along each side
Points = NDArray[np.float64]  # (N, 2): x, y in about -1 ... 1
GrayImage = NDArray[np.float64]  # (H, W), 0 ... 1
Rng = np.random.Generator


class FormulaImages(ImageDataset):
    """Images of each of `classes` formulas, square, and numbered so that the classes take turns. numbers: of
    the images of each class."""

    listed = False

    def __init__(self, classes: int, numbers: range, size: int) -> None:
        names = tuple(f"{FAMILIES[group % 4].__name__}-{group:04d}" for group in range(classes))
        self.targets = ClassTargets(np.arange(classes * len(numbers), dtype=np.int64) % classes, names)
        self.numbers, self.size = numbers, size
        self.source = f"formulas@{size}"

    def name(self, index: int) -> str:
        return f"{self.source}[{self.label(index)}, {self.numbers[index // len(self.classes)]}]"

    def held(self, index: int) -> Image.Image:
        number, group = divmod(index, len(self.classes))
        return draw_formula(group, self.numbers[number], self.size)


def open_formulas(rest: str, config: DataConfig) -> SourceParts:
    """Open what is written after `formulas:`. Two more images of each class are the test set."""
    match = re.fullmatch(r"(\d+)x(\d+)@(\d+)", rest)
    if not match or int(match[1]) < 2 or int(match[2]) < 1 or int(match[3]) < 16:
        raise InputError(f"formulas:{rest} is not a dataset of formulas: write {FORM}")
    classes, images, size = (int(number) for number in match.groups())
    return {
        "train": FormulaImages(classes, range(images), size),
        "test": FormulaImages(classes, range(images, images + 2), size),
    }


def draw_formula(group: int, number: int, size: int) -> Image.Image:
    """Return image `number` of the class `group`."""
    rng = numpy_generator(0, "formula image", group, number)
    lightness = rng.uniform(0.1, 0.9)
    contrast = rng.uniform(0.22, 0.55) * (-1 if lightness > 0.5 else 1)
    gray = rng.random() < 0.2
    ground, paint = (filling(size, rng, each, gray) for each in (lightness, lightness + contrast))
    family = FAMILIES[group % len(FAMILIES)]
    mask = family(group, size, rng)[:, :, None]
    if family is not pattern and rng.random() < 0.8:
        ground = cluttered(ground, rng, gray)
    image = Image.fromarray(np.clip(ground + mask * (paint - ground), 0, 255).astype(np.uint8))
    if rng.random() < 0.5:
        image = image.filter(ImageFilter.GaussianBlur(float(rng.uniform(0.2, 0.9)) * size / 64))
    noise = rng.standard_normal((size, size, 1 if gray else 3), dtype=np.float32) * rng.uniform(1, 12)
    return Image.fromarray(np.clip(np.asarray(image) + noise, 0, 255).astype(np.uint8))


# What the four families draw: how much of each pixel the subject covers.


def fractal(group: int, size: int, rng: Rng) -> GrayImage:
    """Return the attractor of an iterated function system, of which one number is changed by up to a
    tenth."""
    maps, shifts, shares = iterated_functions(group)
    maps = maps.copy()
    maps[rng.integers(len(maps)), rng.integers(2), rng.integers(2)] *= rng.uniform(0.85, 1.1)
    drawn = attractor(maps, shifts, shares, rng)
    points = placement(rng)(drawn)
    cells = np.floor((points + 1) / 2 * size).astype(np.int64)
    cells = cells[((cells >= 0) & (cells < size)).all(axis=1)]
    hits = np.bincount(cells[:, 1] * size + cells[:, 0], minlength=size * size).reshape(size, size)
    return np.clip(hits / rng.uniform(0.8, 2.5), 0, 1)


@lru_cache(maxsize=4096)
def iterated_functions(group: int) -> tuple[NDArray[np.float64], Points, NDArray[np.float64]]:
    """Return the maps, shifts and probabilities of a class: the first system sampled whose attractor is
    neither a few points nor a solid area."""
    for trial in range(64):
        rng = numpy_generator(0, "formula", group, trial)
        count = int(rng.integers(2, 6))
        larger = rng.uniform(0.35, 0.9, count)
        sizes = np.stack([larger, larger * rng.uniform(0.2, 1.0, count)], axis=1)
        turns = rotations(rng.uniform(0, 2 * math.pi, (2, count)))
        maps = turns[0] * sizes[:, None] * rng.choice([-1, 1], (count, 1, 1)) @ turns[1]
        shifts = rng.uniform(-1, 1, (count, 2))
        shares = np.abs(np.linalg.det(maps)) + 0.05
        shares /= shares.sum()
        points = attractor(maps, shifts, shares, rng)
        cells = np.unique(np.floor((points + 1) * 16) @ [32, 1])
        if 70 < len(cells) < 600:
            break
    return maps, shifts, shares


def rotations(angles: NDArray[np.float64]) -> NDArray[np.float64]:
    cosine, sine = np.cos(angles), np.sin(angles)
    return np.stack([np.stack([cosine, -sine], axis=-1), np.stack([sine, cosine], axis=-1)], axis=-2)


def attractor(maps: NDArray[np.float64], shifts: Points, shares: NDArray[np.float64], rng: Rng) -> Points:
    """Play the chaos game in many chains at once, and scale what they reach after some steps to -1 ... 1."""
    choices = np.searchsorted(shares.cumsum()[:-1], rng.random((STEPS, CHAINS)))
    z, reached = np.zeros((CHAINS, 2)), []
    for step, chosen in enumerate(choices):
        z = (maps[chosen] @ z[:, :, None])[:, :, 0] + shifts[chosen]
        if step >= 6:
            reached.append(z)
    points = np.concatenate(reached)
    low, high = np.quantile(points, [0.01, 0.99], axis=0)
    return (points - (low + high) / 2) / max(float((high - low).max()) / 2, 1e-6)


def contour(group: int, size: int, rng: Rng) -> GrayImage:
    """Return a closed curve: filled, as an outline, hatched, or as outlines inside each other."""
    own = numpy_generator(0, "formula", group)
    corners = int(own.integers(3, 13)) if own.random() < 0.5 else 96
    waves = np.arange(1, 2 + int(own.integers(1, 6)))
    heights = own.normal(0, 0.34, len(waves)) / waves**0.6
    phases = own.uniform(0, 2 * math.pi, len(waves))
    angle = np.arange(corners) * 2 * math.pi / corners
    if corners < 96:
        angle = angle + own.uniform(-0.4, 0.4, corners) * 2 * math.pi / corners
        heights = heights * 0.5
    inner = own.uniform(0.3, 1.0) if corners < 96 and corners % 2 == 0 else 1.0
    heights = heights * rng.normal(1, 0.06, len(waves))
    radius = 1 + (heights * np.sin(angle[:, None] * waves + phases)).sum(axis=1)
    radius = np.clip(radius, 0.15, None) * np.where(np.arange(corners) % 2, inner, 1.0)
    curve = np.stack([np.sin(angle), -np.cos(angle)], axis=1) * radius[:, None] * (1, own.uniform(0.5, 1))
    curve /= np.abs(curve).max()
    canvas = Image.new("L", (size * FINE, size * FINE))
    pen, style = ImageDraw.Draw(canvas), rng.random()
    width = max(2, round(float(rng.uniform(0.02, 0.07)) * size * FINE))
    ends = corner_list(placement(rng)(curve), size)
    if style < 0.5:
        pen.polygon(ends, fill=255)
    elif style < 0.8:
        pen.line([*ends, *ends[:2]], fill=255, width=width, joint="curve")
    elif style < 0.9:
        pen.polygon(ends, fill=255)
        middle = np.mean(ends, axis=0)
        for share in np.arange(0.8, 0.1, -0.25):
            within = [tuple(each) for each in middle + (np.array(ends) - middle) * share]
            pen.line([*within, within[0]], fill=0, width=max(1, width // 2))
    else:
        pen.polygon(ends, fill=255)
        step, far = width * 2, size * FINE
        slope = int(rng.integers(-far, far))
        for start in range(-far, 2 * far, step):
            pen.line([(start, 0), (start + slope, far)], fill=0, width=max(1, width // 2))
        pen.line([*ends, ends[0]], fill=255, width=max(2, width // 2))
    return reduced(canvas)


def strokes(group: int, size: int, rng: Rng) -> GrayImage:
    """Return a character of curved and straight strokes, with a round or broad pen, as a row of dots, or
    hollow."""
    t = np.linspace(0, 1, 20)[:, None]
    canvas = Image.new("L", (size * FINE, size * FINE))
    pen, style = ImageDraw.Draw(canvas), rng.random()
    width = max(2, round(float(rng.uniform(0.03, 0.09)) * size * FINE))
    place, lines = placement(rng), []
    for a, b, c in stroke_corners(group) + rng.normal(0, 0.05, (1, 3, 2)):
        curve = (1 - t) ** 2 * a + 2 * t * (1 - t) * b + t**2 * c
        lines.append(corner_list(place(curve + rng.normal(0, 0.04, (1, 2))), size))
    broad = rng.normal(0, width * 0.5, 2)
    for line in lines:
        if style < 0.2:
            for x, y in line[:: int(rng.integers(2, 4))]:
                pen.ellipse([x - width / 2, y - width / 2, x + width / 2, y + width / 2], fill=255)
            continue
        pen.line(line, fill=255, width=width, joint="curve")
        # A broad pen draws the line again, shifted.
        if style < 0.4:
            pen.line([(x + broad[0], y + broad[1]) for x, y in line], fill=255, width=width, joint="curve")
        elif style < 0.5:  # ends with serifs
            for x, y in (line[0], line[-1]):
                pen.rectangle([x - width, y - width / 3, x + width, y + width / 3], fill=255)
        elif style < 0.6:
            pen.line(line, fill=0, width=max(1, width // 2), joint="curve")
    return reduced(canvas)


@lru_cache(maxsize=4096)
def stroke_corners(group: int) -> NDArray[np.float64]:
    """Return the beginning, bend and end of each stroke of a class, on a grid of 4 x 4, many of them where
    another stroke has an end."""
    rng = numpy_generator(0, "formula", group)
    count = int(rng.integers(2, 6))
    strokes = np.empty((count, 3, 2))
    for number in range(count):
        ends = rng.integers(0, 4, (2, 2)) / 1.5 - 1
        while np.abs(ends[0] - ends[1]).max() < 0.6:
            ends = rng.integers(0, 4, (2, 2)) / 1.5 - 1
        if number and rng.random() < 0.6:
            ends[0] = strokes[rng.integers(number), 2 * rng.integers(2)]
        bend = ends.mean(axis=0) + (rng.normal(0, 0.7, 2) if rng.random() < 0.5 else 0)
        strokes[number] = ends[0], np.clip(bend, -1.4, 1.4), ends[1]
    return strokes


def pattern(group: int, size: int, rng: Rng) -> GrayImage:
    """Return one to three periodic or random waves, combined, at a changed scale, angle and phase, slightly
    bent."""
    own = numpy_generator(0, "formula", group)
    y, x = np.mgrid[:size, :size] * (2 / size) - 1
    bends = rng.uniform(0, 0.05, 2)[:, None, None] * np.sin(
        np.stack([y, x]) * rng.uniform(1, 5) + rng.uniform(0, 6.3, (2, 1, 1))
    )
    turn = rotations(np.array(rng.uniform(-0.3, 0.3))) * rng.uniform(0.75, 1.3)
    u, v = np.tensordot(turn, np.stack([x, y]) + bends, axes=1)
    count = int(own.integers(1, 4))
    (values, _), *others = [(one_wave(u, v, own, rng), own.integers(3)) for _ in range(count)]
    for wave, how in others:
        values = (np.maximum(values, wave), values * wave, (values + wave) / 2)[how]
    spread = values - values.min()
    return spread / max(float(spread.max()), 1e-6) * rng.uniform(0.5, 1)


def one_wave(u: GrayImage, v: GrayImage, own: Rng, rng: Rng) -> GrayImage:
    """Return a grating, spots on a lattice, rings, or noise of a band of frequencies, 0 ... 1."""
    kind, pace = own.integers(4), own.uniform(4, 26)
    angle, sharp, aspect = own.uniform(0, math.pi), own.choice([1, 4, 30]), own.uniform(0.3, 1)
    lean, bowed = own.uniform(-0.6, 0.6), own.uniform(0, 1.5) * (own.random() < 0.4)
    along = u * math.cos(angle) + v * math.sin(angle)
    across = v * math.cos(angle) - u * math.sin(angle)
    shift, other = rng.uniform(0, 2 * math.pi, 2)
    if kind == 0:
        wave = np.sin(along * pace + bowed * np.sin(across * pace * aspect + other) + shift)
    elif kind == 1:
        row = across * pace * aspect
        brick = np.floor((row + other) / (2 * math.pi)) * lean * math.pi
        wave = np.cos(along * pace + brick + shift) + np.cos(row + other) - own.uniform(-1, 1)
    elif kind == 2:
        middle_u, middle_v = rng.uniform(-0.7, 0.7, 2)
        wave = np.sin(np.hypot(along - middle_u, (across - middle_v) * aspect) * pace + shift)
    else:
        frequency = np.fft.fftfreq(len(u), 2 / len(u))
        fx, fy = np.meshgrid(frequency, frequency)
        f_along = fx * math.cos(angle) + fy * math.sin(angle)
        f_across = (fy * math.cos(angle) - fx * math.sin(angle)) / aspect
        band = np.exp(-((np.hypot(f_along, f_across) * 2 * math.pi - pace) ** 2) / (2 * (0.25 * pace) ** 2))
        wave = np.fft.ifft2(np.fft.fft2(rng.standard_normal(u.shape)) * band).real
        wave /= max(float(wave.std()), 1e-9)
    return np.asarray(1 / (1 + np.exp(np.clip(-float(sharp) * wave, -60, 60))))


# How a drawing becomes an image.


def placement(rng: Rng) -> Callable[[Points], Points]:
    """Return a map that scales, slants, rotates and shifts points into the image."""
    share = rng.uniform(0.4, 0.95)
    slant = np.array([[1, rng.normal(0, 0.12)], [0, 1]]) * rng.uniform(0.8, 1.0, (1, 2))
    turn = rotations(np.array(rng.normal(0, 0.17))) @ slant * share
    shift = rng.uniform(-1, 1, 2) * (1 - share * 0.9)
    return lambda points: np.asarray(points @ turn.T + shift)


def corner_list(points: Points, size: int) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in (points + 1) / 2 * size * FINE]


def reduced(canvas: Image.Image) -> GrayImage:
    return np.asarray(canvas.reduce(FINE), dtype=np.float64) / 255


def color(rng: Rng, lightness: float, gray: bool) -> NDArray[np.float64]:
    """Return a random color of about this lightness."""
    hue = np.zeros(3) if gray else rng.uniform(-0.35, 0.35, 3)
    return np.asarray(np.clip(lightness + hue - hue.mean(), 0.02, 0.98) * 255)


def filling(size: int, rng: Rng, lightness: float, gray: bool) -> NDArray[np.float64]:
    """Return a flat color, a gradient between two, or soft clouds of both: (H, W, 3)."""
    first, second = (color(rng, lightness + rng.normal(0, 0.07), gray) for _ in range(2))
    kind = rng.random()
    if kind < 0.25:
        return np.broadcast_to(first, (size, size, 3)).copy()
    if kind < 0.75:
        y, x = np.mgrid[:size, :size] / size - 0.5
        angle = rng.uniform(0, 2 * math.pi)
        ramp = 0.5 + x * math.cos(angle) + y * math.sin(angle)
    else:
        coarse = Image.fromarray(rng.integers(0, 256, (int(rng.integers(3, 12)),) * 2, dtype=np.uint8))
        ramp = np.asarray(coarse.resize((size, size), Image.Resampling.BICUBIC)) / 255
    return first + np.clip(ramp, 0, 1)[:, :, None] * (second - first)


def cluttered(ground: NDArray[np.float64], rng: Rng, gray: bool) -> NDArray[np.float64]:
    """Return the ground with lines, discs, bars and curves of any color."""
    image = Image.fromarray(np.clip(ground, 0, 255).astype(np.uint8))
    pen, size = ImageDraw.Draw(image), len(ground)
    for kind in rng.integers(0, 4, int(rng.integers(1, 10))):
        x, y = rng.uniform(0, size, 2).tolist()
        reach, width = float(rng.uniform(0.03, 0.15)) * size, max(1, round(size / 64 * rng.uniform(0.6, 2.4)))
        fill = tuple(int(value) for value in color(rng, rng.uniform(0.1, 0.9), gray))
        if kind == 0:
            pen.line([(x, y), (x + rng.normal(0, 0.4) * size, y + rng.normal(0, 0.4) * size)], fill, width)
        elif kind == 1:
            pen.ellipse([x - reach, y - reach, x + reach, y + reach], outline=fill, width=width)
        elif kind == 2:
            pen.rectangle([x, y, x + reach, y + reach * rng.uniform(0.2, 1)], fill=fill)
        else:
            start = rng.uniform(0, 360)
            pen.arc([x - reach, y - reach, x + reach, y + reach], start, start + 150, fill, width)
    return np.asarray(image, dtype=np.float64)


FAMILIES = (fractal, contour, strokes, pattern)
