"""Positions and patches are resampled as each codebase does it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from einops import rearrange
from safetensors.torch import load_file

from vitreous.checkpoints.resizing import INTERPOLATIONS, resize_bias, resize_patch, resize_table

TOLERANCE = 1e-5


@pytest.mark.parametrize("name", ["google_posembed_resize", "bigvision_posemb_resize"])
def test_google(name: str, golden: Any) -> None:
    expected = golden(name).expected
    keys = [key.removesuffix("/before") for key in expected if key.endswith("/before")]
    assert keys
    for key in keys:
        old, new = (int(side) for side in re.findall(r"g(\d+)", key))
        before, after = expected[f"{key}/before"][0], expected[f"{key}/after"][0]
        ours = resize_table(before, (old, old), (new, new), "google")
        assert (ours - after).abs().max() < TOLERANCE, key


def test_timm(golden: Any) -> None:
    """Its default is bicubic with antialiasing; its other ways are other names."""
    expected = golden("timm_resample_abs_pos_embed").expected
    keys = [key.removesuffix("/before") for key in expected if key.endswith("/before")]
    names = {
        "bicubic_aa": "timm",
        "bicubic": "huggingface",
        "bilinear": "timm-npz",
        "bilinear_aa": "flexivit",
    }
    used = set()
    for key in keys:
        h, w, new_h, new_w, way = re.fullmatch(r"(\d+)x(\d+)_to_(\d+)x(\d+)_prefix\d+_(\w+)", key).groups()  # type: ignore[union-attr]
        before, after = expected[f"{key}/before"][0], expected[f"{key}/after"][0]
        ours = resize_table(before, (int(h), int(w)), (int(new_h), int(new_w)), names[way])
        assert (ours - after).abs().max() < TOLERANCE, key
        used.add(way)
    assert used == set(names)


def test_torchvision_by_its_definition() -> None:
    """Bicubic with aligned corners: the corners keep their vectors, unlike with any other way."""
    table = torch.randn(17, 8)
    resized = resize_table(table, (4, 4), (7, 7), "torchvision")
    corners = rearrange(resized[1:], "(h w) D -> h w D", h=7)[::6, ::6]
    torch.testing.assert_close(corners, rearrange(table[1:], "(h w) D -> h w D", h=4)[::3, ::3])
    assert torch.equal(resized[0], table[0])
    assert not torch.allclose(resized, resize_table(table, (4, 4), (7, 7), "huggingface"))


def test_each_name_is_its_own_way() -> None:
    """Odd sides, as tables of relative positions have; not of a square, where two ways are one."""
    grid = torch.randn(1, 4, 7, 7, dtype=torch.float64)
    seen = [resample(grid, (5, 3)) for resample in INTERPOLATIONS.values()]
    for i, one in enumerate(seen):
        for other in seen[i + 1 :]:
            assert not torch.allclose(one, other)


def test_tables_of_relative_positions_as_timm() -> None:
    """Written by timm 1.0.31's `resize_rel_pos_bias_table`."""
    tables = load_file(Path(__file__).parent / "data" / "timm_relative_bias.safetensors")
    grids = {"larger": ((3, 3), (5, 6)), "smaller": ((5, 5), (3, 4)), "as many": ((4, 4), (2, 8))}
    for name, (old, new) in grids.items():
        spans = [(2 * rows - 1, 2 * columns - 1) for rows, columns in (old, new)]
        ours = resize_bias(tables[f"{name}/before"], *spans, "beit")
        assert (ours - tables[f"{name}/after"]).abs().max() < 1e-6, name


def test_patches(golden: Any) -> None:
    expected = golden("bigvision_flexi_patchemb").expected
    keys = [key.removesuffix("/before") for key in expected if key.endswith("/before")]
    assert keys
    for key in keys:
        p, q = (int(side) for side in key.split("_to_")[1].split("x"))
        kernel = rearrange(expected[f"{key}/before"], "p q C D -> D C p q")
        ours = rearrange(resize_patch(kernel, (p, q)), "D C p q -> p q C D")
        difference = (ours - expected[f"{key}/after"]).abs().max()
        assert difference < 2e-5 * expected[f"{key}/after"].abs().max(), key


@pytest.mark.slow
@pytest.mark.peers
def test_patches_as_timm() -> None:
    """timm resamples them bicubically with antialiasing, up and down."""
    timm = pytest.importorskip("timm.layers.patch_embed")
    kernel = torch.randn(5, 3, 8, 8)
    for size in ((4, 4), (16, 16), (12, 6)):
        theirs = timm.resample_patch_embed(kernel, list(size))
        assert (resize_patch(kernel, size, "timm") - theirs).abs().max() < 1e-5, size


def test_resized_kernel_sees_the_same_in_a_resized_patch() -> None:
    """The defining property of PI-resize, exact when the patch grows (FlexiViT, section 3.4)."""
    kernel, patch = torch.randn(5, 3, 8, 8), torch.randn(2, 3, 8, 8)
    larger = INTERPOLATIONS["timm-npz"](patch, (16, 16))
    ours = torch.einsum("dcpq,bcpq->bd", resize_patch(kernel, (16, 16)), larger)
    torch.testing.assert_close(ours, torch.einsum("dcpq,bcpq->bd", kernel, patch), atol=1e-4, rtol=1e-4)
