"""Mean attention distance: how far a head looks, in pixels (paper, Fig. 7 right and Fig. 11)."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor


def attention_distance(
    maps: Float[Tensor, "*B K T T"], *, grid: tuple[int, int], patch: tuple[int, int]
) -> Float[Tensor, "*B K"]:
    """The distance between a query patch and what it attends to, averaged over queries.

    Distances join the centers of patches and count as the query's attention does; prefix tokens have no
    place, so they are left out and each row is scaled to sum to one again. A convolution's receptive field is
    the quantity to compare with.

    Args:
        grid: (rows, columns) of patches; the last `rows * columns` tokens are they.
        patch: (height, width) of a patch in pixels.
    """
    prefix = maps.shape[-1] - grid[0] * grid[1]
    between = maps[..., prefix:, prefix:]
    # A row whose attention is all on prefix tokens attends to no place: it counts as zero.
    between = between / between.sum(dim=-1, keepdim=True).clamp_min(1e-12)
    return (between * patch_distances(grid, patch).to(maps)).sum(dim=-1).mean(dim=-1)


def patch_distances(grid: tuple[int, int], patch: tuple[int, int]) -> Float[Tensor, "N N"]:
    """Pixels from the center of each patch to that of each other."""
    rows, columns = torch.meshgrid(torch.arange(grid[0]), torch.arange(grid[1]), indexing="ij")
    centers = torch.stack([rows.flatten() * float(patch[0]), columns.flatten() * float(patch[1])], dim=-1)
    return torch.cdist(centers, centers, compute_mode="donot_use_mm_for_euclid_dist")
