"""The kernel of a step changes its speed and nothing else."""

from typing import Any

import torch
from torch.nn.attention import SDPBackend, _cur_sdpa_kernel_backends, sdpa_kernel

import vitreous as vt
from vitreous.data.image_samples import Batch
from vitreous.training.config import TrainingConfig
from vitreous.training.learner import Learner
from vitreous.training.step import TrainStep


def backends(model: torch.nn.Module) -> list[str]:
    """The kernels that a training step of the model may use."""
    found: list[str] = []

    def objective(
        model: Any, batch: Batch, generator: torch.Generator
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        found.extend(sorted(backend.name for backend in _cur_sdpa_kernel_backends()))
        return model.head.weight.sum(), {}

    batch = Batch(torch.zeros(1, 3, 8, 8), torch.zeros(1, dtype=torch.long), torch.zeros(1, dtype=torch.long))
    TrainStep(Learner.begin(model, TrainingConfig()), objective, TrainingConfig(), seed=0).prepare(batch)
    return found


def test_short_sequences_take_the_open_formula_and_long_ones_what_pytorch_chooses() -> None:
    assert backends(vt.create("ViT-Ti/16", image_size=64, depth=1, num_classes=2)) == ["MATH"]
    everything = sorted(backend.name for backend in _cur_sdpa_kernel_backends())
    assert len(everything) > 1
    assert backends(vt.create("ViT-Ti/16", image_size=224, depth=1, num_classes=2)) == everything


def test_both_compute_the_same() -> None:
    model = vt.create("ViT-Ti/16", image_size=64, depth=2, num_classes=3).double()
    torch.nn.init.normal_(model.head.weight)
    images = torch.randn(2, 3, 64, 64, dtype=torch.float64)
    plain = model(images)
    with sdpa_kernel(SDPBackend.MATH):
        torch.testing.assert_close(model(images), plain, atol=1e-5, rtol=1e-5)
