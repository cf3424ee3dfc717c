"""Measures of attention maps: readout (the tokens that the head reads), rollout, distance, entropy.

Rollout: Abnar & Zuidema, arXiv 2005.00928; the paper's Fig. 6 and 14 are made with it (appendix D.8). Mean
attention distance: the paper's Fig. 7 right and Fig. 11.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import singledispatch

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from vitreous.languages import phrase
from vitreous.layers.pooling import AttentionPooling
from vitreous.models.config import ViTConfig
from vitreous.models.vit import ViT


def readout_weights(config: ViTConfig) -> Float[Tensor, "T"]:
    """Return the weight of each token of the last layer in the pooled representation; sums to one.

    The class token alone (Eq. 4), the mean of the patches, or half of each. Attention pooling weighs
    patches by their content, which depends on the image (`readout_of`); here they weigh the same.
    """
    weights = torch.zeros(config.sequence_length)
    patches = torch.zeros(config.sequence_length)
    patches[config.num_prefix_tokens :] = 1 / (config.sequence_length - config.num_prefix_tokens)
    match config.pooling:
        case "class":
            weights[0] = 1
        case "class+distillation":
            weights[:2] = 0.5
        case "class+mean":
            weights[0] = 0.5
            weights = weights + patches / 2
        case "mean-all" | "attention-all":
            weights[:] = 1 / config.sequence_length
        case "mean" | "attention":
            weights = patches
    return weights


@singledispatch
def readout_of(model: ViT, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B T"]:
    """Return the weight of each token of the last layer, image by image, on the CPU; rows sum to one.

    For attention pooling this is its attention map, mean of its heads: the last step of a rollout.
    """
    pool = attention_pooling(model)
    if pool is None:
        return readout_weights(model.config).expand(images.shape[0], -1)
    with torch.no_grad():
        return pooling_maps(pool, model.tokens(images)).mean(dim=1).float().cpu()


def attention_pooling(model: ViT) -> AttentionPooling | None:
    """Return the model's attention pooling, with or without a norm after it; None for other poolings."""
    return next((each for each in model.pool.modules() if isinstance(each, AttentionPooling)), None)


def pooling_maps(pool: AttentionPooling, z: Float[Tensor, "B T D"]) -> Float[Tensor, "B K T"]:
    """Return what the learned probe attends to in each head; 0 for the tokens that it skips."""
    probe = pool.probe.expand(z.shape[0], -1, -1)
    maps = pool.attention.attention_weights(probe, z[:, pool.skip :])[:, :, 0]
    return F.pad(maps, (pool.skip, 0))


def readout_attention(
    maps: Float[Tensor, "*B K T T"], weights: Float[Tensor, "*#B T"]
) -> Float[Tensor, "*B K T"]:
    """Return what the readout attends to: the rows of each map, averaged with `weights`."""
    return torch.einsum("...t,...kts->...ks", weights.to(maps), maps)


def to_grid(values: Float[Tensor, "*B T"], config: ViTConfig) -> Float[Tensor, "*B rows columns"]:
    """Return the patches' part of a value per token, laid out as in the image."""
    return values[..., config.num_prefix_tokens :].reshape(*values.shape[:-1], *config.grid)


def flow(maps: Float[Tensor, "B K T T"]) -> Float[Tensor, "B T T"]:
    """Return one layer of the rollout: half the heads' mean, half the residual connection, 0.5 A + 0.5 I."""
    identity = torch.eye(maps.shape[-1], dtype=maps.dtype, device=maps.device)
    return (maps.mean(dim=1) + identity) / 2


def rollout(flows: Sequence[Float[Tensor, "B T T"]]) -> Float[Tensor, "B T T"]:
    """Return how much of each input token (column) reaches each token of the last layer (row); rows sum to
    one.

    The product of all layers' flows, the last on the left (equation 1 of 2005.00928).
    """
    total = flows[0]
    for layer in flows[1:]:
        total = layer @ total
    return total


def attention_distance(
    maps: Float[Tensor, "*B K T T"], *, grid: tuple[int, int], patch: tuple[int, int]
) -> Float[Tensor, "*B K"]:
    """Return the distance in pixels between a query patch and what it attends to, averaged over queries.

    Distances are between centers of patches, weighted by the query's attention; prefix tokens have no
    position, so they are left out and each row is normalized again. Comparable to the receptive field of a
    convolution.

    Args:
        grid: (rows, columns) of patches; the last `rows * columns` tokens are they.
        patch: (height, width) of a patch in pixels.
    """
    prefix = maps.shape[-1] - grid[0] * grid[1]
    between = maps[..., prefix:, prefix:]
    # A row whose attention is all on prefix tokens attends to no patch: its distance is zero.
    between = between / between.sum(dim=-1, keepdim=True).clamp_min(1e-12)
    return (between * patch_distances(grid, patch).to(maps)).sum(dim=-1).mean(dim=-1)


def patch_distances(grid: tuple[int, int], patch: tuple[int, int]) -> Float[Tensor, "N N"]:
    """Return the pixels between the centers of each pair of patches."""
    rows, columns = torch.meshgrid(torch.arange(grid[0]), torch.arange(grid[1]), indexing="ij")
    centers = torch.stack([rows.flatten() * float(patch[0]), columns.flatten() * float(patch[1])], dim=-1)
    return torch.cdist(centers, centers, compute_mode="donot_use_mm_for_euclid_dist")


def head_entropy(maps: Float[Tensor, "*B K T T"]) -> Float[Tensor, "*B K"]:
    """Return the mean entropy of a head's rows: 0 for a single token, 1 for uniform attention."""
    return share_of_entropy(maps).mean(dim=-1)


def share_of_entropy(shares: Float[Tensor, "*B T"]) -> Float[Tensor, "*B"]:
    """Return the entropy of shares that sum to one: 0 for a single one, 1 for equal ones (log T)."""
    return torch.special.entr(shares).sum(dim=-1) / max(math.log(shares.shape[-1]), 1e-12)


def map_words(values: Float[Tensor, "rows columns"]) -> str:
    """Return the legend of a map: its range as shares of its sum, what even values would be, its entropy."""
    shares = values.flatten() / values.sum().clamp_min(1e-12)
    low, high, entropy = float(shares.min()), float(shares.max()), float(share_of_entropy(shares))
    return phrase("images.map", low=low, high=high, even=1 / len(shares), entropy=entropy)
