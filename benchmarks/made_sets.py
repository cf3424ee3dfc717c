"""Small made image sets for learning from scratch: 24 classes each; validation has looks of its own.

    python benchmarks/made_sets.py FOLDER [--sets letters shapes ...] [--images 150] [--seed 0]

writes FOLDER/<set>/train/<class>/*.jpg and FOLDER/<set>/val/<class>/*.jpg. Every image has its own
size, background, colors, clutter, place and angle of the subject, blur and noise. What a subject looks like
differs from set to set, and in validation it looks as training never shows it:

| set | a class is | training shows | validation shows |
|---|---|---|---|
| letters | a capital letter | sans and roman fonts | serif, typewriter and oblique fonts |
| signs | a Greek letter | four fonts | three others |
| shapes | an outline (star, arrow, crescent ...) | filled | drawn as a contour, or hatched |
| strokes | a made-up character of four strokes | a round pen | a dotted pen, a double pen |
| textures | a pattern (bricks, waves ...) | light on dark, mild light | dark on light, strong light |

The fonts are those that come with matplotlib, so that the sets are the same on every machine.
"""

from __future__ import annotations

import argparse
import colorsys
import math
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import matplotlib
import numpy as np
from made_textures import TEXTURES, texture
from PIL import Image, ImageChops, ImageDraw, ImageFilter, ImageFont

FONTS = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
CANVAS = 192  # pixels of the square on which a subject is drawn before it is placed
Rng = np.random.Generator
Subject = Callable[[str, Rng, bool], Image.Image]  # (class, rng, validation) -> mask of CANVAS x CANVAS


# What a subject is: a mask, white where it is.


def glyph(fonts: tuple[Sequence[str], Sequence[str]]) -> Subject:
    """A character in one of the training's fonts, or of validation's."""

    def draw(character: str, rng: Rng, validation: bool) -> Image.Image:
        name = fonts[validation][int(rng.integers(len(fonts[validation])))]
        mask = Image.new("L", (CANVAS, CANVAS))
        ImageDraw.Draw(mask).text(
            (CANVAS // 2, CANVAS // 2), character, fill=255, font=font(name), anchor="mm"
        )
        return mask

    return draw


@cache
def font(name: str) -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(str(FONTS / f"{name}.ttf"), 150)


LETTER_FONTS = (
    ("DejaVuSans", "DejaVuSans-Bold", "STIXGeneral", "STIXGeneralBol", "cmss10"),
    ("DejaVuSerif", "DejaVuSerif-Italic", "DejaVuSansMono-Oblique", "cmtt10", "STIXGeneralBolIta"),
)
SIGN_FONTS = (
    ("DejaVuSans", "DejaVuSansMono", "STIXGeneral", "STIXGeneralBol"),
    ("DejaVuSerif", "DejaVuSerif-Bold", "DejaVuSans-BoldOblique"),
)


def outline(name: str, rng: Rng) -> np.ndarray:
    """The corners of a shape in -1 ... 1, a little out of shape each time."""
    points = SHAPES[name]()
    stretch = np.diag(rng.uniform(0.85, 1.0, 2))
    return points @ stretch + rng.normal(0, 0.012, points.shape)


def shape(name: str, rng: Rng, validation: bool) -> Image.Image:
    """A filled outline in training; a contour or hatching in validation."""
    corners = [tuple(corner) for corner in CANVAS / 2 + outline(name, rng) * CANVAS * 0.42]
    mask = Image.new("L", (CANVAS, CANVAS))
    draw = ImageDraw.Draw(mask)
    if not validation:
        draw.polygon(corners, fill=255)
    elif rng.random() < 0.5:
        draw.line([*corners, corners[0], corners[1]], fill=255, width=int(rng.integers(8, 18)), joint="curve")
    else:
        draw.polygon(corners, fill=255)
        step = int(rng.integers(10, 18))
        hatching = Image.new("L", mask.size)
        for offset in range(-CANVAS, CANVAS, step):
            ends = [(offset, 0), (offset + CANVAS, CANVAS)]
            ImageDraw.Draw(hatching).line(ends, fill=255, width=step // 2)
        mask = ImageChops.multiply(mask, hatching)
        ImageDraw.Draw(mask).line([*corners, corners[0]], fill=255, width=4, joint="curve")
    return mask


def polar(radius: Callable[[np.ndarray], np.ndarray], count: int = 120) -> Callable[[], np.ndarray]:
    """A closed curve from its radius as a function of the angle, the first point upwards."""

    def points() -> np.ndarray:
        angle = np.arange(count) * 2 * math.pi / count
        r = radius(angle)
        return np.stack([r * np.sin(angle), -r * np.cos(angle)], axis=1)

    return points


def polygon(sides: int) -> Callable[[], np.ndarray]:
    return polar(lambda angle: np.ones_like(angle), sides)


def star(points: int, inner: float) -> Callable[[], np.ndarray]:
    return polar(lambda angle: np.where(np.arange(len(angle)) % 2, inner, 1.0), 2 * points)


def corners(*xy: float) -> Callable[[], np.ndarray]:
    return lambda: np.array(xy, dtype=float).reshape(-1, 2)


def heart() -> np.ndarray:
    t = np.linspace(0, 2 * math.pi, 100, endpoint=False)
    y = 13 * np.cos(t) - 5 * np.cos(2 * t) - 2 * np.cos(3 * t) - np.cos(4 * t)
    return np.stack([np.sin(t) ** 3, -y / 15], axis=1)


def crescent() -> np.ndarray:
    t = np.linspace(-2.2, 2.2, 60)
    outer = np.stack([-np.cos(t), np.sin(t)], axis=1)
    inner = np.stack([0.55 - 0.75 * np.cos(t[::-1]), 0.8 * np.sin(t[::-1])], axis=1)
    return np.concatenate([outer, inner])


SHAPES: dict[str, Callable[[], np.ndarray]] = {
    "circle": polygon(60),
    "triangle": polygon(3),
    "square": corners(-0.8, -0.8, 0.8, -0.8, 0.8, 0.8, -0.8, 0.8),
    "pentagon": polygon(5),
    "ellipse": lambda: polygon(60)() * (1, 0.5),
    "oblong": corners(-1, -0.35, 1, -0.35, 1, 0.35, -1, 0.35),
    "rhombus": corners(0, -1, 0.55, 0, 0, 1, -0.55, 0),
    "parallelogram": corners(-0.5, -0.5, 1, -0.5, 0.5, 0.5, -1, 0.5),
    "trapezium": corners(-0.4, -0.6, 0.4, -0.6, 1, 0.6, -1, 0.6),
    "star-4": star(4, 0.35),
    "star-5": star(5, 0.42),
    "star-8": star(8, 0.6),
    "burst": star(14, 0.75),
    "clover": polar(lambda angle: 0.6 + 0.4 * np.cos(3 * angle)),
    "flower": polar(lambda angle: 0.75 + 0.25 * np.cos(6 * angle)),
    "plus": corners(
        *(-0.3, -1, 0.3, -1, 0.3, -0.3, 1, -0.3, 1, 0.3, 0.3, 0.3),
        *(0.3, 1, -0.3, 1, -0.3, 0.3, -1, 0.3, -1, -0.3, -0.3, -0.3),
    ),
    "arrow": corners(0, -1, 0.8, -0.1, 0.3, -0.1, 0.3, 1, -0.3, 1, -0.3, -0.1, -0.8, -0.1),
    "double-arrow": corners(
        0, -1, 0.6, -0.4, 0.2, -0.4, 0.2, 0.4, 0.6, 0.4, 0, 1, -0.6, 0.4, -0.2, 0.4, -0.2, -0.4, -0.6, -0.4
    ),
    "heart": heart,
    "crescent": crescent,
    "bolt": corners(0.3, -1, -0.6, 0.15, -0.05, 0.15, -0.3, 1, 0.6, -0.25, 0.05, -0.25),
    "chevron": corners(0, -0.9, 1, 0.1, 1, 0.8, 0, -0.2, -1, 0.8, -1, 0.1),
    "house": corners(0, -1, 0.9, -0.2, 0.65, -0.2, 0.65, 0.8, -0.65, 0.8, -0.65, -0.2, -0.9, -0.2),
    "ell": corners(-0.7, -1, -0.1, -1, -0.1, 0.4, 0.8, 0.4, 0.8, 1, -0.7, 1),
}


def character(name: str) -> list[np.ndarray]:
    """The four strokes of a made-up character: curves through three points of a grid of 4 x 4."""
    rng = np.random.default_rng([7, int(name.removeprefix("character-"))])
    t = np.linspace(0, 1, 24)[:, None]
    strokes = []
    for _ in range(4):
        a, b, c = (rng.choice(16, 3, replace=False)[:, None] // (4, 1) % 4) / 1.5 - 1
        strokes.append((1 - t) ** 2 * a + 2 * t * (1 - t) * b + t**2 * c)
    return strokes


def stroked(name: str, rng: Rng, validation: bool) -> Image.Image:
    """The character with a round pen in training; dotted or with a double pen in validation."""
    mask = Image.new("L", (CANVAS, CANVAS))
    draw = ImageDraw.Draw(mask)
    width = int(rng.integers(10, 20))
    dotted = validation and rng.random() < 0.5
    for stroke in character(name):
        points = CANVAS / 2 + (stroke + rng.normal(0, 0.06, (1, 2))) * CANVAS * 0.38
        line = [tuple(point) for point in points]
        if dotted:
            for x, y in line[::3]:
                draw.ellipse([x - width / 2, y - width / 2, x + width / 2, y + width / 2], fill=255)
            continue
        draw.line(line, fill=255, width=width, joint="curve")
        if validation:
            draw.line(line, fill=0, width=width // 2, joint="curve")
    return mask


# How a subject becomes an image.


def color(rng: Rng, lightness: float) -> tuple[int, int, int]:
    rgb = colorsys.hls_to_rgb(rng.random(), lightness, rng.uniform(0.1, 0.9))
    return tuple(round(255 * value) for value in rgb)  # type: ignore[return-value]


def background(size: int, rng: Rng, lightness: float) -> Image.Image:
    """A gradient between two colors of about that lightness."""
    first, second = (color(rng, np.clip(lightness + rng.normal(0, 0.06), 0.05, 0.95)) for _ in range(2))
    ramp = Image.linear_gradient("L").rotate(float(rng.uniform(0, 360))).resize((size, size))
    return Image.composite(Image.new("RGB", ramp.size, first), Image.new("RGB", ramp.size, second), ramp)


def clutter(image: Image.Image, rng: Rng) -> None:
    """Lines, discs and bars of any color, all over."""
    draw = ImageDraw.Draw(image)
    size = image.width
    for _ in range(rng.integers(4, 12)):
        x, y = map(float, rng.uniform(0, size, 2))
        reach = float(rng.uniform(0.03, 0.14)) * size
        fill = color(rng, float(rng.uniform(0.1, 0.9)))
        kind = rng.integers(3)
        if kind == 0:
            end = (x + rng.normal(0, 0.4) * size, y + rng.normal(0, 0.4) * size)
            draw.line([(x, y), end], fill=fill, width=int(rng.integers(1, 4)))
        elif kind == 1:
            draw.ellipse([x - reach, y - reach, x + reach, y + reach], outline=fill, width=2)
        else:
            draw.rectangle([x, y, x + reach, y + reach * rng.uniform(0.2, 1)], fill=fill)


def placed(mask: Image.Image, size: int, rng: Rng) -> Image.Image:
    """The subject's mask turned, scaled and shifted into a square of `size`."""
    angle, share = float(rng.uniform(-15, 15)), float(rng.uniform(0.45, 0.85))
    side = round(size * share)
    small = mask.rotate(angle, Image.Resampling.BICUBIC).resize((side, side), Image.Resampling.LANCZOS)
    room = size - side
    whole = Image.new("L", (size, size))
    whole.paste(small, (int(rng.integers(0, room + 1)), int(rng.integers(0, room + 1))))
    return whole


def finished(image: Image.Image, rng: Rng) -> Image.Image:
    """A little blur and the noise of a sensor."""
    image = image.filter(ImageFilter.GaussianBlur(float(rng.uniform(0, 0.9))))
    noise = rng.normal(0, rng.uniform(2, 12), (image.height, image.width, 3))
    return Image.fromarray(np.clip(np.asarray(image) + noise, 0, 255).astype(np.uint8))


def scene(subject: Subject, name: str, rng: Rng, validation: bool) -> Image.Image:
    """One image of the class: background, clutter, the subject in a contrasting color."""
    size = int(rng.integers(72, 145))
    lightness = float(rng.uniform(0.12, 0.88))
    contrast = float(rng.uniform(0.3, 0.5)) * (-1 if lightness > 0.5 else 1)
    image = background(size, rng, lightness)
    clutter(image, rng)
    paint = Image.new("RGB", image.size, color(rng, lightness + contrast))
    image.paste(paint, mask=placed(subject(name, rng, validation), size, rng))
    return finished(image, rng)


SUBJECTS: dict[str, tuple[Sequence[str], Subject]] = {
    "letters": (tuple("ABCDEFGHJKLMNPQRSTUVWXYZ"), glyph(LETTER_FONTS)),
    "signs": (tuple("αβγδεζηθλμξπρσφψωΓΔΛΞΣΨΩ"), glyph(SIGN_FONTS)),
    "shapes": (tuple(SHAPES), shape),
    "strokes": (tuple(f"character-{k:02d}" for k in range(24)), stroked),
}
SETS = (*SUBJECTS, "textures")


def image(name: str, label: str, rng: Rng, validation: bool) -> Image.Image:
    """One image of class `label` of the set `name`."""
    if name == "textures":
        return finished(texture(label, rng, validation), rng)
    return scene(SUBJECTS[name][1], label, rng, validation)


def classes(name: str) -> tuple[str, ...]:
    return tuple(TEXTURES) if name == "textures" else tuple(SUBJECTS[name][0])


def write_set(name: str, folder: Path, *, images: int = 150, validation: int = 25, seed: int = 0) -> Path:
    """The set as class folders of JPEG files under `folder`/train and `folder`/val."""
    for part, count in (("train", images), ("val", validation)):
        for number, label in enumerate(classes(name)):
            place = folder / part / label
            place.mkdir(parents=True, exist_ok=True)
            for k in range(count):
                rng = np.random.default_rng([seed, SETS.index(name), part == "val", number, k])
                image(name, label, rng, part == "val").save(place / f"{k:04d}.jpg", quality=92)
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=SETS)
    parser.add_argument("--images", type=int, default=150)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    for name in options.sets:
        print(write_set(name, options.folder / name, images=options.images, seed=options.seed))


if __name__ == "__main__":
    main()
