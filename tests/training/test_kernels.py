"""The kernel of a step changes its speed and nothing else."""

from typing import Any

import torch
from torch.nn.attention import SDPBackend, _cur_sdpa_kernel_backends, sdpa_kernel

import vitreous as vt
from vitreous.data.image_samples import Batch
from vitreous.training.config import TrainingConfig
from vitreous.training.learner import Learner
from vitreous.training.step import LossOf, TrainStep, attending, attention_kernels


def backends(model: torch.nn.Module, precision: str) -> list[str]:
    """The kernels that a training step of the model may use."""
    found: list[str] = []

    def objective(
        model: Any, batch: Batch, generator: torch.Generator
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        found.extend(sorted(backend.name for backend in _cur_sdpa_kernel_backends()))
        return model.head.weight.sum(), {}

    batch = Batch(torch.zeros(1, 3, 8, 8), torch.zeros(1, dtype=torch.long), torch.zeros(1, dtype=torch.long))
    config = TrainingConfig(precision=precision)
    TrainStep(Learner.begin(model, config), LossOf(model, objective), config, seed=0).prepare(batch)
    return found


def test_short_sequences_in_bf16_take_unfused_attention_and_all_others_what_pytorch_chooses() -> None:
    everything = sorted(backend.name for backend in _cur_sdpa_kernel_backends())
    assert len(everything) > 1
    short = vt.create("ViT-Ti/16", image_size=64, depth=1, num_classes=2)
    assert backends(short, "bf16") == ["MATH"]
    assert backends(short, "fp32") == everything
    longer = vt.create("ViT-Ti/16", image_size=256, depth=1, num_classes=2)
    assert backends(longer, "bf16") == everything


def test_both_compute_the_same() -> None:
    model = vt.create("ViT-Ti/16", image_size=64, depth=2, num_classes=3).double()
    torch.nn.init.normal_(model.head.weight)
    images = torch.randn(2, 3, 64, 64, dtype=torch.float64)
    plain = model(images)
    with sdpa_kernel(SDPBackend.MATH):
        torch.testing.assert_close(model(images), plain, atol=1e-5, rtol=1e-5)


def test_on_a_cpu_unfused_attention_multiplies_bf16_as_it_is() -> None:
    allowed = torch.backends.cuda.fp16_bf16_reduction_math_sdp_allowed
    before = allowed()
    query = torch.randn(2, 3, 8, 4, dtype=torch.bfloat16)
    with attending([SDPBackend.MATH]):
        assert allowed()
        found = torch.nn.functional.scaled_dot_product_attention(query, query, query)
    assert allowed() == before
    exact = torch.nn.functional.scaled_dot_product_attention(*3 * [query.double()])
    torch.testing.assert_close(found.double(), exact, atol=0.05, rtol=0.05)
    with attending([]):
        assert allowed() == before


def test_sequences_of_an_encoder_within_a_model_are_short_in_bf16_up_to_200_tokens() -> None:
    model = torch.nn.Module()
    model.encoder = vt.create("ViT-Ti/16", image_size=224, depth=1)
    cpu, bf16 = torch.device("cpu"), TrainingConfig(precision="bf16")
    assert attention_kernels(model, cpu, bf16) == [SDPBackend.MATH]
    assert attention_kernels(model, cpu, TrainingConfig(precision="fp32")) == []
    longer = vt.create("ViT-Ti/16", image_size=256, depth=1)
    assert attention_kernels(longer, cpu, bf16) == []
