"""Colors of classes, and masks that show them."""

from __future__ import annotations

import colorsys

import numpy as np
from jaxtyping import UInt8
from PIL import Image

# Wide apart in hue and lightness, so that neighboring class numbers never look alike (after Kelly's
# twenty-two colors of maximum contrast, 1965).
CONTRAST = (
    (0x2B, 0x30, 0x33), (0xF3, 0xC3, 0x00), (0x87, 0x56, 0x92), (0xF3, 0x84, 0x00), (0xA1, 0xCA, 0xF1),
    (0xBE, 0x00, 0x32), (0xC2, 0xB2, 0x80), (0x00, 0x88, 0x56), (0xE6, 0x8F, 0xAC), (0x00, 0x67, 0xA5),
    (0x8D, 0xB6, 0x00), (0xF9, 0x93, 0x79), (0x60, 0x4E, 0x97), (0xF6, 0xA6, 0x00), (0xB3, 0x44, 0x6C),
    (0xDC, 0xD3, 0x00), (0x88, 0x2D, 0x17), (0x65, 0x45, 0x22), (0xE2, 0x58, 0x22), (0x84, 0x84, 0x82),
)  # fmt: skip
GOLDEN = 0.618033988749895  # of the circle of hues: turns by it never come close to one another


def palette(classes: int) -> UInt8[np.ndarray, "classes 3"]:
    """An RGB color for each class; class 0, the background where there is one, is nearly black."""
    colors = list(CONTRAST[:classes])
    for number in range(len(colors), classes):
        light, strong = ((0.85, 0.75), (0.6, 0.9), (0.95, 0.45))[number % 3]
        red, green, blue = colorsys.hsv_to_rgb(number * GOLDEN % 1, strong, light)
        colors.append((round(255 * red), round(255 * green), round(255 * blue)))
    return np.array(colors, dtype=np.uint8).reshape(classes, 3)


def mask_image(mask: UInt8[np.ndarray, "H W"], classes: int) -> Image.Image:
    """A mask as an image with a palette: the pixels' values are the class numbers, 255 is white."""
    image = Image.fromarray(mask)
    colors = np.full((256, 3), 255, dtype=np.uint8)
    colors[:classes] = palette(classes)
    image.putpalette(colors.tobytes())
    return image


def colored(mask: UInt8[np.ndarray, "H W"], classes: int) -> UInt8[np.ndarray, "H W 3"]:
    """The classes' colors; white where the mask is 255."""
    return np.asarray(mask_image(mask, classes).convert("RGB"))


def overlaid(
    image: UInt8[np.ndarray, "H W 3"], mask: UInt8[np.ndarray, "H W"], classes: int, share: float = 0.6
) -> UInt8[np.ndarray, "H W 3"]:
    """The image in gray under the classes' colors; class 0 is left clear."""
    gray = image.mean(axis=2, keepdims=True)
    weight = np.where(mask == 0, 0.0, share)[..., None]
    return (gray * (1 - weight) + colored(mask, classes) * weight).round().astype(np.uint8)
