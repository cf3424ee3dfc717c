"""Arrays as images: heat, overlays, contact sheets, PNG, data URIs."""

from __future__ import annotations

import base64
import io
import math

import matplotlib
import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, UInt8
from PIL import Image
from torch import Tensor

PHOTOGRAPH = 96  # images with at least so many pixels a side; the pixels of smaller ones are to be seen
HEAT = "inferno"  # even in lightness, so it reads in gray and by the color-blind
Pixels = UInt8[np.ndarray, "_ _ _"]  # rows, columns, RGB; or RGBA where something is left clear


def rgb(image: UInt8[Tensor, "C H W"]) -> Pixels:
    """Bytes as preprocessing gives them back: gray is repeated, of many channels the first three shown."""
    shown = image[:3] if image.shape[0] >= 3 else image[:1].expand(3, -1, -1)
    return shown.permute(1, 2, 0).contiguous().cpu().numpy()


def heat(values: Float[Tensor, "H W"]) -> Pixels:
    """0 ... 1 from black over red to yellow."""
    colored = matplotlib.colormaps[HEAT](values.clamp(0, 1).cpu().numpy())
    return (colored[..., :3] * 255).round().astype(np.uint8)


def overlay(image: Pixels, values: Float[Tensor, "rows columns"]) -> Pixels:
    """Heat over the image in gray, scaled to the map's largest value; each patch melts into the next."""
    largest = values.max().clamp_min(1e-12)
    smooth = F.interpolate(
        (values / largest)[None, None].float(), size=image.shape[:2], mode="bilinear", align_corners=False
    )[0, 0]
    gray = image.mean(axis=2, keepdims=True) * 0.45
    share = 0.30 + 0.60 * smooth.cpu().numpy()[..., None]
    return (gray * (1 - share) + heat(smooth) * share).round().astype(np.uint8)


def stretched(values: Float[Tensor, "n C H W"]) -> UInt8[Tensor, "n C H W"]:
    """Each small image from its own smallest to its own largest value, zero in the middle gray."""
    largest = values.abs().amax(dim=(1, 2, 3), keepdim=True).clamp_min(1e-12)
    return ((values / largest + 1) * 127.5).round().to(torch.uint8)


def contact_sheet(tiles: list[Pixels], *, columns: int, least: int = 40, gap: int = 3) -> Pixels:
    """Images of one size in rows, each at least `least` pixels large, on a clear ground."""
    tiles = [enlarged(tile, least) for tile in tiles]
    height, width = tiles[0].shape[:2]
    columns = min(columns, len(tiles))
    rows = math.ceil(len(tiles) / columns)
    sheet = np.zeros((rows * (height + gap) - gap, columns * (width + gap) - gap, 4), dtype=np.uint8)
    for index, tile in enumerate(tiles):
        top, left = index // columns * (height + gap), index % columns * (width + gap)
        sheet[top : top + height, left : left + width, :3] = tile
        sheet[top : top + height, left : left + width, 3] = 255
    return sheet


def enlarged(image: Pixels, least: int) -> Pixels:
    """Whole-number magnification, so that the longer side has at least `least` pixels."""
    factor = math.ceil(least / max(image.shape[:2]))
    return image.repeat(factor, axis=0).repeat(factor, axis=1)


def png(image: Pixels) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, format="PNG", optimize=True)
    return buffer.getvalue()


def jpeg(image: Pixels) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, format="JPEG", quality=88)
    return buffer.getvalue()


def data_uri(image: Pixels) -> str:
    """An image that a page carries in itself: photographs as JPEG, which is a fifth as large."""
    photograph = min(image.shape[:2]) >= PHOTOGRAPH and image.shape[2] == 3
    kind, data = ("jpeg", jpeg(image)) if photograph else ("png", png(image))
    return f"data:image/{kind};base64," + base64.b64encode(data).decode("ascii")
