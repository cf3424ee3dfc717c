"""One encoder block: attention and MLP, each on a residual branch (paper, Eq. 2 and 3, Fig. 1 right)."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vitreous.layers.initialization import GoogleInit


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


class PreNormBlock(nn.Module):
    """The ViT's block. z' = MSA(LN(z)) + z (Eq. 2);  z = MLP(LN(z')) + z' (Eq. 3)."""

    described: ClassVar = {
        "attention_norm": ("LayerNorm", "LN(z), Eq. 2"),
        "attention_branch": ("residual", "+ z, Eq. 2"),
        "mlp_norm": ("LayerNorm", "LN(z'), Eq. 3"),
        "mlp_branch": ("residual", "+ z', Eq. 3"),
    }

    def __init__(
        self,
        *,
        attention: nn.Module,
        mlp: nn.Module,
        norms: tuple[nn.Module, nn.Module],
        branches: tuple[nn.Module, nn.Module],
    ) -> None:
        super().__init__()
        self.attention_norm, self.mlp_norm = norms
        self.attention = attention
        self.attention_branch, self.mlp_branch = branches
        self.mlp = mlp

    def forward(
        self, z: Float[Tensor, "B T D"], mask: Float[Tensor, "#B #K #T T"] | None = None
    ) -> Float[Tensor, "B T D"]:
        z = z + self.attention_branch(self.attention(self.attention_norm(z), mask))
        return z + self.mlp_branch(self.mlp(self.mlp_norm(z)))


class PostNormBlock(nn.Module):
    """The 2017 Transformer's block. z' = LN(z + MSA(z));  z = LN(z' + MLP(z')) (1706.03762, section 3.1)."""

    described: ClassVar = {
        "attention_norm": ("LayerNorm", "LN, 1706.03762"),
        "attention_branch": ("residual", "+ z, Eq. 2"),
        "mlp_norm": ("LayerNorm", "LN, 1706.03762"),
        "mlp_branch": ("residual", "+ z', Eq. 3"),
    }

    def __init__(
        self,
        *,
        attention: nn.Module,
        mlp: nn.Module,
        norms: tuple[nn.Module, nn.Module],
        branches: tuple[nn.Module, nn.Module],
    ) -> None:
        super().__init__()
        self.attention = attention
        self.attention_norm, self.mlp_norm = norms
        self.attention_branch, self.mlp_branch = branches
        self.mlp = mlp

    def forward(
        self, z: Float[Tensor, "B T D"], mask: Float[Tensor, "#B #K #T T"] | None = None
    ) -> Float[Tensor, "B T D"]:
        z = self.attention_norm(z + self.attention_branch(self.attention(z, mask)))
        return self.mlp_norm(z + self.mlp_branch(self.mlp(z)))


class Positioned(nn.Module):
    """Adds positions to the input of a block (appendix D.4, "every layer")."""

    def __init__(self, *, position: nn.Module, **parts: Any) -> None:
        super().__init__(**parts)
        self.position = position

    def forward(
        self, z: Float[Tensor, "B T D"], mask: Float[Tensor, "#B #K #T T"] | None = None
    ) -> Float[Tensor, "B T D"]:
        return super().forward(self.position(z), mask)


class PositionedPreNormBlock(Positioned, PreNormBlock):
    described: ClassVar = {"position": ("positions", "D.4"), **PreNormBlock.described}


class PositionedPostNormBlock(Positioned, PostNormBlock):
    described: ClassVar = {"position": ("positions", "D.4"), **PostNormBlock.described}
