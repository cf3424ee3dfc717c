"""Tiny models with weights that matter: every parameter is drawn, none is zero."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from vitreous.models.config import ViTConfig
from vitreous.models.model import Model, build_model
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


@pytest.fixture(scope="session")
def tiny() -> Callable[..., ViT]:
    """Makes a tiny ViT with any fields changed."""

    def make(**fields: Any) -> ViT:
        model = randomize(build_model(ViTConfig.checked(TINY, fields)))
        assert isinstance(model, ViT)
        return model

    return make


def program(name: str) -> ModuleType:
    """A program beside these tests."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def program_beside() -> Callable[[str], ModuleType]:
    """Imports a program beside these tests, by its name."""
    return program


@pytest.fixture(scope="session")
def timm_registry() -> ModuleType:
    """The program that makes the package's table of timm's architectures."""
    return program("timm_registry")


@pytest.fixture(scope="session")
def peer_families() -> ModuleType:
    """The program that makes the golden models of families."""
    return program("peer_families")


@pytest.fixture(scope="session")
def torchvision(timm_registry: ModuleType) -> ModuleType:
    """torchvision, without its operators where these are of another PyTorch."""
    try:
        return timm_registry.import_torchvision()
    except ImportError:
        pytest.skip("torchvision is not installed")


@pytest.fixture(scope="session")
def timm(timm_registry: ModuleType) -> ModuleType:
    """timm, which asks for torchvision and does without it here."""
    try:
        found: ModuleType = timm_registry.import_timm()
    except ImportError:
        pytest.skip("timm is not installed")
    return found
