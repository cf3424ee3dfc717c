"""The decoders of Segmenter (Strudel et al., arXiv 2105.05633): from patch tokens to a map of each class."""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from vitreous.layers.initialization import GoogleInit


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
