"""Masks: from a PNG to the class number of each pixel, and the names of the classes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from vitreous.data.dataset import BadImage
from vitreous.data.decoding import load_pixels, open_image
from vitreous.data.segmentation.masked import IGNORED, Mask
from vitreous.errors import InputError
from vitreous.models.segmenter import MOST_CLASSES

Color = tuple[int, int, int]
INDEX_MODES = ("1", "L", "P", "I", "I;16")  # a number for each pixel is its class


class Legend(NamedTuple):
    """The names of the classes, by number; and the colors that stand for them in masks of colors."""

    names: tuple[str, ...]
    colors: tuple[Color, ...] | None = None


def read_legend(path: Path) -> Legend:
    """classes.txt: a name in each line, the first one class 0; behind it, if wanted, its color as #RRGGBB.

    Raises:
        InputError: it cannot be read, is empty, names a class twice, or colors some lines only.
    """
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8-sig").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {path}: {error}; save it as UTF-8 text") from None
    lines = [line for line in lines if line]
    matches = [re.fullmatch(r"(.*\S)\s+#([0-9a-fA-F]{6})", line) for line in lines]
    names = tuple(match[1] if match else line for line, match in zip(lines, matches, strict=True))
    if not 1 <= len(names) <= MOST_CLASSES:
        raise InputError(f"{path} names {len(names)} classes: write 1 to {MOST_CLASSES}, each in a line")
    if twice := [name for number, name in enumerate(names) if name in names[:number]]:
        raise InputError(f"{path} names {twice[0]!r} twice: give each class a name of its own")
    colors = [tuple(bytes.fromhex(match[2])) for match in matches if match]
    if not colors:
        return Legend(names)
    if len(set(colors)) != len(names):
        raise InputError(f"{path} has {len(names)} classes but {len(set(colors))} colors: give each its own")
    return Legend(names, tuple((r, g, b) for r, g, b in colors))


def open_mask(path: Path) -> Image.Image:
    """A mask whose header has been read. Raises BadImage."""
    try:
        return open_image(path.read_bytes(), str(path))
    except OSError as error:
        raise BadImage(str(path), error.strerror or str(error)) from error


def check_mode(image: Image.Image, name: str, legend: Legend | None) -> None:
    """Raises InputError for a mask of colors whose classes nobody knows."""
    if image.mode in INDEX_MODES or (legend and legend.colors and image.mode in ("RGB", "RGBA")):
        return
    raise InputError(
        f"the mask {name} has colors (mode {image.mode}), not class numbers: save masks as gray or "
        "palette PNG whose values are the classes, or write each class's color into classes.txt, as in "
        "'road #804080'"
    )


def class_numbers(image: Image.Image, name: str, legend: Legend | None) -> Mask:
    """The class of each pixel, 255 where there is none. Raises BadImage, InputError.

    Without a legend every value is taken.
    """
    check_mode(image, name, legend)
    load_pixels(image, name)
    if image.mode not in INDEX_MODES:
        assert legend is not None  # check_mode has seen to it
        return from_colors(np.asarray(image.convert("RGB")), name, legend)
    values = np.array(image)
    known = len(legend.names) if legend else MOST_CLASSES
    if (wrong := values[(values >= known) & (values != IGNORED)]).size:
        raise InputError(
            f"the mask {name} has the value {wrong.min()}, but there are {known} classes (0 to {known - 1}; "
            f"{IGNORED} is left out): mend the mask, or name more in classes.txt"
        )
    return values.astype(np.uint8)


def from_colors(pixels: UInt8[np.ndarray, "H W 3"], name: str, legend: Legend) -> Mask:
    """The classes whose colors the pixels have; white is left out unless it is a class's."""
    code = pixels.astype(np.int64) @ np.array([1 << 16, 1 << 8, 1])
    mask = np.full(code.shape, IGNORED, dtype=np.uint8)
    known = code == 0xFFFFFF
    for number, (red, green, blue) in enumerate(legend.colors or ()):
        here = code == (red << 16 | green << 8 | blue)
        mask[here], known = number, known | here
    if not known.all():
        raise InputError(
            f"the mask {name} has the color #{code[~known][0]:06x}, which classes.txt gives to no class: "
            "add it there, or save the mask without smoothing"
        )
    return mask
