"""Tiny models with weights that matter: every parameter is drawn, none is zero."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from vitreous.models.config import ViTConfig
from vitreous.models.names import Model, build, build_model
from vitreous.models.vit import ViT

TINY = {
    "image_size": 32,
    "patch_size": 8,
    "width": 32,
    "depth": 2,
    "heads": 4,
    "mlp_dim": 64,
    "num_classes": 5,
}


@torch.no_grad()
def randomize(model: Model) -> Model:
    """Weights of a trained model's size, none of them zero."""
    for name, parameter in model.named_parameters():
        scale = 0.5 if parameter.ndim == 1 and "norm" in name and "weight" in name else 0.15
        parameter.copy_(scale * torch.randn(parameter.shape) + (1.0 if scale == 0.5 else 0.0))
    return model.eval()


@pytest.fixture
def tiny() -> Callable[..., ViT]:
    """Makes a tiny ViT with any fields changed."""

    def make(**fields: Any) -> ViT:
        model = randomize(build_model(build(ViTConfig, TINY, fields)))
        assert isinstance(model, ViT)
        return model

    return make


@pytest.fixture(scope="session")
def torchvision_operators() -> Iterator[None]:
    """The operators that torchvision asks for, where its compiled half does not fit this PyTorch."""
    found = importlib.util.find_spec("torchvision")
    if found is None or not found.submodule_search_locations:
        yield
        return
    compiled = [*Path(found.submodule_search_locations[0]).glob("_C*.so")]
    try:
        torch.ops.load_library(str(compiled[0]))
    except (OSError, IndexError):
        library = torch.library.Library("torchvision", "FRAGMENT")
        for operator in ("nms", "qnms"):
            if not hasattr(torch.ops.torchvision, operator):
                library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    yield
