"""What comes into an image that was turned, shifted or bent."""

from __future__ import annotations

import pytest
import torch

from vitreous.data.batch_augmentation import BatchRandom, affine
from vitreous.data.config import AffineConfig


@pytest.mark.parametrize(("fill", "lowest"), [("darkest", -0.8), ("mean", 0.0)])
def test_what_comes_in_is_as_dark_as_asked(fill: str, lowest: float) -> None:
    bright = torch.full((16, 1, 8, 8), 1.5)
    bright[:, :, 4, 4] = lowest
    changed = affine(bright, AffineConfig(translate=0.5, fill=fill), BatchRandom(0, 0, 0, size=16))
    assert torch.isclose(changed.min(), torch.tensor(lowest), atol=1e-5)
    assert (changed[:, :, 0] < 0.8).any()  # something came in from above


def test_the_edge_repeated_brings_in_nothing_new() -> None:
    flat = torch.full((16, 3, 8, 8), 1.5)
    changed = affine(flat, AffineConfig(rotate=45, translate=0.5), BatchRandom(0, 0, 0, size=16))
    assert torch.allclose(changed, flat, atol=1e-5)


def test_bending_moves_neighbors_alike() -> None:
    ramp = torch.arange(32.0).expand(64, 1, 32, 32)
    bent = affine(ramp, AffineConfig(elastic=0.02), BatchRandom(0, 0, 0, size=64))
    moved = (bent - ramp)[:, 0, 4:-4, 4:-4]
    assert 0.2 < moved.std() < 1.0  # 0.02 of 32 pixels, less between the points
    assert moved.diff(dim=1).abs().mean() < 0.25 * moved.abs().mean()
