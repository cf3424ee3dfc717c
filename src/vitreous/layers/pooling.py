"""From the tokens of the last layer to the input of the head (paper, Eq. 4 and Fig. 9), and the head that is
more than one `nn.Linear`: DeiT's pair."""

from __future__ import annotations

from collections import OrderedDict

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vitreous.layers.attention import CrossAttention
from vitreous.layers.initialization import GoogleInit


class ClassTokenPooling(nn.Module):
    """y = z_L^0: the class token (Eq. 4)."""

    described_as = ("class token", "y, Eq. 4")

    def forward(self, z: Float[Tensor, "B T D"]) -> Float[Tensor, "B D"]:
        return z[:, 0]


class MeanPooling(nn.Module):
    """The mean of the tokens after the first `skip`: patches only, or all tokens for None."""

    def __init__(self, skip: int | None) -> None:
        super().__init__()
        self.skip = skip

    @property
    def described_as(self) -> tuple[str, str]:
        return f"mean of the {'tokens' if self.skip is None else 'patches'}", "y, Eq. 4"

    def forward(self, z: Float[Tensor, "B T D"]) -> Float[Tensor, "B D"]:
        return z[:, self.skip :].mean(dim=1)


class MaxPooling(nn.Module):
    """The maximum of each channel over the tokens after the first `skip`; with `mean` its average with their
    mean."""

    def __init__(self, skip: int, *, mean: bool) -> None:
        super().__init__()
        self.skip, self.mean = skip, mean

    @property
    def described_as(self) -> tuple[str, str]:
        return f"{'mean and ' if self.mean else ''}maximum of the patches", "y, Eq. 4"

    def forward(self, z: Float[Tensor, "B T D"]) -> Float[Tensor, "B D"]:
        patches = z[:, self.skip :]
        highest = patches.amax(dim=1)
        return (highest + patches.mean(dim=1)) / 2 if self.mean else highest


class ClassAndMeanPooling(nn.Module):
    """The class token and the mean of the patches, concatenated: DINOv2's linear head sees 2D channels."""

    described_as = ("class token and mean", "y, Eq. 4")

    def __init__(self, skip: int) -> None:
        super().__init__()
        self.skip = skip

    def forward(self, z: Float[Tensor, "B T D"]) -> Float[Tensor, "B two_D"]:
        return torch.cat([z[:, 0], z[:, self.skip :].mean(dim=1)], dim=-1)


class DistilledPooling(nn.Module):
    """The class token and the distillation token side by side (DeiT, arXiv 2012.12877, section 4)."""

    described_as = ("class, distillation token", "y, Eq. 4")

    def forward(self, z: Float[Tensor, "B T D"]) -> Float[Tensor, "B 2 D"]:
        return z[:, :2]


class AttentionPooling(nn.Module):
    """Multi-head attention pooling (MAP): a learned query attends to the tokens, then a residual MLP
    (Set Transformer, arXiv 1810.00825; big_vision, SigLIP)."""

    described_as = ("attention pooling", "y, Eq. 4")

    def __init__(
        self, width: int, *, heads: int, mlp: nn.Module, norm: nn.Module, skip: int, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.skip = skip
        self.probe = nn.Parameter(torch.zeros(1, 1, width))
        self.attention = CrossAttention(
            width, context_width=width, heads=heads, head_dim=width // heads, dropout=dropout
        )
        self.norm = norm
        self.mlp = mlp

    def reset(self, init: GoogleInit) -> None:
        init.probe(self.probe)

    def forward(self, z: Float[Tensor, "B T D"]) -> Float[Tensor, "B D"]:
        pooled = self.attention(self.probe.expand(z.shape[0], -1, -1), z[:, self.skip :])
        return (pooled + self.mlp(self.norm(pooled)))[:, 0]


class Representation(nn.Sequential):
    """The hidden tanh layer of the pre-training head (section 3.1)."""

    linear: nn.Linear

    def __init__(self, width: int, size: int) -> None:
        super().__init__(OrderedDict(linear=nn.Linear(width, size), tanh=nn.Tanh()))

    def reset(self, init: GoogleInit) -> None:
        init.representation(self.linear)


class DistilledHead(nn.Module):
    """One classifier for the class token, one for the distillation token, averaged at test time
    (DeiT, arXiv 2012.12877, section 4)."""

    def __init__(self, width: int, num_classes: int) -> None:
        super().__init__()
        self.classes = nn.Linear(width, num_classes)
        self.distillation = nn.Linear(width, num_classes)

    def both(
        self, y: Float[Tensor, "B 2 D"]
    ) -> tuple[Float[Tensor, "B classes"], Float[Tensor, "B classes"]]:
        """Return the logits of each token alone: one meets the labels in training, the other the teacher."""
        return self.classes(y[:, 0]), self.distillation(y[:, 1])

    def forward(self, y: Float[Tensor, "B 2 D"]) -> Float[Tensor, "B classes"]:
        classes, distillation = self.both(y)
        return (classes + distillation) / 2
