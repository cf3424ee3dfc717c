"""Arrays as images: heat maps, overlays, contact sheets, PNG, data URIs."""

from __future__ import annotations

import base64
import io
import math

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, UInt8
from PIL import Image
from torch import Tensor

PHOTOGRAPH = 96  # images with at least so many pixels a side are stored as JPEG; smaller ones without loss
# The RGB bytes of matplotlib's colormap "inferno", in 256 steps: even in lightness, so that it reads in gray
# and with color blindness.
INFERNO = np.frombuffer(
    base64.b64decode(
        "AAAEAQAFAQEGAQEIAgEKAgIMAgIOAwIQBAMSBAMUBQQXBgQZBwUbCAUdCQYfCgciCwckDAgmDQgpDgkrEAktEQowEgoyFAs0"
        "FQs3Fgs5GAw8GQw+GwxBHAxDHgxFHwxIIQxKIwxMJAxPJgxRKAtTKQtVKwtXLQtZLwpbMQpcMgpeNApfNglhOAliOQljOwlk"
        "PQllPglmQApnQgpoRApoRQppRwtqSQtqSgxrTAxrTQ1sTw1sUQ5sUg5tVA9tVQ9tVxBuWRBuWhFuXBJuXRJuXxNuYRNuYhRu"
        "ZBVuZRVuZxZuaRZuahdubBhubRhubxlucRluchpudBpudRtudxxteBxteh1tfB1tfR5tfx5sgB9sgiBshCBrhSFrhyFriCJq"
        "iiJqjCNpjSNpjyRpkCVokiVokyZnlSZnlydmmCdmmihlmylknSlknypjoCpjoitioyxhpSxgpi1gqC5fqS5eqy9erTBdrjBc"
        "sDFbsTJaszJatDNZtjRYtzVXuTVWujZVvDdUvThTvzlSwDpRwTpQwztPxDxOxj1Nxz5MyD9LykBKy0FJzEJIzkNHz0RG0EVF"
        "0kZE00dD1EhC1UpB10s/2Ew+2U092k4821A73VE63lI431M34FU24VY14lc041kz5Fox5Vww5l0v514u6GAt6WEr6mMq62Qp"
        "62Yo7Gcm7Wkl7mok72wj724h8G8g8XEf8XMd8nQc83Yb83gZ9HkY9XsX9X0V9n4U9oAT94IS94QQ+IUP+IcO+IkM+YsL+YwK"
        "+Y4J+pAI+pIH+pQH+5YG+5cG+5kG+5sG+50H/J8H/KEI/KMJ/KUK/KYM/KgN/KoP/KwR/K4S/LAU/LIW/LQY+7Ya+7gd+7of"
        "+7wh+74j+sAm+sIo+sQq+sYt+ccv+cky+cs1+M03+M8699E999NA9tVD9tdG9dlJ9dtM9N1P9N9T9OFW8+Na8+Vd8uZh8uhl"
        "8upp8ext8e1x8e918fF58vJ98vSC8/WG8/aK9PiO9fmS9vqW+Pua+fyd+v2h/P+k"
    ),
    dtype=np.uint8,
).reshape(256, 3)
Pixels = UInt8[np.ndarray, "_ _ _"]  # rows, columns, RGB; or RGBA where something is left clear


def rgb(image: UInt8[Tensor, "C H W"]) -> Pixels:
    """Return RGB pixels: gray is repeated, of more than three channels the first three are used."""
    shown = image[:3] if image.shape[0] >= 3 else image[:1].expand(3, -1, -1)
    return shown.permute(1, 2, 0).contiguous().cpu().numpy()


def heat(values: Float[Tensor, "H W"]) -> Pixels:
    """Return values in 0 ... 1 as colors from black over red to yellow."""
    steps = (values.float().nan_to_num().clamp(0, 1) * 256).long().clamp(max=255)
    return INFERNO[steps.cpu().numpy()]


def overlay(image: Pixels, values: Float[Tensor, "rows columns"]) -> Pixels:
    """Lay a heat map over the image in gray, scaled to its maximum and interpolated between patches."""
    largest = values.max().clamp_min(1e-12)
    smooth = F.interpolate(
        (values / largest)[None, None].float(), size=image.shape[:2], mode="bilinear", align_corners=False
    )[0, 0]
    gray = image.mean(axis=2, keepdims=True) * 0.45
    share = 0.30 + 0.60 * smooth.cpu().numpy()[..., None]
    return (gray * (1 - share) + heat(smooth) * share).round().astype(np.uint8)


def stretched(values: Float[Tensor, "n C H W"]) -> UInt8[Tensor, "n C H W"]:
    """Scale each image by its own largest absolute value; zero is middle gray."""
    largest = values.abs().amax(dim=(1, 2, 3), keepdim=True).clamp_min(1e-12)
    return ((values / largest + 1) * 127.5).round().to(torch.uint8)


def contact_sheet(tiles: list[Pixels], *, columns: int, least: int = 40, gap: int = 3) -> Pixels:
    """Lay out images of one size in rows, each at least `least` pixels large, on a transparent background."""
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
