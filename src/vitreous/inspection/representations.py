"""Tokens after every layer: logit lens, principal components, norms, and layer similarity (CKA).

Logit lens: nostalgebraist, "interpreting GPT: the logit lens" (2020), applied to images. CKA: Kornblith et
al., arXiv 1905.00414, with the unbiased estimate of Song et al. (2012) averaged over minibatches as in Nguyen
et al., arXiv 2010.15327, Eq. 3 to 5, so that a few images do not make all layers look similar.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import singledispatch

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from vitreous.errors import InputError
from vitreous.models.vit import ViT


@singledispatch
def layer_tokens(model: ViT, images: Float[Tensor, "B C H W"]) -> Iterator[Float[Tensor, "B T D"]]:
    """Yield z_0, z_1 ... z_L of Eq. 1 to 3."""
    z = model.embed(images)
    yield z
    for block in model.blocks:
        z = block(z)
        yield z


@singledispatch
def logit_lens(model: ViT, z: Float[Tensor, "B T D"]) -> Float[Tensor, "B classes"]:
    """Return the class probabilities if the encoder ended with these tokens: same norm, pooling and head."""
    return model.head(model.representation(model.pool(model.norm(z)))).softmax(dim=-1)


def feature_colors(patches: Float[Tensor, "B N D"]) -> Float[Tensor, "B N 3"]:
    """Return the first three principal components of all images' patches as red, green, blue in 0 ... 1.

    Patches of one color have similar features, in all of the images (as in DINOv2, arXiv 2304.07193, Fig. 1).
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


def unusual_norms(norms: Float[Tensor, "*shape"]) -> Bool[Tensor, "*shape"]:
    """Find tokens of unusually high norm: artifacts in large models that were trained long, where a
    background patch is used as scratch space (arXiv 2309.16588, section 2).

    That paper uses a fixed threshold between the two modes of the distribution; here a token is unusual if it
    is above twice the median and more than eight median absolute deviations above it, which suits any model.
    """
    median = norms.median()
    deviation = (norms - median).abs().median()
    return (norms > 2 * median) & (norms > median + 8 * deviation)


FEWEST = 4  # the estimate divides by n - 3
ROUNDING = 1e-6  # of float32 features


def hsic(first: Float[Tensor, "a n n"], second: Float[Tensor, "b n n"]) -> Float[Tensor, "a b"]:
    """Return the unbiased Hilbert-Schmidt independence criterion of all pairs of Gram matrices (2010.15327,
    Eq. 3)."""
    n = first.shape[1]
    if n < FEWEST:
        raise InputError(f"layer similarity (CKA) needs at least {FEWEST} images, not {n}")
    off_diagonal = 1 - torch.eye(n, dtype=first.dtype)
    first, second = first * off_diagonal, second * off_diagonal
    crossed = first.flatten(1) @ second.flatten(1).T
    means = first.sum((1, 2))[:, None] * second.sum((1, 2)) / ((n - 1) * (n - 2))
    rows = 2 * (first.sum(1) @ second.sum(1).T) / (n - 2)
    return (crossed + means - rows) / (n * (n - 3))


def cka_matrix(
    first: Sequence[Float[Tensor, "n _"]], second: Sequence[Float[Tensor, "n _"]], *, batch: int = 256
) -> Float[Tensor, "layers1 layers2"]:
    """Return the CKA of every layer of `first` with every layer of `second`, for the same n images; NaN for
    a layer that is the same for all images, such as the class token before the first layer.

    Args:
        batch: images in one Gram matrix; the criterion is averaged over batches before the division.
    """
    n = first[0].shape[0]
    cross = torch.zeros(len(first), len(second), dtype=torch.float64)
    own_first, own_second = cross[:, 0].clone(), cross[0].clone()
    for start in range(0, max(n - n % batch, 1), batch):  # a last small batch would be a noisy estimate
        grams, others = (
            torch.stack([gram(layer[start : start + batch]) for layer in layers])
            for layers in (first, second)
        )
        own_first += hsic(grams, grams).diagonal()
        own_second += hsic(others, others).diagonal()
        cross += hsic(grams, others)
    scale = (own_first[:, None] * own_second).sqrt()
    varies = (own_first > 0)[:, None] & (own_second > 0)
    return torch.where(varies, cross / scale, torch.nan).float()


def gram(features: Float[Tensor, "n d"]) -> Float[Tensor, "n n"]:
    """Return the inner products of all pairs of images, in double precision and centered, since the sums of
    `hsic` cancel; zero where all images are equal up to rounding."""
    features = features.double()
    centered = features - features.mean(dim=0)
    if centered.norm() <= ROUNDING * features.norm():
        centered = torch.zeros_like(centered)
    return centered @ centered.T
