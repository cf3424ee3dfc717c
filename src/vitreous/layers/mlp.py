"""The position-wise feed-forward part of a block: MLP (paper, section 3.1), SwiGLU (arXiv 2002.05202)."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn


class QuickGELU(nn.Module):
    """x * sigmoid(1.702 x): the approximation of GELU in OpenAI's CLIP."""

    def forward(self, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        return x * (1.702 * x).sigmoid()


# Exact in timm, Hugging Face and torchvision; tanh is the default of JAX's nn.gelu, so of Google's code.
ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "gelu": nn.GELU,
    "gelu_tanh": lambda: nn.GELU(approximate="tanh"),
    "quick_gelu": QuickGELU,
    "relu": nn.ReLU,
    "silu": nn.SiLU,
}


class MLP(nn.Module):
    """D -> mlp_dim -> D with one non-linearity between: MLP(z) of Eq. 3."""

    described: ClassVar = {"expand": ("MLP, wide", "MLP, Eq. 3"), "contract": ("MLP, back", "MLP, Eq. 3")}

    def __init__(self, width: int, hidden: int, *, activation: str = "gelu", dropout: float = 0.0) -> None:
        super().__init__()
        self.expand = nn.Linear(width, hidden)
        self.activation = ACTIVATIONS[activation]()
        self.dropout = nn.Dropout(dropout)
        self.contract = nn.Linear(hidden, width)

    def forward(self, z: Float[Tensor, "*B T D"]) -> Float[Tensor, "*B T D"]:
        return self.contract(self.dropout(self.activation(self.expand(z))))


class SwiGLU(nn.Module):
    """contract(silu(gate(z)) * expand(z)); gate and expand share one matrix, gate's rows first."""

    described: ClassVar = {
        "gate_expand": ("MLP, wide", "MLP, Eq. 3"),
        "contract": ("MLP, back", "MLP, Eq. 3"),
    }

    def __init__(self, width: int, hidden: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.gate_expand = nn.Linear(width, 2 * hidden)
        self.dropout = nn.Dropout(dropout)
        self.contract = nn.Linear(hidden, width)

    def forward(self, z: Float[Tensor, "*B T D"]) -> Float[Tensor, "*B T D"]:
        gate, expanded = self.gate_expand(z).chunk(2, dim=-1)
        return self.contract(self.dropout(F.silu(gate) * expanded))
