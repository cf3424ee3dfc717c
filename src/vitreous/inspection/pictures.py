"""Arrays as pictures: heat, overlays, contact sheets, PNG, data URIs."""

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

PHOTOGRAPH = 96  # pictures with at least so many pixels a side; the pixels of smaller ones are to be seen
HEAT = "inferno"  # even in lightness, so it reads in grey and by the colour-blind
Pixels = UInt8[np.ndarray, "_ _ _"]  # rows, columns, RGB; or RGBA where something is left clear


def rgb(image: UInt8[Tensor, "C H W"]) -> Pixels:
    """Bytes as preprocessing gives them back: grey is repeated, of many channels the first three shown."""
    shown = image[:3] if image.shape[0] >= 3 else image[:1].expand(3, -1, -1)
    return shown.permute(1, 2, 0).contiguous().cpu().numpy()


def heat(values: Float[Tensor, "H W"]) -> Pixels:
    """0 ... 1 from black over red to yellow."""
    coloured = matplotlib.colormaps[HEAT](values.clamp(0, 1).cpu().numpy())
    return (coloured[..., :3] * 255).round().astype(np.uint8)


def overlay(picture: Pixels, values: Float[Tensor, "rows columns"]) -> Pixels:
    """Heat over the picture in grey, scaled to the map's largest value; each patch melts into the next."""
    largest = values.max().clamp_min(1e-12)
    smooth = F.interpolate(
        (values / largest)[None, None].float(), size=picture.shape[:2], mode="bilinear", align_corners=False
    )[0, 0]
    grey = picture.mean(axis=2, keepdims=True) * 0.45
    share = 0.30 + 0.60 * smooth.cpu().numpy()[..., None]
    return (grey * (1 - share) + heat(smooth) * share).round().astype(np.uint8)


def stretched(values: Float[Tensor, "n C H W"]) -> UInt8[Tensor, "n C H W"]:
    """Each small picture from its own smallest to its own largest value, zero in the middle grey."""
    largest = values.abs().amax(dim=(1, 2, 3), keepdim=True).clamp_min(1e-12)
    return ((values / largest + 1) * 127.5).round().to(torch.uint8)


def contact_sheet(tiles: list[Pixels], *, columns: int, least: int = 40, gap: int = 3) -> Pixels:
    """Pictures of one size in rows, each at least `least` pixels large, on a clear ground."""
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


def enlarged(picture: Pixels, least: int) -> Pixels:
    """Whole-number magnification, so that the longer side has at least `least` pixels."""
    factor = math.ceil(least / max(picture.shape[:2]))
    return picture.repeat(factor, axis=0).repeat(factor, axis=1)


def png(picture: Pixels) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(picture).save(buffer, format="PNG", optimize=True)
    return buffer.getvalue()


def jpeg(picture: Pixels) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(picture).save(buffer, format="JPEG", quality=88)
    return buffer.getvalue()


def data_uri(picture: Pixels) -> str:
    """A picture that a page carries in itself: photographs as JPEG, which is a fifth as large."""
    photograph = min(picture.shape[:2]) >= PHOTOGRAPH and picture.shape[2] == 3
    kind, data = ("jpeg", jpeg(picture)) if photograph else ("png", png(picture))
    return f"data:image/{kind};base64," + base64.b64encode(data).decode("ascii")
