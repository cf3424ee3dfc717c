"""The generated image world: one object or glyph in an image, composed of factors that are known exactly.

Every image is a function of (seed, part, index): as many as are wanted, the same on every machine, and drawn
when they are asked for. All kinds of labels are labels of the same images; only glyphs replace the shapes.
Training and test images differ in their looks: saturation, brightness, spatial frequency and noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from vitreous.data.config import DataConfig
from vitreous.data.dataset import ClassTargets, ImageDataset, SourceParts
from vitreous.errors import InputError, nearest
from vitreous.rng import numpy_generator

Floats = NDArray[np.float32]

FINE = 512  # pixels of a side that a template is drawn at before it is reduced
GLYPHS = 24
ROWS, COLUMNS = ("top", "middle", "bottom"), ("left", "center", "right")
BLOCK = 32  # images that are drawn together where they are kept
KEPT = 512 << 20  # bytes of images that a dataset keeps; of more, each is drawn whenever it is asked for
HUES = ("red", "orange", "yellow-green", "green", "cyan", "blue", "violet", "pink")


class Texture(NamedTuple):
    """Waves a and b at right angles: `along` * a + `across` * b + `product` * a * b, turned by `turn`."""

    turn: float
    along: float
    across: float
    product: float


TEXTURES = {
    "plain": Texture(0.0, 0.0, 0.0, 0.0),
    "vertical": Texture(0.0, 1.0, 0.0, 0.0),
    "horizontal": Texture(0.0, 0.0, 1.0, 0.0),
    "rising": Texture(0.25, 1.0, 0.0, 0.0),
    "falling": Texture(-0.25, 1.0, 0.0, 0.0),
    "checks": Texture(0.0, 0.0, 0.0, 1.5),
    "diamonds": Texture(0.25, 0.0, 0.0, 1.5),
    "dots": Texture(0.0, 0.75, 0.75, -0.75),
}


class Ends(NamedTuple):
    """The ends of an even distribution."""

    low: float
    high: float

    def at(self, uniform: Floats) -> Floats:
        return np.asarray(self.low + (self.high - self.low) * uniform, np.float32)


# Of training and of test images: saturation and value of the ink, cycles as a factor, and the noise.
LOOKS = {
    "train": (Ends(0.6, 1.0), Ends(0.75, 1.0), Ends(0.8, 1.1), 0.02),
    "test": (Ends(0.4, 0.7), Ends(0.6, 0.85), Ends(1.1, 1.4), 0.04),
}


@dataclass(frozen=True)
class WorldOptions:
    """What is drawn. The options of `world:LABELS:COUNT@SIZE,option=value`."""

    labels: str  # one of LABELS
    count: int = 10_000  # training images
    size: int = 32  # of a side, in pixels
    test: int = 2_000  # test images
    clutter: int = 2  # fragments of other shapes in the background
    shift: float = 0.7  # how far from the center, 0 to 1, where the object touches the border
    test_shift: float = -1.0  # the same for the test images; negative: as in training
    scale: float = 0.6  # the mean diameter of the object, as a share of the side
    cycles: float = 6.0  # of the texture over the side of an image
    # whether test images have looks of their own ("other") or those of training ("same")
    looks: str = "other"


def polygon(corners: str) -> NDArray[np.bool_]:
    """Return a mask; corners are x and y in -1 ... 1, from the upper left."""
    from PIL import ImageDraw  # 10 ms that no other data needs

    places = (np.array(corners.split(), float) + 1) * FINE / 2
    canvas = Image.new("1", (FINE, FINE))
    ImageDraw.Draw(canvas).polygon(places.tolist(), fill=1)
    return np.asarray(canvas)


def regular(corners: int, inner: float = 1.0) -> NDArray[np.bool_]:
    """Return a regular polygon; as a star, with further corners at `inner` of the radius."""
    number = 2 * corners
    angles = 2 * np.pi * np.arange(number) / number - np.pi / 2
    middle = inner if inner < 1 else np.cos(np.pi / corners)  # on the side between two corners
    radii = np.where(np.arange(number) % 2, middle, 1.0)
    places = np.stack((radii * np.cos(angles), radii * np.sin(angles)), 1)
    return polygon(" ".join(map(str, places.reshape(-1))))


def disk(radius: float, x: float = 0.0, y: float = 0.0) -> NDArray[np.bool_]:
    places = (np.arange(FINE) + 0.5) * 2 / FINE - 1
    return np.asarray((places[None] - x) ** 2 + (places[:, None] - y) ** 2 <= radius**2)


@lru_cache
def shapes() -> dict[str, NDArray[np.bool_]]:
    """Return the masks of the objects, by name."""
    bar, post = polygon("-1 -.3 1 -.3 1 .3 -1 .3"), polygon("-.3 -.9 .3 -.9 .3 1 -.3 1")
    return {
        "disk": disk(0.9),
        "ring": disk(0.95) & ~disk(0.5),
        "crescent": disk(0.95) & ~disk(0.8, 0.45),
        "half-disk": disk(0.95) & ~polygon("-1 0 1 0 1 1 -1 1"),
        "triangle": regular(3),
        "square": polygon("-.75 -.75 .75 -.75 .75 .75 -.75 .75"),
        "diamond": polygon("0 -1 .65 0 0 1 -.65 0"),
        "house": polygon("0 -1 .8 -.1 .8 .9 -.8 .9 -.8 -.1"),
        "star": regular(5, 0.4),
        "spark": regular(4, 0.3),
        "cross": bar | post,
        "tee": polygon("-.9 -.9 .9 -.9 .9 -.3 -.9 -.3") | post,
        "corner": polygon("-.8 -.9 -.2 -.9 -.2 .3 .9 .3 .9 .9 -.8 .9"),
        "heart": disk(0.5, -0.45, -0.4) | disk(0.5, 0.45, -0.4) | polygon("-.93 -.25 .93 -.25 0 .95"),
        "arrow": polygon("0 -1 .9 0 .35 0 .35 1 -.35 1 -.35 0 -.9 0"),
        "bolt": polygon(".2 -1 -.7 .2 -.05 .2 -.25 1 .7 -.25 .05 -.25 .6 -1"),
    }


def glyph(number: int) -> NDArray[np.bool_]:
    """Return a letter of an invented alphabet: strokes between the points of a 3 x 3 grid."""
    from PIL import ImageDraw

    rng = numpy_generator(0, "world glyphs", number)
    canvas = Image.new("1", (FINE, FINE))
    draw, place, free = ImageDraw.Draw(canvas), int(rng.integers(9)), set(range(9))
    for _ in range(5):
        free.discard(place)
        column, row = divmod(place, 3)
        near = [each for each in sorted(free) if abs(each // 3 - column) <= 1 and abs(each % 3 - row) <= 1]
        if not near:
            break
        place = int(rng.choice(near))
        ends = [FINE * (0.1 + 0.4 * each) for each in (column, row, *divmod(place, 3))]
        draw.line(ends, fill=1, width=FINE // 7)
    return np.asarray(canvas)


@lru_cache(maxsize=8)
def templates(kind: str, size: int) -> Floats:
    """Return (number, size, size) masks in 0 ... 1."""
    masks = list(shapes().values()) if kind == "shapes" else [glyph(number) for number in range(GLYPHS)]
    images = [Image.fromarray(mask).convert("L") for mask in masks]
    reduced = [np.asarray(each.resize((size, size), Image.Resampling.BOX), np.float32) for each in images]
    return np.stack(reduced) / np.float32(255)


def class_names() -> dict[str, tuple[str, ...]]:
    """Return the classes of each kind of labels."""
    forms, textures = tuple(shapes()), tuple(TEXTURES)
    return {
        "shapes": forms,
        "textures": textures,
        "colors": HUES,
        "positions": tuple(f"{row}-{column}" for row in ROWS for column in COLUMNS),
        "objects": tuple(f"{texture}-{form}" for form in forms for texture in textures),
        "glyphs": tuple(f"glyph-{number:02}" for number in range(GLYPHS)),
    }


LABELS = ("shapes", "textures", "colors", "positions", "objects", "glyphs")


class WorldImages(ImageDataset):
    """The images of one part of a world."""

    listed = False

    def __init__(self, world: WorldOptions, part: str, seed: int) -> None:
        self.world, self.part, self.seed = world, part, seed
        self.source, names = f"world:{world.labels}", class_names()
        count = world.count if part == "train" else world.test
        kind = "glyphs" if world.labels == "glyphs" else "shapes"
        self.masks = templates(kind, world.size)
        self.factors = {}  # (N,) class numbers for each kind of labels, of the same images
        for name in (kind, "textures", "colors", "positions"):
            self.factors[name] = balanced_classes(count, len(names[name]), seed, f"world {part} {name}")
        if kind == "shapes":
            self.factors["objects"] = self.factors["shapes"] * len(TEXTURES) + self.factors["textures"]
        self.form = self.factors[kind]
        self.targets = ClassTargets(self.factors[world.labels], names[world.labels])
        shape = (count, world.size, world.size, 3)
        self.pixels = np.zeros(shape, np.uint8) if math.prod(shape) <= KEPT else None
        self.kept = np.zeros(count, np.bool_)

    def held(self, index: int) -> Image.Image:
        if self.pixels is None:
            return Image.fromarray(self.draw(np.array([index]))[0])
        if not self.kept[index]:
            first = index - index % BLOCK
            self.rows(np.arange(first, min(first + BLOCK, len(self))))
        return Image.fromarray(self.pixels[index])

    def rows(self, indices: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Return (len(indices), size, size, 3), the images of these numbers; each is drawn once, where all of
        them can be kept."""
        if self.pixels is None:
            return self.draw(indices)
        new = np.unique(indices[~self.kept[indices]])
        # Two threads may draw one image twice, but they draw the same.
        for at in range(0, len(new), BLOCK):
            some = new[at : at + BLOCK]
            self.pixels[some] = self.draw(some)
            self.kept[some] = True
        return np.asarray(self.pixels[indices])

    def draw(self, indices: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Return (len(indices), size, size, 3), the images of these numbers."""
        world, size, count, fragments = self.world, self.world.size, len(indices), self.world.clutter
        saturation, value, cycles, sigma = LOOKS[self.part if world.looks == "other" else "train"]
        generators = [numpy_generator(self.seed, f"world {self.part} looks", int(each)) for each in indices]
        drawn = np.stack([rng.random(64 + 8 * fragments, np.float32) for rng in generators])
        noise = np.stack([rng.standard_normal((size, size, 1), np.float32) for rng in generators])
        background, drawn = drawn[:, :48].reshape(count, 4, 4, 3), drawn[:, 48:]
        main, drawn = drawn[:, :16].T, drawn[:, 16:].reshape(count, fragments, 8)

        ramp, knots = np.linspace(0, 3, size, dtype=np.float32), np.arange(4, dtype=np.float32)
        weights = np.maximum(0, 1 - np.abs(ramp[:, None] - knots))  # bilinear, from 4 to size
        images = np.einsum("yi,bijc,xj->byxc", weights, 0.45 * background, weights, optimize=True)
        for each in range(fragments):
            own = drawn[:, each].T
            form = (own[0] * len(self.masks)).astype(np.int64) % len(self.masks)
            cover = self.placed(form, own[1:3].T, 0.1 + 0.15 * own[3], own[4] - 0.5)
            images += cover * (hsv(own[5], 0.3 + 0.4 * own[6], 0.3 + 0.5 * own[7])[:, None, None] - images)

        color = (self.factors["colors"][indices].astype(np.float32) + 0.25 + 0.5 * main[0]) / len(HUES)
        ink = hsv(color, saturation.at(main[1]), value.at(main[2]))
        moved = self.part == "test" and world.test_shift >= 0
        cell, shift = self.factors["positions"][indices], world.test_shift if moved else world.shift
        diameter = world.scale * (0.85 + 0.3 * main[3])
        offset = (np.stack((cell % 3, cell // 3), 1) + main[4:6].T) / 3 - 0.5
        center = (0.5 + shift * offset * np.maximum(0, 1 - diameter)[:, None]).astype(np.float32)
        cover = self.placed(self.form[indices], center, diameter, (main[6] - 0.5) / 6)
        wave = self.waves(indices, world.cycles * cycles.at(main[7]), main[8:10].T)
        images += cover * (ink[:, None, None] * (0.65 + 0.35 * wave) - images)
        images += sigma * noise
        return np.asarray((255 * np.clip(images, 0, 1) + 0.5).astype(np.uint8))

    def placed(self, forms: NDArray[np.int64], center: Floats, diameter: Floats, turn: Floats) -> Floats:
        """Return (N, size, size, 1) masks of templates at a place, in shares of the side; turn: of a half
        circle."""
        size = self.world.size
        places = ((np.arange(size) + 0.5) / size).astype(np.float32)
        x = (places[None, None, :] - center[:, 0, None, None]) / diameter[:, None, None]
        y = (places[None, :, None] - center[:, 1, None, None]) / diameter[:, None, None]
        sin, cos = np.sin(math.pi * turn)[:, None, None], np.cos(math.pi * turn)[:, None, None]
        u = ((cos * x + sin * y + 0.5) * size).astype(np.int32)
        v = ((cos * y - sin * x + 0.5) * size).astype(np.int32)
        inside = (np.maximum(u, v) < size) & (np.minimum(u, v) >= 0)
        flat = (forms * size * size)[:, None, None] + np.where(inside, v * size + u, 0)
        return np.asarray((self.masks.reshape(-1)[flat] * inside)[..., None], np.float32)

    def waves(self, indices: NDArray[np.int64], cycles: Floats, phase: Floats) -> Floats:
        """Return (N, size, size, 1) textures in -1 ... 1."""
        table = np.array(list(TEXTURES.values()), np.float32)[self.factors["textures"][indices]]
        places = ((np.arange(self.world.size) + 0.5) / self.world.size).astype(np.float32)
        angle, rate = math.pi * table[:, 0, None], 2 * math.pi * cycles[:, None]
        sin, cos = rate * np.sin(angle) * places, rate * np.cos(angle) * places
        start = 2 * math.pi * phase
        a = np.sin(cos[:, None, :] + sin[:, :, None] + start[:, 0, None, None])
        b = np.sin(cos[:, :, None] - sin[:, None, :] + start[:, 1, None, None])
        along, across, product = table[:, 1:].T[:, :, None, None]
        return np.asarray(
            np.clip(2 * (along * a + across * b + product * a * b), -1, 1)[..., None], np.float32
        )


def hsv(hue: Floats, saturation: Floats, value: Floats) -> Floats:
    """Return (N, 3) red, green and blue; all in 0 ... 1."""
    k = (np.array([5, 3, 1], np.float32) + 6 * hue[:, None]) % 6
    dip = np.clip(np.minimum(k, 4 - k), 0, 1)
    return np.asarray(value[:, None] * (1 - saturation[:, None] * dip), np.float32)


def balanced_classes(count: int, classes: int, seed: int, purpose: str) -> NDArray[np.int64]:
    """Return class numbers, each once in every `classes` images; a longer world begins with a shorter one."""
    return (
        numpy_generator(seed, purpose).random((-(-count // classes), classes)).argsort(1).reshape(-1)[:count]
    )


def open_world(rest: str, config: DataConfig) -> SourceParts:
    """Return the parts, from what is written after `world:`. Raises InputError if it is wrong."""
    world = parse_world(rest)
    return {part: WorldImages(world, part, config.split_seed) for part in ("train", "test")}


RANGES: dict[str, tuple[float, float]] = {
    "count": (2, 10_000_000), "size": (8, 512), "test": (1, 1_000_000), "clutter": (0, 16), "shift": (0, 1),
    "test_shift": (-1, 1), "scale": (0.1, 1), "cycles": (0.5, 128),
}  # fmt: skip


def parse_world(rest: str) -> WorldOptions:
    """Return the world of `LABELS[:COUNT][@SIZE][,option=value...]`."""
    head, *options = rest.split(",")
    head, _, size = head.partition("@")
    labels, _, count = head.partition(":")
    if labels not in LABELS:
        raise InputError(f"world:{rest} has unknown labels {labels!r}: {nearest(labels, LABELS)}")
    known: dict[str, Any] = {each.name: each.default for each in fields(WorldOptions)[1:]}
    given = [f"{name}={text}" for name, text in (("count", count), ("size", size)) if text]
    values: dict[str, Any] = {}
    for option in [*given, *options]:
        name, equals, text = option.partition("=")
        if name not in known or not equals:
            raise InputError(f"world:{rest} has an unknown option {name!r}: {nearest(name, list(known))}")
        try:
            values[name] = type(known[name])(text)
        except ValueError:
            raise InputError(f"world:{rest}: {name} is {text!r}, not a number") from None
    world = replace(WorldOptions(labels), **values)
    for name, (low, high) in RANGES.items():
        if not low <= getattr(world, name) <= high:
            raise InputError(f"world:{rest}: {name} is {getattr(world, name):g}: pass {low} ... {high}")
    if world.looks not in ("other", "same"):
        raise InputError(f"world:{rest}: looks is {world.looks!r}: use other or same")
    return world
