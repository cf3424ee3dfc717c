"""Tiny models in which everything takes part, and images for them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

import vitreous as vt
from vitreous.models.model import build_model


def noisy(*, std: float, **fields: Any) -> vt.ViT:
    """A ViT whose weights are all random: no zero heads, no zero tables."""
    torch.manual_seed(0)
    model = build_model(vt.ViTConfig(**fields))
    assert isinstance(model, vt.ViT)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=std)
    return model.eval()


def images_for(model: vt.ViT, batch: int = 2) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(batch, model.config.channels, *model.config.image_size, generator=generator)
