"""What the weights alone show: first-layer filters and position-embedding similarity (paper, Fig. 7)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from vitreous.errors import InputError
from vitreous.layers.positions import AddedPositions
from vitreous.layers.resnet import ResNet
from vitreous.layers.stems import ConvolutionStem, LinearPatchStem, PatchStem
from vitreous.models.names import Model
from vitreous.models.vit import ViT


def first_filters(model: Model) -> Float[Tensor, "D C P Q"]:
    """Return the kernels of the first layer: the patch projection E, or a stem's first convolution."""
    for module in model.modules():
        match module:
            case PatchStem():
                return module.projection.weight.detach().float()
            case LinearPatchStem():
                return rearrange(
                    module.projection.weight.detach().float(),
                    "D (p q C) -> D C p q",
                    p=module.patch[0],
                    q=module.patch[1],
                )
            case ConvolutionStem():
                return next(module.convolutions.parameters()).detach().float()
            case ResNet():
                return module.root.standardized().detach().float()
    raise TypeError(f"{type(model).__name__} has no known first layer")


def principal_filters(
    weight: Float[Tensor, "D C P Q"], count: int = 28
) -> tuple[Float[Tensor, "n C P Q"], Float[Tensor, "n"]]:
    """Return the first `count` principal components of the D filters, or as many as there are, as small
    images of unit norm; and the share of the filters' variance along each.

    The sign of a component is arbitrary; the largest value is made positive, so that results are
    reproducible.
    """
    flat = weight.flatten(1)
    centered = flat - flat.mean(dim=0)
    _, singular, directions = torch.linalg.svd(centered, full_matrices=False)
    peak = directions.gather(1, directions.abs().argmax(dim=1, keepdim=True))
    filters = (directions * peak.sign()).reshape(-1, *weight.shape[1:])
    variance = singular.square()
    return filters[:count], (variance / variance.sum().clamp_min(1e-12))[:count]


def position_rows(model: Model) -> Float[Tensor, "N D"]:
    """Return the position embedding of each patch; of the first layer, where every layer has its own.

    Raises:
        InputError: positions are not added to the tokens, or there are none.
    """
    if not isinstance(model, ViT):
        raise InputError("a convolutional network has no position embeddings")
    for module in (model.position, getattr(model.blocks[0], "position", None)):
        if isinstance(module, AddedPositions):
            return module.rows()[module.extra :].detach().float()
    kind = model.config.position.kind
    if kind == "none":
        raise InputError("the model has no position embeddings")
    raise InputError(f"{kind} positions act inside the attention: there are no position embeddings")


def position_similarity(
    rows: Float[Tensor, "N D"], grid: tuple[int, int]
) -> Float[Tensor, "rows columns rows columns"]:
    """Return at [i, j, k, l] the cosine similarity of the embeddings of the patches at (i, j) and (k, l)."""
    unit = F.normalize(rows, dim=-1)
    return (unit @ unit.T).reshape(*grid, *grid)
