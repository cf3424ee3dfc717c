"""Arrays as images: heat maps, overlays, contact sheets, PNG, data URIs."""

from __future__ import annotations

import base64
import io
import math
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, UInt8
from PIL import Image

from vitreous.errors import LazyModule

if TYPE_CHECKING:
    import torch
else:  # exported models answer without it
    torch = LazyModule("torch")

EVENLY = 4  # the colors of a map end at its largest value, and at no less than so many times its mean
PHOTOGRAPH = 96  # images with at least so many pixels a side are stored as JPEG; smaller ones without loss
GAP = 3  # clear pixels between the images of a sheet
Pixels = UInt8[np.ndarray, "_ _ _"]  # rows, columns, RGB; or RGBA where something is left clear


def rgb(image: UInt8[torch.Tensor, "C H W"]) -> Pixels:
    """Return RGB pixels: gray is repeated, of more than three channels the first three are used."""
    shown = image[:3] if image.shape[0] >= 3 else image[:1].expand(3, -1, -1)
    return shown.permute(1, 2, 0).contiguous().cpu().numpy()


@cache
def inferno() -> UInt8[np.ndarray, "256 3"]:
    """Return matplotlib's colormap "inferno": even in lightness, so that it reads in gray and with color
    blindness."""
    from matplotlib import colormaps

    return (colormaps["inferno"](np.arange(256))[:, :3] * 255).round().astype(np.uint8)


def heat(values: Float[torch.Tensor, "H W"]) -> Pixels:
    """Return values in 0 ... 1 as colors from black over red to yellow."""
    steps = (values.float().nan_to_num().clamp(0, 1) * 256).long().clamp(max=255)
    return inferno()[steps.cpu().numpy()]


def to_scale(values: Float[torch.Tensor, "rows columns"]) -> Float[torch.Tensor, "rows columns"]:
    """Return a map as shares of the end of its color scale, so that an even map looks even: four times even
    attention, or the largest value if it is more."""
    return values / torch.maximum(values.max(), EVENLY * values.mean()).clamp_min(1e-12)


def overlay(image: Pixels, values: Float[torch.Tensor, "rows columns"]) -> Pixels:
    """Lay a heat map over the image in gray, to its scale and interpolated between patches."""
    smooth = torch.nn.functional.interpolate(
        to_scale(values)[None, None].float(), size=image.shape[:2], mode="bilinear", align_corners=False
    )[0, 0]
    gray = image.mean(axis=2, keepdims=True) * 0.45
    share = 0.30 + 0.60 * smooth.cpu().numpy()[..., None]
    return (gray * (1 - share) + heat(smooth) * share).round().astype(np.uint8)


def stretched(values: Float[torch.Tensor, "n C H W"]) -> UInt8[torch.Tensor, "n C H W"]:
    """Scale each image by its own largest absolute value; zero is middle gray."""
    largest = values.abs().amax(dim=(1, 2, 3), keepdim=True).clamp_min(1e-12)
    return ((values / largest + 1) * 127.5).round().to(torch.uint8)


def contact_sheet(tiles: list[Pixels], *, columns: int, least: int = 40) -> Pixels:
    """Lay out images of one size in rows, each at least `least` pixels large, on a transparent background."""
    tiles = [enlarged(tile, least) for tile in tiles]
    height, width = tiles[0].shape[:2]
    columns = min(columns, len(tiles))
    rows = math.ceil(len(tiles) / columns)
    sheet = np.zeros((rows * (height + GAP) - GAP, columns * (width + GAP) - GAP, 4), dtype=np.uint8)
    for index, tile in enumerate(tiles):
        top, left = index // columns * (height + GAP), index % columns * (width + GAP)
        sheet[top : top + height, left : left + width, :3] = tile
        sheet[top : top + height, left : left + width, 3] = 255
    return sheet


def enlarged(image: Pixels, least: int) -> Pixels:
    """Magnify by a whole number, so that the longer side has at least `least` pixels."""
    factor = math.ceil(least / max(image.shape[:2]))
    return image.repeat(factor, axis=0).repeat(factor, axis=1)


def png(image: Pixels) -> bytes:
    """Return the file of an image as PNG."""
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, format="PNG", optimize=True)
    return buffer.getvalue()


def data_uri(image: Pixels) -> str:
    """Return an image for use inside a page: photographs as JPEG, which is a fifth as large."""
    kind, data = "png", b""
    if min(image.shape[:2]) >= PHOTOGRAPH and image.shape[2] == 3:
        buffer = io.BytesIO()
        Image.fromarray(image).save(buffer, format="JPEG", quality=88)
        kind, data = "jpeg", buffer.getvalue()
    return f"data:image/{kind};base64," + base64.b64encode(data or png(image)).decode("ascii")
