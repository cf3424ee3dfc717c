"""Images with masks: the base of every source of segmentation; masks as files, in batches, and as images."""

from __future__ import annotations

import colorsys
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int64, Integer, UInt8
from PIL import Image
from torch import Tensor

from vitreous.addons.segmentation.model import MOST_CLASSES
from vitreous.data.config import AugmentationConfig
from vitreous.data.dataset import DataSummary, ImageDataset, Indices, Subset
from vitreous.data.image_augmentation import change_colors
from vitreous.data.loading import BatchRows, Sample
from vitreous.data.transforms import random_crop
from vitreous.errors import InputError
from vitreous.models.preprocessing import Preprocessing, to_tensor
from vitreous.models.stored import ImageLike, Stored, bytes_of_file, load_pixels, open_image
from vitreous.outside import read_text

Mask = UInt8[np.ndarray, "H W"]
IGNORED = 255  # pixels of a mask that are left out of training and evaluation


class MaskedDataset(ImageDataset):
    """Images, each with a mask of its size: the class number of each pixel, or 255."""

    def pair(self, index: int, how: Preprocessing | int = 3) -> tuple[Stored, Mask]:
        """Return the image as `opened` does, and the class numbers. Raises BadImage, and InputError for a
        mask that is none."""
        raise NotImplementedError

    def held(self, index: int) -> ImageLike:
        return self.pair(index)[0]

    def label(self, index: int) -> str:
        return ""

    def subset(self, indices: Indices) -> MaskedDataset:
        return MaskedSubset(self, indices)


class MaskedSubset(Subset, MaskedDataset):
    """Some of a source's images."""

    images: MaskedDataset

    def pair(self, index: int, how: Preprocessing | int = 3) -> tuple[Stored, Mask]:
        return self.images.pair(int(self.indices[index]), how)


class MaskSplits(NamedTuple):
    """The parts of a source. A source with one held-out part has it as `test`. They are not `Splits`, whose
    images the doctor takes to have classes."""

    train: MaskedDataset
    validation: MaskedDataset | None
    test: MaskedDataset | None
    name: str
    summary: DataSummary


Color = tuple[int, int, int]
INDEX_MODES = ("1", "L", "P", "I", "I;16")  # a number for each pixel is its class


class Legend(NamedTuple):
    """The names of the classes, by number; and the colors that stand for them in masks of colors."""

    names: tuple[str, ...]
    colors: tuple[Color, ...] | None = None


def read_legend(path: Path) -> Legend:
    """Return what classes.txt says: a name in each line, the first one class 0; after it, if wanted, its
    color as #RRGGBB. Raises InputError: it cannot be read, is empty, names a class twice, or colors some
    lines only."""
    try:
        lines = [line.strip() for line in read_text(path, "utf-8-sig").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"cannot read {path}: {getattr(error, 'strerror', error)}; save it as UTF-8 text"
        ) from None
    lines = [line for line in lines if line]
    matches = [re.fullmatch(r"(.*\S)\s+#([0-9a-fA-F]{6})", line) for line in lines]
    names = tuple(match[1] if match else line for line, match in zip(lines, matches, strict=True))
    if not 1 <= len(names) <= MOST_CLASSES:
        raise InputError(f"{path} names {len(names)} classes: write 1 to {MOST_CLASSES}, one per line")
    if twice := [name for number, name in enumerate(names) if name in names[:number]]:
        raise InputError(f"{path} names {twice[0]!r} twice: give each class its own name")
    colors = [tuple(bytes.fromhex(match[2])) for match in matches if match]
    if not colors:
        return Legend(names)
    if len(set(colors)) != len(names):
        raise InputError(f"{path} has {len(names)} classes but {len(set(colors))} colors: give each its own")
    return Legend(names, tuple((r, g, b) for r, g, b in colors))


def check_mode(image: Image.Image, name: str, legend: Legend | None) -> None:
    """Raise InputError for a mask of colors whose classes are unknown, and for one whose values a lossy
    compression has changed."""
    if image.format in ("JPEG", "MPO"):
        raise InputError(
            f"the mask {name} is a JPEG, whose lossy compression adds values between those of the classes: "
            "save masks as PNG; for a black-and-white mask that only exists as JPEG, save "
            "image.convert('L').point(lambda value: value > 127)"
        )
    if image.mode in INDEX_MODES or (legend and legend.colors and image.mode in ("RGB", "RGBA")):
        return
    raise InputError(
        f"the mask {name} has colors (mode {image.mode}), not class numbers: save masks as gray or "
        "palette PNG whose values are the classes, or write each class's color into classes.txt, as in "
        "'road #804080'"
    )


def read_mask(path: Path, legend: Legend | None) -> Mask:
    """Return the class of each pixel of a file, 255 where there is none; without a legend any. Raises
    BadImage, InputError."""
    name = str(path)
    image = open_image(bytes_of_file(path), name)
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
            f"{IGNORED} is ignored): fix the mask, or add classes to classes.txt"
        )
    return values.astype(np.uint8)


def from_colors(pixels: UInt8[np.ndarray, "H W 3"], name: str, legend: Legend) -> Mask:
    """Return the classes whose colors the pixels have; white is left out unless it is a class's."""
    code = pixels.astype(np.int64) @ np.array([1 << 16, 1 << 8, 1])
    mask = np.full(code.shape, IGNORED, dtype=np.uint8)
    known = code == 0xFFFFFF
    for number, (red, green, blue) in enumerate(legend.colors or ()):
        here = code == (red << 16 | green << 8 | blue)
        mask[here], known = number, known | here
    if not known.all():
        raise InputError(
            f"the mask {name} has the color #{code[~known][0]:06x}, which no class of classes.txt has: "
            "add it there, or save the mask without smoothing"
        )
    return mask


class MaskBatch(NamedTuple):
    """images: normalized, float32 (B, C, H, W). masks: class numbers, 255 where there is none. (Both are
    bytes before the transform.)"""

    images: Float[Tensor, "B C H W"] | UInt8[Tensor, "B C H W"]
    masks: Integer[Tensor, "B H W"]


class MaskEvaluationBatch(NamedTuple):
    """images: as in training. masks: of the masks' own sizes. indices: the images' numbers."""

    images: Float[Tensor, "B C H W"] | UInt8[Tensor, "B C H W"]
    masks: tuple[Mask, ...]
    indices: Int64[Tensor, " B"]


@dataclass(frozen=True)
class MaskReader:
    """Images at the model's size, with their masks.

    For training an image and its mask are cropped and mirrored alike, the mask's values never mixed; colors
    and noise change the image alone. For evaluation, without `augmentation`, masks have their own sizes.
    """

    images: MaskedDataset
    preprocessing: Preprocessing
    augmentation: AugmentationConfig | None = None

    in_memory: ClassVar[bool] = False

    @property
    def needs_rng(self) -> bool:
        """Whether images are changed at random."""
        return self.augmentation is not None and self.augmentation.per_image

    def read(self, index: int, rng: np.random.Generator | None) -> Sample:
        """Return an image at the model's size and its mask. Raises BadImage, and InputError: their sizes
        differ."""
        encoded, mask = self.images.pair(index, self.preprocessing)
        image = encoded.upright()
        if (image.height, image.width) != mask.shape:
            raise InputError(
                f"{self.images.name(index)} is {image.height}x{image.width}, its mask {mask.shape[0]}x"
                f"{mask.shape[1]}: make them the same size"
            )
        if self.augmentation is None:
            return Sample.of((to_tensor(self.preprocessing.image(image)), mask), encoded)
        crop, (tall, wide) = self.augmentation.random_resized_crop, self.preprocessing.size
        top, left, height, width = random_crop(mask.shape, crop, rng) if crop and rng else (0, 0, *mask.shape)
        box = (left, top, left + width, top + height)
        kernel = Image.Resampling[self.preprocessing.interpolation.upper()]
        pixels = to_tensor(image.resize((wide, tall), kernel, box))
        values = Image.fromarray(mask).resize((wide, tall), Image.Resampling.NEAREST, box)
        if self.augmentation.changes_colors and rng:
            pixels = change_colors(pixels, self.augmentation, rng)
        return Sample.of((pixels, np.array(values, dtype=np.uint8)), encoded)

    def collate(
        self, samples: Sequence[Sample], indices: Indices, rows: BatchRows
    ) -> MaskBatch | MaskEvaluationBatch:
        """Return samples as a batch."""
        pixels, masks = zip(*(sample.value for sample in samples), strict=True)
        if self.augmentation is None:
            return MaskEvaluationBatch(torch.stack(pixels), masks, torch.from_numpy(indices))
        return MaskBatch(torch.stack(pixels), torch.from_numpy(np.stack(masks)))


# Wide apart in hue and lightness, so that neighboring class numbers never look alike (after Kelly's
# twenty-two colors of maximum contrast, 1965).
CONTRAST = (
    (0x2B, 0x30, 0x33), (0xF3, 0xC3, 0x00), (0x87, 0x56, 0x92), (0xF3, 0x84, 0x00), (0xA1, 0xCA, 0xF1),
    (0xBE, 0x00, 0x32), (0xC2, 0xB2, 0x80), (0x00, 0x88, 0x56), (0xE6, 0x8F, 0xAC), (0x00, 0x67, 0xA5),
    (0x8D, 0xB6, 0x00), (0xF9, 0x93, 0x79), (0x60, 0x4E, 0x97), (0xF6, 0xA6, 0x00), (0xB3, 0x44, 0x6C),
    (0xDC, 0xD3, 0x00), (0x88, 0x2D, 0x17), (0x65, 0x45, 0x22), (0xE2, 0x58, 0x22), (0x84, 0x84, 0x82),
)  # fmt: skip
COVER = 0.6  # share of a class's color over an image
GOLDEN = 0.618033988749895  # of the circle of hues: turns by it never come close to one another


def palette(classes: int) -> UInt8[np.ndarray, "classes 3"]:
    """Return an RGB color for each class; class 0, the background where there is one, is nearly black."""
    colors = list(CONTRAST[:classes])
    for number in range(len(colors), classes):
        light, strong = ((0.85, 0.75), (0.6, 0.9), (0.95, 0.45))[number % 3]
        red, green, blue = colorsys.hsv_to_rgb(number * GOLDEN % 1, strong, light)
        colors.append((round(255 * red), round(255 * green), round(255 * blue)))
    return np.array(colors, dtype=np.uint8).reshape(classes, 3)


def mask_image(mask: UInt8[np.ndarray, "H W"], classes: int) -> Image.Image:
    """Return a mask as an image with a palette: the pixels' values are the class numbers, 255 is white."""
    image = Image.fromarray(mask)
    colors = np.full((256, 3), 255, dtype=np.uint8)
    colors[:classes] = palette(classes)
    image.putpalette(colors.tobytes())
    return image


def overlaid(
    image: UInt8[np.ndarray, "H W 3"], mask: UInt8[np.ndarray, "H W"], classes: int
) -> UInt8[np.ndarray, "H W 3"]:
    """Return the image in gray under the classes' colors; class 0 is left clear."""
    gray = image.mean(axis=2, keepdims=True)
    weight = np.where(mask == 0, 0.0, COVER)[..., None]
    colors = np.asarray(mask_image(mask, classes).convert("RGB"))
    return (gray * (1 - weight) + colors * weight).round().astype(np.uint8)
