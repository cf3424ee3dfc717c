"""Encoder and decoder blocks: attention and MLP (or a gated one, arXiv 2002.05202), each on a residual branch
(paper, Eq. 2 and 3, Fig. 1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vitreous.layers.attention import LogitBias
from vitreous.layers.initialization import GoogleInit


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
    """D -> mlp_dim -> D with one non-linearity between: MLP(z) of Eq. 3.

    Args:
        sub_norm: LayerNorm before the last matrix ("sub-LN", arXiv 2210.06423); None for none.
    """

    described: ClassVar = {
        "expand": ("MLP, wide", "MLP, Eq. 3"),
        "sub_norm": ("LayerNorm", "2210.06423"),
        "contract": ("MLP, back", "MLP, Eq. 3"),
    }

    def __init__(
        self,
        width: int,
        hidden: int,
        *,
        activation: str = "gelu",
        dropout: float = 0.0,
        sub_norm: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.expand = nn.Linear(width, hidden)
        self.activation = ACTIVATIONS[activation]()
        self.dropout = nn.Dropout(dropout)
        self.sub_norm = sub_norm or nn.Identity()
        self.contract = nn.Linear(hidden, width)

    def forward(self, z: Float[Tensor, "*B T D"]) -> Float[Tensor, "*B T D"]:
        return self.contract(self.sub_norm(self.dropout(self.activation(self.expand(z)))))


# The activation of the gate, by the name of the MLP (GLU Variants Improve Transformer, arXiv 2002.05202).
GATES = {
    "swiglu": "silu",
    "geglu": "gelu",
    "geglu_tanh": "gelu_tanh",
    "quick_geglu": "quick_gelu",
    "reglu": "relu",
}


class GatedMLP(nn.Module):
    """contract(activation(gate(z)) * expand(z)); gate and expand share one matrix, gate's rows first.
    `sub_norm` as in `MLP` (EVA-02, arXiv 2303.11331).

    Args:
        activation: of the gate, a name among `ACTIVATIONS`; SwiGLU's is silu.
    """

    described: ClassVar = {
        "gate_expand": ("MLP, wide", "MLP, Eq. 3"),
        "sub_norm": ("LayerNorm", "2210.06423"),
        "contract": ("MLP, back", "MLP, Eq. 3"),
    }

    def __init__(
        self,
        width: int,
        hidden: int,
        *,
        activation: str = "silu",
        dropout: float = 0.0,
        sub_norm: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.gate_expand = nn.Linear(width, 2 * hidden)
        self.activation = ACTIVATIONS[activation]()
        self.dropout = nn.Dropout(dropout)
        self.sub_norm = sub_norm or nn.Identity()
        self.contract = nn.Linear(hidden, width)

    def forward(self, z: Float[Tensor, "*B T D"]) -> Float[Tensor, "*B T D"]:
        gate, expanded = self.gate_expand(z).chunk(2, dim=-1)
        return self.contract(self.sub_norm(self.dropout(self.activation(gate) * expanded)))


class LayerScale(nn.Module):
    """A learned factor for each channel of a branch (CaiT, arXiv 2103.17239, Eq. 4)."""

    def __init__(self, width: int, initial: float) -> None:
        super().__init__()
        self.initial = initial
        self.gamma = nn.Parameter(torch.full((width,), initial))

    def reset(self, init: GoogleInit) -> None:
        nn.init.constant_(self.gamma, self.initial)

    def forward(self, z: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        return z * self.gamma


class StochasticDepth(nn.Module):
    """Drops the whole branch of an image with probability `rate`, in training only (arXiv 1603.09382).

    Kept branches are scaled by 1 / (1 - rate), so that evaluation needs no factor.
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, z: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        if not self.training:
            return z
        keep = torch.rand(z.shape[0], 1, 1, device=z.device) >= self.rate
        return z * keep / (1 - self.rate)

    def extra_repr(self) -> str:
        return f"rate={self.rate}"


class Branch(nn.Sequential):
    """Dropout, LayerScale, stochastic depth: what a residual branch has after attention or MLP, each
    only where it is configured."""

    def __init__(self, width: int, *, dropout: float, layer_scale: float | None, drop_path: float) -> None:
        super().__init__()
        if dropout:
            self.add_module("dropout", nn.Dropout(dropout))
        if layer_scale is not None:
            self.add_module("scale", LayerScale(width, layer_scale))
        if drop_path:
            self.add_module("depth", StochasticDepth(drop_path))


class EncoderBlock(nn.Module):
    """The parts of an encoder layer; its kinds differ in where the norms are applied.

    Args:
        position: added to the input (appendix D.4, "every layer"); None for none.
    """

    described: ClassVar = {
        "position": ("positions", "D.4"),
        "attention_branch": ("residual", "+ z, Eq. 2"),
        "mlp_branch": ("residual", "+ z', Eq. 3"),
    }

    def __init__(
        self,
        *,
        attention: nn.Module,
        mlp: nn.Module,
        norms: tuple[nn.Module, nn.Module],
        branches: tuple[nn.Module, nn.Module],
        position: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.attention_norm, self.mlp_norm = norms
        self.attention, self.mlp = attention, mlp
        self.attention_branch, self.mlp_branch = branches
        self.position = position or nn.Identity()


class PreNormBlock(EncoderBlock):
    """The ViT's block. z' = MSA(LN(z)) + z (Eq. 2);  z = MLP(LN(z')) + z' (Eq. 3)."""

    described: ClassVar = {
        **EncoderBlock.described,
        "attention_norm": ("LayerNorm", "LN(z), Eq. 2"),
        "mlp_norm": ("LayerNorm", "LN(z'), Eq. 3"),
    }

    def forward(self, z: Float[Tensor, "B T D"], mask: LogitBias | None = None) -> Float[Tensor, "B T D"]:
        z = self.position(z)
        z = z + self.attention_branch(self.attention(self.attention_norm(z), mask))
        return z + self.mlp_branch(self.mlp(self.mlp_norm(z)))


class PostNormBlock(EncoderBlock):
    """The 2017 Transformer's block. z' = LN(z + MSA(z));  z = LN(z' + MLP(z')) (1706.03762, section 3.1)."""

    described: ClassVar = {
        **EncoderBlock.described,
        "attention_norm": ("LayerNorm", "LN, 1706.03762"),
        "mlp_norm": ("LayerNorm", "LN, 1706.03762"),
    }

    def forward(self, z: Float[Tensor, "B T D"], mask: LogitBias | None = None) -> Float[Tensor, "B T D"]:
        z = self.position(z)
        z = self.attention_norm(z + self.attention_branch(self.attention(z, mask)))
        return self.mlp_norm(z + self.mlp_branch(self.mlp(z)))


class PostBranchNormBlock(EncoderBlock):
    """Swin v2's block. z' = z + LN(MSA(z));  z = z' + LN(MLP(z')) (arXiv 2111.09883, section 3.2)."""

    described: ClassVar = {
        **EncoderBlock.described,
        "attention_norm": ("LayerNorm", "LN, 2111.09883"),
        "mlp_norm": ("LayerNorm", "LN, 2111.09883"),
    }

    def forward(self, z: Float[Tensor, "B T D"], mask: LogitBias | None = None) -> Float[Tensor, "B T D"]:
        z = self.position(z)
        z = z + self.attention_branch(self.attention_norm(self.attention(z, mask)))
        return z + self.mlp_branch(self.mlp_norm(self.mlp(z)))


class ParallelBlock(EncoderBlock):
    """ViT-22B's block. z' = z + MSA(LN(z)) + MLP(LN(z)) (arXiv 2302.05442, section 2)."""

    described: ClassVar = {
        **EncoderBlock.described,
        "attention_norm": ("LayerNorm", "LN, 2302.05442"),
        "mlp_norm": ("LayerNorm", "LN, 2302.05442"),
    }

    def forward(self, z: Float[Tensor, "B T D"], mask: LogitBias | None = None) -> Float[Tensor, "B T D"]:
        z = self.position(z)
        attended = self.attention_branch(self.attention(self.attention_norm(z), mask))
        return z + attended + self.mlp_branch(self.mlp(self.mlp_norm(z)))
