"""From the tokens of the last layer to the input of the head (paper, Eq. 4 and Fig. 9), and the heads that
are more than one `nn.Linear`: DeiT's pair, and the decoders of Segmenter (Strudel et al., arXiv
2105.05633)."""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.nn.functional as F
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


class DistilledHead(nn.Module):
    """One classifier for the class token, one for the distillation token, averaged at test time
    (DeiT, arXiv 2012.12877, section 4)."""

    def __init__(self, width: int, num_classes: int, *, bias: bool = True) -> None:
        super().__init__()
        self.classes = nn.Linear(width, num_classes, bias=bias)
        self.distillation = nn.Linear(width, num_classes, bias=bias)

    def both(
        self, y: Float[Tensor, "B 2 D"]
    ) -> tuple[Float[Tensor, "B classes"], Float[Tensor, "B classes"]]:
        """The logits of each token alone: one meets the labels in training, the other the teacher."""
        return self.classes(y[:, 0]), self.distillation(y[:, 1])

    def forward(self, y: Float[Tensor, "B 2 D"]) -> Float[Tensor, "B classes"]:
        classes, distillation = self.both(y)
        return (classes + distillation) / 2


class LinearMasks(nn.Module):
    """One linear layer on every patch token ("Linear", section 3.2).

    Args:
        width: D.
        num_classes: maps that come out.
        grid: (rows, columns) of patches.
        cells: each patch gives cells x cells logits of each class; one in the paper.
    """

    described_as = ("linear layer", "2105.05633, 3.2")

    def __init__(self, width: int, num_classes: int, *, grid: tuple[int, int], cells: int) -> None:
        super().__init__()
        self.grid, self.cells = grid, cells
        self.linear = nn.Linear(width, num_classes * cells**2)

    def forward(self, patches: Float[Tensor, "B N D"]) -> Float[Tensor, "B classes h w"]:
        return to_maps(self.linear(patches), self.grid, self.cells)


class MaskTransformer(nn.Module):
    """Class embeddings go through a few layers together with the patches, and each class's map is the scalar
    product of its embedding with every patch, both of length one ("Mask Transformer", section 3.2).

        z'_M, c = Layers([cls; z_L W])          Masks = LN(norm(z'_M) norm(c)^T)

    The maps between the layers and the product, and the LayerNorm over the classes, are in the authors' code.

    Args:
        width: D.
        num_classes: K in the paper.
        grid: (rows, columns) of patches.
        cells: each patch gives cells x cells logits of each class; one in the paper.
        blocks: the M layers.
        norm: after them.
    """

    def __init__(
        self,
        width: int,
        num_classes: int,
        *,
        grid: tuple[int, int],
        cells: int,
        blocks: Iterable[nn.Module],
        norm: nn.Module,
    ) -> None:
        super().__init__()
        self.grid, self.cells = grid, cells
        self.classes = nn.Parameter(torch.empty(num_classes, width))
        self.project = nn.Linear(width, width)
        self.blocks = nn.ModuleList(blocks)
        self.norm = norm
        self.patch_map = nn.Linear(width, width * cells**2, bias=False)
        self.class_map = nn.Linear(width, width, bias=False)
        self.mask_norm = nn.LayerNorm(num_classes)

    @property
    def described_as(self) -> tuple[str, str]:
        depth = len(self.blocks)
        return f"mask Transformer, {depth} layer{'s' if depth > 1 else ''}", "2105.05633, 3.2"

    def reset(self, init: GoogleInit) -> None:
        init.draw(self.classes, nn.init.trunc_normal_, std=0.02)

    def forward(self, patches: Float[Tensor, "B N D"]) -> Float[Tensor, "B classes h w"]:
        count = len(self.classes)
        z = torch.cat([self.classes.expand(patches.shape[0], -1, -1), self.project(patches)], dim=1)
        for block in self.blocks:
            z = block(z)
        z = self.norm(z)
        classes = F.normalize(self.class_map(z[:, :count]), dim=-1)
        cells = self.patch_map(z[:, count:]).unflatten(-1, (self.cells**2, -1))
        masks = F.normalize(cells, dim=-1) @ classes.transpose(1, 2)[:, None]
        return to_maps(self.mask_norm(masks).flatten(2), self.grid, self.cells)


def to_maps(
    logits: Float[Tensor, "B N channels"], grid: tuple[int, int], cells: int
) -> Float[Tensor, "B classes h w"]:
    """Arrange the cells of each patch, and the patches, as maps."""
    maps = logits.reshape(logits.shape[0], *grid, cells, cells, -1)
    return maps.permute(0, 5, 1, 3, 2, 4).flatten(4).flatten(2, 3)
