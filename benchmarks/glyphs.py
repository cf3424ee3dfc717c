"""Real images that anyone can have again: characters of the fonts of Debian, held out by family of fonts.

    mkdir fonts; cd fonts; apt-get download fonts-alee fonts-baekmuk fonts-lexi-gulim fonts-lexi-saebom \\
        fonts-nanum fonts-nanum-extra fonts-nanum-eco fonts-naver-d2coding fonts-noto-cjk \\
        fonts-unfonts-core fonts-unfonts-extra fonts-woowa-bm
    for package in *.deb; do dpkg-deb -x "$package" .; done

A family is all weights and editions of a design (NanumGothic, its Bold, Eco and Coding): who learned one
of them has nearly seen the others, so that they are on one side of every split.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from vitreous.rng import numpy_generator

# Designs of which several editions have files, and what the names of files add to that of a design.
DESIGNS: tuple[str, ...] = (
    "nanumsquare",
    "nanumbarungothic",
    "nanumbarunpen",
    "nanumgothic",
    "nanummyeongjo",
    "bmhanna",
)
DESIGNS += ("bmeuljiro", "lexisaebom", "unpilgi", "d2coding", "notosanscjk", "notoserifcjk")
EDITION = re.compile(r"[-_ ]?(extra|ultra|semi|demi|bold|light|regular|medium|black|thin|ttf)$")
SYLLABLES = range(0xAC00, 0xD7A4)  # the 11,172 of Hangul
MISSING = "\U0010fffe"  # a character that no font has: what is drawn for it, fonts draw for all they lack


class Face(NamedTuple):
    """One weight of a design."""

    path: Path
    number: int  # in a collection
    family: str


class Glyphs(NamedTuple):
    """Drawn characters: pixels (N, side, side) of bytes, black on white, the class and the family of each."""

    pixels: np.ndarray
    classes: np.ndarray
    families: np.ndarray  # numbers, of `names`
    names: tuple[str, ...]

    @property
    def digest(self) -> str:
        content = self.pixels.tobytes() + self.classes.tobytes() + self.families.tobytes()
        return hashlib.blake2b(content, digest_size=8).hexdigest()


def family_of(path: Path) -> str:
    """The name of a file without its weight and its edition."""
    name, before = path.stem.lower(), ""
    for design in DESIGNS:
        if name.startswith(design):
            return design
    while name != before:
        before, name = name, EDITION.sub("", name)
    return name


def faces(folder: Path, characters: Sequence[str]) -> list[Face]:
    """The faces of all fonts in a folder that have every one of some characters, in order of their names."""
    found = []
    for path in sorted(folder.rglob("*")):
        if path.suffix.lower() not in (".ttf", ".otf", ".ttc"):
            continue
        index = 1 if "CJK" in path.stem else 0  # of Noto's collection: the Korean one
        try:
            font = ImageFont.truetype(str(path), 24, index=index)
        except OSError:
            continue
        missing = font.getmask(MISSING)
        lacking = [each for each in characters if bytes(font.getmask(each)) in (bytes(missing), b"")]
        if not lacking:
            found.append(Face(path, index, family_of(path)))
    return found


def draw(face: Face, character: str, side: int) -> np.ndarray:
    """A character in the middle of a square, as large as four fifths of it."""
    font = ImageFont.truetype(str(face.path), round(0.8 * side), index=face.number)
    image = Image.new("L", (side, side), 255)
    ImageDraw.Draw(image).text((side / 2, side / 2), character, fill=0, font=font, anchor="mm")
    return np.asarray(image)


def glyphs(folder: Path, characters: Sequence[str], side: int) -> Glyphs:
    """Every character in every face that has them all; equal drawings of one class are kept once, so that an
    edition that only renames another adds nothing."""
    known = faces(folder, characters)
    names = tuple(sorted({face.family for face in known}))
    pixels, classes, families, seen = [], [], [], set()
    for face in known:
        for number, character in enumerate(characters):
            drawn = draw(face, character, side)
            key = (number, drawn.tobytes())
            if key not in seen:
                seen.add(key)
                pixels.append(drawn)
                classes.append(number)
                families.append(names.index(face.family))
    return Glyphs(np.stack(pixels), np.array(classes), np.array(families), names)


def split_by_family(found: Glyphs, seed: int, share: float) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of the images to learn from, and of those of held-out families: so many that they have about
    `share` of the images."""
    order = numpy_generator(seed, "families").permutation(len(found.names))
    counts = np.bincount(found.families, minlength=len(found.names))[order]
    last = int(np.searchsorted(counts.cumsum(), share * counts.sum()))
    held_out = np.isin(found.families, order[: last + 1])
    return np.flatnonzero(~held_out), np.flatnonzero(held_out)


def drawn_characters(count: int, seed: int) -> list[str]:
    """So many syllables, the same for everyone."""
    chosen = numpy_generator(seed, "syllables").permutation(len(SYLLABLES))[:count]
    return [chr(SYLLABLES[each]) for each in sorted(chosen)]
