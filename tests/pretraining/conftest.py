"""A tiny model, and images with structure: ramps between two colors, so that gaps can be guessed."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from vitreous.models.config import ViTConfig
from vitreous.models.vit import ViT


@pytest.fixture
def tiny() -> Callable[..., ViT]:
    def make(**overrides: Any) -> ViT:
        torch.manual_seed(0)
        fields = {"image_size": 32, "patch_size": 8, "width": 48, "depth": 2, "heads": 3, "mlp_dim": 96}
        return ViT(ViTConfig(**{**fields, "num_classes": None, **overrides}))

    return make


@pytest.fixture
def images() -> Tensor:
    """(16, 3, 32, 32), normalized to -1 ... 1."""
    generator = torch.Generator().manual_seed(1)
    start, end = torch.rand(2, 16, 3, 1, 1, generator=generator) * 2 - 1
    return start + (end - start) * torch.linspace(0, 1, 32).expand(1, 1, 32, 32)


@pytest.fixture
def losses() -> Callable[..., list[float]]:
    """The loss of each of some steps of an objective on the same images."""

    def run(objective: nn.Module, images: Tensor, *, steps: int = 40, lr: float = 3e-3) -> list[float]:
        generator = torch.Generator().manual_seed(0)
        learning = [each for each in objective.parameters() if each.requires_grad]
        optimizer = torch.optim.AdamW(learning, lr, weight_decay=0.0)
        found = []
        for _ in range(steps):
            loss, measured = objective(images, generator)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if hasattr(objective, "after_step"):
                objective.after_step([(len(images), measured)], torch.tensor(True))
            found.append(loss.item())
        return found

    return run
