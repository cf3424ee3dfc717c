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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import singledispatch
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.utils._python_dispatch import _disable_current_modes

from vitreous.errors import InputError
from vitreous.inspection.capture import SLOPES, DispatchMode, attention_layers, operands_of
from vitreous.inspection.measures import (
    attention_pooling,
    layer_tokens,
    pooling_maps,
    readout_weights,
    to_grid,
)
from vitreous.layers.attention import Attention
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


@singledispatch
def relevance(
    model: ViT, images: Float[Tensor, "B C H W"], classes: Int[Tensor, "B"] | None = None
) -> Relevance:
    """Return the relevance for `classes`, by default for each image's prediction. Raises InputError: the
    model has no head, so no class can be explained."""
    if model.config.num_classes is None:
        raise InputError("the model has no classes: relevance maps explain the logit of a class")
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            *inputs, last = layer_tokens(model, images)
        row, start, slope = readout_relevance(model, last, classes)
        heads: list[Tensor] = []
        gradient = row if attention_pooling(model) else None
        # Each layer is computed again for its gradient: the activations of all would be gigabytes.
        for block, z in zip(reversed(model.blocks), reversed(inputs), strict=True):
            evidence, importance, slope = layer_relevance(block, z, slope)
            added = torch.einsum("bt,bts->bs", row, evidence)
            row, gradient = row + added, added if gradient is None else gradient
            heads.append(importance)
    finally:
        model.train(was_training)
    assert gradient is not None
    return Relevance(
        to_grid(row - start, model.config), torch.stack(heads[::-1], dim=1), to_grid(gradient, model.config)
    )


def readout_relevance(
    model: ViT, z: Float[Tensor, "B T D"], classes: Int[Tensor, "B"] | None
) -> tuple[Float[Tensor, "B T"], Float[Tensor, "T"], Float[Tensor, "B T D"]]:
    """Return the row of each image that the head reads: A'_pool of an attention pooling, else the weights of
    the tokens; what a row has without any layer; and dy/dz of the tokens of the last layer."""
    pool = attention_pooling(model)
    watched = () if pool is None else (pool, pool.attention.out)
    z.requires_grad_()
    with torch.enable_grad(), recorded_inputs(*watched) as seen:
        logits = model.head(model.representation(model.pool(model.norm(z))))
        target = logits.argmax(dim=-1) if classes is None else classes.to(logits.device)
        score = logits.gather(1, target[:, None]).sum()
    start = readout_weights(model.config).to(z)
    if pool is None:
        return start.repeat(z.shape[0], 1), start, torch.autograd.grad(score, z)[0]
    slope, gradient = torch.autograd.grad(score, (z, seen[pool.attention.out]))
    tokens = seen[pool].detach()
    with torch.no_grad():
        value = pool.attention.project_context(tokens[:, pool.skip :])[1]
        gradient = rearrange(gradient, "B 1 (K E) -> B K 1 E", K=pool.attention.heads)
        slopes = F.pad((gradient @ value.transpose(-2, -1))[:, :, 0], (pool.skip, 0))
        row = (slopes * pooling_maps(pool, tokens)).clamp_min(0).mean(dim=1)
    return row, torch.zeros_like(start), slope


def layer_relevance(
    block: nn.Module, z: Float[Tensor, "B T D"], slope: Float[Tensor, "B T D"]
) -> tuple[Float[Tensor, "B T T"], Float[Tensor, "B K"], Float[Tensor, "B T D"]]:
    """Return A' of a layer, the importance of its heads, and dy/dz of its input, from that of its output."""
    (attention,) = attention_layers(block, Attention)
    z.requires_grad_()
    with torch.enable_grad(), recorded_inputs(attention, attention.out) as seen:
        output = block(z)
    # With respect to these alone, so that the gradients of parameters are untouched.
    slope, gradient = torch.autograd.grad(output, (z, seen[attention.out]), slope)
    with torch.no_grad():
        entering = seen[attention]
        weights, value = attention.attention_weights(entering), attention.project(entering)[2]
        gradient, context = (
            rearrange(each, "B T (K E) -> B K T E", K=attention.heads)
            for each in (gradient, seen[attention.out])
        )
        evidence = (gradient @ value.transpose(-2, -1) * weights).clamp_min(0).mean(dim=1)
        return evidence, (gradient * context).sum(dim=(2, 3)).abs(), slope


class Backward(DispatchMode):
    """Sees the backward pass of every attention of any module, from the last layer to the first, and carries
    the rows that the head reads through them.

    Attributes:
        shapes: of the maps of the attention that the backward pass has not reached.
        row: what the head reads, through the layers so far.
        gradient: the attention gradient.
        heads: the importance of the heads, from the last layer to the first.
    """

    def __init__(self, shapes: Sequence[tuple[int, ...]], row: Float[Tensor, "B T"]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.row = row
        self.gradient: Tensor | None = None
        self.shapes = [(len(row), *shape[1:]) for shape in shapes]
        self.heads: list[Tensor] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
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


@contextmanager
def recorded_inputs(*modules: nn.Module) -> Iterator[dict[nn.Module, Tensor]]:
    """Record the first argument that each of these modules is called with."""
    seen: dict[nn.Module, Tensor] = {}

    def record(module: nn.Module, args: tuple[Any, ...]) -> None:
        seen[module] = args[0]

    hooks = [module.register_forward_pre_hook(record) for module in modules]
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()
