"""Relevance maps: which patches contributed to a class, by gradient-weighted attention (Chefer et al., ICCV
2021, arXiv 2103.15679).

    A'_l = mean over heads of (dy_c/dA_l * A_l)+          R = (I + A'_L) ... (I + A'_1)          (Eq. 5, 6)

An attention pooling is one more attention with a single query, its probe: A'_pool R, with one row.

Only the rows of R that the head reads are needed, so they are carried through the layers from the last to the
first, together with the gradient: one map is in memory at a time, and the model's attention stays fused. The
gradient of a map is dy/dA = (dy/d(A v)) v^T.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import singledispatch
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor
from torch._ops import OpOverload
from torch.utils._python_dispatch import _disable_current_modes

from vitreous.errors import InputError
from vitreous.inspection.capture import SLOPES, DispatchMode, operands_of
from vitreous.inspection.measures import attention_pooling, layer_tokens, readout_weights, to_grid
from vitreous.models.model import modes_restored
from vitreous.models.vit import ViT


class Relevance(NamedTuple):
    """What contributed to a class.

    Attributes:
        patches: the relevance of each patch; not negative.
        heads: how much the class's logit would change, to first order, without each head: |<a, dy/da>| of
            the head's output a (Michel et al., arXiv 1905.10650, Eq. 2), for each image.
    """

    patches: Float[Tensor, "B rows columns"]
    heads: Float[Tensor, "B L K"]
    gradient: Float[Tensor, "B rows columns"]


def relevance(
    model: ViT, images: Float[Tensor, "B C H W"], classes: Int[Tensor, "B"] | None = None
) -> Relevance:
    """Return the relevance for `classes`, by default for each image's prediction. Raises InputError: the
    model has no head, so no class can be explained; or its gradient does not pass through all attention."""
    if model.config.num_classes is None:
        raise InputError("the model has no classes: relevance maps explain the logit of a class")
    start = readout_weights(model.config).to(images).float()
    with modes_restored(model):
        backward = go_back(model.eval(), images, classes, start)
    if backward.shapes:
        kind = type(getattr(model, "module", model)).__name__
        raise InputError(f"the gradient of {kind} does not pass through the attention of all layers")
    assert backward.gradient is not None
    pooled = model.config.pooling.kind.startswith("attention")
    return Relevance(
        to_grid(backward.row - (0 if pooled else start), model.config),
        torch.stack(backward.heads[::-1][: model.config.depth], dim=1),
        to_grid(backward.gradient, model.config),
    )


def relevances(model: ViT, images: Float[Tensor, "B C H W"], number: int | None) -> Relevance:
    """Return the relevance for class `number`, or for each image's prediction, one image at a time: a
    backward pass holds the activations of every layer."""
    device = next(model.parameters()).device
    wanted = None if number is None else torch.tensor([number])
    parts = [relevance(model, image.to(device), wanted) for image in torch.split(images, 1)]
    return Relevance(*(torch.cat(part).cpu() for part in zip(*parts, strict=True)))


@singledispatch
def go_back(
    model: ViT, images: Float[Tensor, "B C H W"], classes: Int[Tensor, "B"] | None, start: Float[Tensor, "T"]
) -> Backward:
    """Return what the backward pass from the logits of `classes` shows, if the head reads the rows `start`.

    Each layer is computed again for its gradient: the activations of all would be gigabytes.
    """
    with torch.no_grad():
        *inputs, last = layer_tokens(model, images)
    maps = (model.config.heads, last.shape[1], last.shape[1])
    shapes: list[tuple[int, ...]] = [maps] * model.config.depth
    if pool := attention_pooling(model):
        shapes.append((pool.attention.heads, 1, last.shape[1] - pool.skip))
    last.requires_grad_()
    with torch.enable_grad():
        score = class_score(model.head(model.representation(model.pool(model.norm(last)))), classes)
    backward = Backward(shapes, start.expand(len(images), -1))
    with backward:
        (slope,) = torch.autograd.grad(score, last)
    for block, z in zip(reversed(model.blocks), reversed(inputs), strict=True):
        z.requires_grad_()
        with torch.enable_grad():
            # The slope is a number, since PyTorch imports sympy first for a tensor.
            score = (block(z) * slope).sum()
        # With respect to z alone, so that the gradients of parameters are untouched.
        with backward:
            (slope,) = torch.autograd.grad(score, z)
    return backward


def class_score(logits: Float[Tensor, "B classes"], classes: Int[Tensor, "B"] | None) -> Float[Tensor, ""]:
    """Return the sum of each image's logit of its class, by default of its prediction."""
    target = logits.argmax(dim=-1) if classes is None else classes.to(logits.device)
    return logits.gather(1, target[:, None]).sum()


class Backward(DispatchMode):
    """Sees the backward pass of every attention of any module, from the last layer to the first, and carries
    the rows that the head reads through them.

    Attributes:
        shapes: (K, T, S) of the maps of the attention that the backward pass has not reached.
        row: what the head reads, through the layers so far.
        gradient: the attention gradient.
        heads: the importance of the heads, from the last layer to the first.
    """

    def __init__(self, shapes: Sequence[tuple[int, ...]], row: Float[Tensor, "B T"]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.row = row
        self.gradient: Tensor | None = None
        self.shapes = [(len(row), *shape) for shape in shapes]
        self.heads: list[Tensor] = []

    def __torch_dispatch__(
        self,
        func: OpOverload,
        types: Sequence[type],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        slopes = SLOPES.get(func._schema.name)
        if slopes is not None and self.shapes:
            with torch.no_grad(), _disable_current_modes():
                weights, gradient = slopes(operands_of(func, args, kwargs or {}))
                shape = self.shapes[-1]
                if weights.shape[-2:] == shape[-2:] and weights.numel() == math.prod(shape):
                    self.shapes.pop()
                    self.through((weights * gradient).float().reshape(shape))
        return func(*args, **(kwargs or {}))

    def through(self, products: Float[Tensor, "B K T S"]) -> None:
        """Carry the rows through an attention: A times dy/dA of every head."""
        evidence = products.clamp_min(0).mean(dim=1)
        self.heads.append(products.sum(dim=(2, 3)).abs())
        if evidence.shape[-1] != evidence.shape[-2]:  # a pooling, which may skip the first tokens
            pooled = F.pad(evidence[:, 0], (self.row.shape[1] - evidence.shape[-1], 0))
            self.row = self.gradient = pooled
            return
        added = torch.einsum("bt,bts->bs", self.row, evidence)
        self.gradient = added if self.gradient is None else self.gradient
        self.row = self.row + added
