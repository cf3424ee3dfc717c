"""Arrays as images."""

from __future__ import annotations

import base64
import io
import re
import shutil
import subprocess
from pathlib import Path

import matplotlib
import numpy as np
import pytest
import torch
from PIL import Image

import vitreous as vt
from vitreous.inspection.images import (
    contact_sheet,
    data_uri,
    enlarged,
    heat,
    overlay,
    rgb,
    stretched,
    to_scale,
)


def decoded(uri: str) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2]))))


def test_colors_are_relative_to_even_attention() -> None:
    """A map without structure has one dark color, however its small differences would look when stretched."""
    almost_even = torch.full((4, 4), 1 / 16)
    almost_even[1, 2] *= 1.05
    assert to_scale(almost_even).max() < 0.27
    peaked = torch.zeros(4, 4)
    peaked[1, 2] = 1
    assert to_scale(peaked).max() == 1
    assert to_scale(torch.zeros(2, 2)).max() == 0


def test_gray_is_repeated_and_of_many_channels_three_are_shown() -> None:
    gray = torch.arange(4, dtype=torch.uint8).view(1, 2, 2)
    assert rgb(gray)[1, 0].tolist() == [2, 2, 2]
    many = torch.arange(5, dtype=torch.uint8).view(5, 1, 1)
    assert rgb(many)[0, 0].tolist() == [0, 1, 2]


def test_heat_grows_lighter() -> None:
    lightness = heat(torch.linspace(0, 1, 9)[None]).astype(float).mean(axis=2)[0]
    assert (np.diff(lightness) > 0).all()


def test_an_overlay_is_lightest_where_the_map_is_largest() -> None:
    image = np.full((8, 12, 3), 100, dtype=np.uint8)
    values = torch.zeros(2, 3)
    values[1, 2] = 7.0
    drawn = overlay(image, values).astype(float).sum(axis=2)
    assert drawn.shape == (8, 12)
    assert drawn[-1, -1] == drawn.max() > drawn[0, 0]
    overlay(image, torch.zeros(2, 3))  # a map of nothing is no division by nothing


def test_zero_is_the_middle_gray() -> None:
    filters = torch.tensor([[[[0.0, 2.0], [-1.0, 0.0]]]])
    assert stretched(filters).flatten().tolist() == [128, 255, 64, 128]


def test_a_sheet_is_clear_between_its_tiles() -> None:
    tiles = [np.full((2, 3, 3), 10 * i, dtype=np.uint8) for i in range(5)]
    sheet = contact_sheet(tiles, columns=2, least=3)
    assert sheet.shape == (2 * 3 + 2 * 3, 3 * 2 + 3, 4)
    assert sheet[0, 3].tolist() == [0, 0, 0, 0]
    assert sheet[5, 6].tolist() == [30, 30, 30, 255]
    assert sheet[-1, -1].tolist() == [0, 0, 0, 0]  # the sixth place is empty
    assert enlarged(tiles[0], 7).shape == (6, 9, 3)


@pytest.mark.parametrize(("side", "kind"), [(8, "png"), (95, "png"), (96, "jpeg")])
def test_small_images_keep_their_pixels_and_photographs_are_small(side: int, kind: str) -> None:
    image = np.random.default_rng(0).integers(0, 256, (side, side + 1, 3), dtype=np.uint8)
    uri = data_uri(image)
    assert uri.startswith(f"data:image/{kind};base64,")
    assert decoded(uri).shape == image.shape
    if kind == "png":
        np.testing.assert_array_equal(decoded(uri), image)


def test_the_heat_map_is_inferno() -> None:
    """matplotlib is not needed where only heat maps are made, as in serving."""
    values = torch.linspace(0, 1, 1000)[None]
    expected = matplotlib.colormaps["inferno"](values.numpy())[..., :3] * 255
    np.testing.assert_array_equal(heat(values), expected.round().astype(np.uint8))


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node, which checks the syntax of scripts")
@pytest.mark.parametrize("script", sorted(Path(vt.__file__).parent.rglob("*.js")), ids=lambda path: path.name)
def test_scripts_of_pages_can_be_parsed(script: Path, tmp_path: Path) -> None:
    """A name declared twice leaves a page without its interactive part, and no Python test would notice."""
    module = tmp_path / "script.mjs"
    module.write_text(re.sub(r"\{[%{][^}]*[%}]\}", "0", script.read_text(encoding="utf-8")), encoding="utf-8")
    done = subprocess.run(["node", "--check", module], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
