"""The kernel of a step changes its speed and nothing else."""

import torch
from torch.nn.attention import _cur_sdpa_kernel_backends

import vitreous as vt
from vitreous.training.step import attention_kernel

CPU = torch.device("cpu")


def backends(model: torch.nn.Module) -> list[str]:
    with attention_kernel(model, CPU):
        return sorted(backend.name for backend in _cur_sdpa_kernel_backends())


def test_short_sequences_take_the_open_formula_and_long_ones_what_pytorch_chooses() -> None:
    assert backends(vt.create("ViT-Ti/16", image_size=64, depth=1)) == ["MATH"]
    everything = backends(torch.nn.Linear(1, 1))
    assert len(everything) > 1
    assert backends(vt.create("ViT-Ti/16", image_size=224, depth=1)) == everything


def test_both_compute_the_same() -> None:
    model = vt.create("ViT-Ti/16", image_size=64, depth=2, num_classes=3).double()
    torch.nn.init.normal_(model.head.weight)
    images = torch.randn(2, 3, 64, 64, dtype=torch.float64)
    plain = model(images)
    with attention_kernel(model, CPU):
        torch.testing.assert_close(model(images), plain, atol=1e-5, rtol=1e-5)
