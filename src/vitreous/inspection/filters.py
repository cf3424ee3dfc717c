"""What the first layer looks for: principal components of its filters (paper, Fig. 7 left)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from vitreous.layers.resnet import ResNet
from vitreous.layers.resnet_v2 import PreActivationResNet
from vitreous.layers.stems import ConvolutionStem, LinearPatchStem, PatchStem
from vitreous.models.names import Model


class Components(NamedTuple):
    """Directions in the space of small images, most important first.

    Attributes:
        filters: one small image each, of unit norm.
        explained: the share of the filters' variance along each.
    """

    filters: Float[Tensor, "n C P Q"]
    explained: Float[Tensor, "n"]


def first_filters(model: Model) -> Float[Tensor, "D C P Q"]:
    """The kernels that meet the pixels first: the patch projection E, or a stem's first convolution."""
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
            case ResNet() | PreActivationResNet():
                return module.root.standardized().detach().float()
    raise TypeError(f"{type(model).__name__} has no known first layer")


def principal_filters(weight: Float[Tensor, "D C P Q"], count: int = 28) -> Components:
    """The first `count` principal components of the D filters; fewer, where there are not so many.

    The sign of a component means nothing; the largest value is made positive, so that two runs agree.
    """
    flat = weight.flatten(1)
    centered = flat - flat.mean(dim=0)
    _, singular, directions = torch.linalg.svd(centered, full_matrices=False)
    peak = directions.gather(1, directions.abs().argmax(dim=1, keepdim=True))
    filters = (directions * peak.sign()).reshape(-1, *weight.shape[1:])
    variance = singular.square()
    return Components(filters[:count], (variance / variance.sum().clamp_min(1e-12))[:count])
