"""Tiny models and images that the tests of this room share."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from vitreous.data.dataset import ArrayImages
from vitreous.models.config import ViTConfig
from vitreous.models.preprocessing import Preprocessing
from vitreous.models.stored import BadImage, ImageLike
from vitreous.models.vit import ViT

LABELS = ("dark", "middle", "bright")


class WithBadOnes(ArrayImages):
    """Images of which some cannot be decoded."""

    bad: tuple[int, ...] = ()

    def held(self, index: int) -> ImageLike:
        if index in self.bad:
            raise BadImage(self.name(index), "torn")
        return super().held(index)


@pytest.fixture
def images() -> WithBadOnes:
    """31 gray images whose brightness tells the class; no batch size divides them."""
    generator = np.random.default_rng(0)
    targets = np.arange(31) % 3
    pixels = (targets * 80 + 40)[:, None, None] + generator.integers(-30, 30, (31, 8, 8))
    return WithBadOnes(pixels.astype(np.uint8), targets.astype(np.int64), LABELS, name="made")


@pytest.fixture
def make_model() -> Callable[..., ViT]:
    """A tiny ViT for those images; a head that is not zero, so that its answers differ."""

    def make(labels: tuple[str, ...] | None = LABELS, classes: int | None = 3, seed: int = 0) -> ViT:
        config = ViTConfig(
            image_size=8, channels=1, patch_size=4, width=8, depth=1, heads=2, mlp_dim=16, num_classes=classes
        )
        preprocessing = Preprocessing(size=(8, 8), channels=1, mean=(0.5,), std=(0.25,))
        model = ViT(config, preprocessing=preprocessing, labels=labels, seed=seed)
        generator = torch.Generator().manual_seed(3)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += 0.3 * torch.randn(parameter.shape, generator=generator)
        return model

    return make
