"""The patch tokens themselves: as colors, and those that stand out by their norm."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def feature_colors(patches: Float[Tensor, "B N D"]) -> Float[Tensor, "B N 3"]:
    """The first three principal components of all images' patches as red, green, blue in 0 ... 1.

    Patches of one color have like features, in all of the images (as in DINOv2, arXiv 2304.07193, Fig. 1).
    Each component is stretched from its 1st to its 99th percentile.
    """
    flat = patches.flatten(0, 1)
    centered = flat - flat.mean(dim=0)
    _, vectors = torch.linalg.eigh(centered.T @ centered)  # ascending; D x D is small, B N need not be
    principal = vectors[:, -3:].flip(1)
    signs = principal.gather(0, principal.abs().argmax(dim=0, keepdim=True)).sign()
    projected = centered @ (principal * signs)
    projected = torch.nn.functional.pad(projected, (0, 3 - projected.shape[1]))
    low, high = torch.quantile(projected, torch.tensor([0.01, 0.99]).to(projected), dim=0)
    return ((projected - low) / (high - low).clamp_min(1e-12)).clamp(0, 1).view(*patches.shape[:2], 3)


def standing_out(norms: Float[Tensor, "*shape"]) -> Bool[Tensor, "*shape"]:
    """Tokens of unusually high norm: artifacts in large models that were trained long, where a background
    patch is used as scratch space (arXiv 2309.16588, section 2).

    That paper cuts at a fixed norm between the two humps of the distribution; here the cut is where a token
    is both twice the median and eight median absolute deviations above it, so that it suits any model.
    """
    median = norms.median()
    deviation = (norms - median).abs().median()
    return (norms > 2 * median) & (norms > median + 8 * deviation)
