"""Centered kernel alignment: how alike two representations of the same images are, whatever their width.

Kornblith et al., arXiv 1905.00414, with the unbiased estimate of Song et al. (2012) averaged over minibatches
as in Nguyen et al., arXiv 2010.15327, Eq. 3 to 5, so that few images do not make everything look alike.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from vitreous.errors import InputError

FEWEST = 4  # the estimate divides by n - 3
ROUNDING = 1e-6  # of float32 features


def hsic(first: Float[Tensor, "n n"], second: Float[Tensor, "n n"]) -> Float[Tensor, ""]:
    """The unbiased Hilbert-Schmidt independence criterion of two Gram matrices (2010.15327, Eq. 3)."""
    n = first.shape[0]
    if n < FEWEST:
        raise InputError(f"alignment of representations needs at least {FEWEST} images, not {n}")
    first, second = first.clone().fill_diagonal_(0), second.clone().fill_diagonal_(0)
    crossed = (first * second).sum()
    means = first.sum() * second.sum() / ((n - 1) * (n - 2))
    rows = 2 * (first.sum(0) @ second.sum(0)) / (n - 2)
    return (crossed + means - rows) / (n * (n - 3))


def linear_cka(first: Float[Tensor, "n d1"], second: Float[Tensor, "n d2"]) -> float:
    """1 for representations that are equal up to rotation and scale, about 0 for independent ones."""
    return float(cka_matrix([first], [second])[0, 0])


def cka_matrix(
    first: Sequence[Float[Tensor, "n _"]], second: Sequence[Float[Tensor, "n _"]], *, batch: int = 256
) -> Float[Tensor, "layers1 layers2"]:
    """Alignment between every layer of `first` and every layer of `second`, for the same n images; NaN for
    a layer that says the same of all images, such as the class token before the first.

    Args:
        batch: images in one Gram matrix; the criterion is averaged over batches before the division.
    """
    n = first[0].shape[0]
    starts = range(0, max(n - n % batch, 1), batch)  # a last small batch would be a noisy estimate
    cross = torch.zeros(len(first), len(second), dtype=torch.float64)
    own_first, own_second = cross[:, 0].clone(), cross[0].clone()
    for start in starts:
        grams_first = [gram(each[start : start + batch]) for each in first]
        grams_second = [gram(each[start : start + batch]) for each in second]
        own_first += torch.stack([hsic(each, each) for each in grams_first])
        own_second += torch.stack([hsic(each, each) for each in grams_second])
        cross += torch.stack([torch.stack([hsic(a, b) for b in grams_second]) for a in grams_first])
    scale = (own_first[:, None] * own_second).sqrt()
    varies = (own_first > 0)[:, None] & (own_second > 0)
    return torch.where(varies, cross / scale, torch.nan).float()


def gram(features: Float[Tensor, "n d"]) -> Float[Tensor, "n n"]:
    """Inner products of all pairs of images, in double precision and about their mean, since the sums of
    `hsic` cancel; zero where all images are alike but for rounding."""
    features = features.double()
    centered = features - features.mean(dim=0)
    if centered.norm() <= ROUNDING * features.norm():
        centered = torch.zeros_like(centered)
    return centered @ centered.T
