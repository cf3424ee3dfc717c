"""Low-rank adaptation (arXiv 2106.09685): frozen matrices, and small changes to them that learn.

It is a function applied to a model: torch's parametrisation makes each chosen weight W + alpha / rank * B A,
and merging makes it a plain weight again. What is saved is small, and so is the optimizer's memory; the
gradient of each whole matrix exists for a moment in the backward pass.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils import parametrize

from vitreous.training.config import LoRAConfig


class LowRank(nn.Module):
    """W -> W + scale B A. B begins at zero, so the function begins unchanged (section 4.1)."""

    def __init__(self, weight: Float[Tensor, "out in_"], rank: int, alpha: float) -> None:
        super().__init__()
        self.scale = alpha / rank
        self.a = nn.Parameter(torch.empty(rank, weight.shape[1], device=weight.device))
        self.b = nn.Parameter(torch.zeros(weight.shape[0], rank, device=weight.device))
        nn.init.kaiming_uniform_(self.a, a=5**0.5)

    def forward(self, weight: Float[Tensor, "out in_"]) -> Float[Tensor, "out in_"]:
        return weight + self.scale * (self.b @ self.a)


def add_lora(model: nn.Module, config: LoRAConfig) -> None:
    """Everything but the head is frozen; matrices of the chosen parts of each layer get a low-rank change."""
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name.startswith("head."))
    for linear in chosen(model, config):
        parametrize.register_parametrization(
            linear, "weight", LowRank(linear.weight, config.rank, config.alpha)
        )


def chosen(model: nn.Module, config: LoRAConfig) -> list[nn.Linear]:
    """The matrices of the configured parts, in every encoder layer."""
    return [
        module
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and any(f".{part}." in name for part in config.parts)
    ]


def merge_lora(model: nn.Module) -> None:
    """Plain weights again, equal to what the changed ones were."""
    for module in model.modules():
        if isinstance(module, nn.Linear) and parametrize.is_parametrized(module, "weight"):
            parametrize.remove_parametrizations(module, "weight", leave_parametrized=True)
