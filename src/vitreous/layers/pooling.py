"""From the tokens of the last layer to what the head sees (paper, Eq. 4 and Fig. 9)."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vitreous.layers.attention import CrossAttention


class ClassTokenPooling(nn.Module):
    """y = z_L^0: the class token (Eq. 4)."""

    def forward(self, z: Float[Tensor, "B T D"]) -> Float[Tensor, "B D"]:
        return z[:, 0]


class MeanPooling(nn.Module):
    """The mean of the tokens behind the first `skip`: patches only, or everything for skip = 0."""

    def __init__(self, skip: int) -> None:
        super().__init__()
        self.skip = skip

    def forward(self, z: Float[Tensor, "B T D"]) -> Float[Tensor, "B D"]:
        return z[:, self.skip :].mean(dim=1)


class ClassAndMeanPooling(nn.Module):
    """The class token and the mean of the patches, concatenated: DINOv2's linear head sees 2D channels."""

    def __init__(self, skip: int) -> None:
        super().__init__()
        self.skip = skip

    def forward(self, z: Float[Tensor, "B T D"]) -> Float[Tensor, "B two_D"]:
        return torch.cat([z[:, 0], z[:, self.skip :].mean(dim=1)], dim=-1)


class DistilledPooling(nn.Module):
    """The class token and the distillation token side by side (DeiT, arXiv 2012.12877, section 4)."""

    def forward(self, z: Float[Tensor, "B T D"]) -> Float[Tensor, "B 2 D"]:
        return z[:, :2]


class AttentionPooling(nn.Module):
    """Multi-head attention pooling (MAP): a learned probe asks all tokens, then a residual MLP
    (Set Transformer, arXiv 1810.00825; big_vision, SigLIP)."""

    def __init__(self, width: int, *, heads: int, mlp: nn.Module, norm: nn.Module, skip: int) -> None:
        super().__init__()
        self.skip = skip
        self.probe = nn.Parameter(torch.zeros(1, 1, width))
        self.attention = CrossAttention(width, context_width=width, heads=heads, head_dim=width // heads)
        self.norm = norm
        self.mlp = mlp

    def forward(self, z: Float[Tensor, "B T D"]) -> Float[Tensor, "B D"]:
        pooled = self.attention(self.probe.expand(z.shape[0], -1, -1), z[:, self.skip :])
        return (pooled + self.mlp(self.norm(pooled)))[:, 0]
