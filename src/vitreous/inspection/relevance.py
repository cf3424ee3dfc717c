"""Relevance maps: which patches contributed to a class, by gradient-weighted attention (Chefer et al., ICCV
2021, arXiv 2103.15679).

    A'_l = mean over heads of (dy_c/dA_l * A_l)+          R = (I + A'_L) ... (I + A'_1)          (Eq. 5, 6)

An attention pooling is one more attention with a single query, its probe: A'_pool R, with one row.

Only the rows of R that the head reads are needed, so they are carried through the layers from the last to the
first, which is the order in which gradients arrive: one map is in memory at a time, and the model's attention
stays fused. The gradient of a map is dy/dA = (dy/d(A v)) v^T.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor

from vitreous.errors import InputError
from vitreous.inspection.attention_metrics import attention_pooling, pooling_maps, readout_weights, to_grid
from vitreous.inspection.capture import attention_layers
from vitreous.layers.attention import Attention
from vitreous.layers.pooling import AttentionPooling
from vitreous.models.vit import ViT
from vitreous.training.memory import activation_checkpointing


class Relevance(NamedTuple):
    """What contributed to a class.

    Attributes:
        patches: the relevance of each patch; not negative.
        heads: how much the class's logit would change, to first order, without each head: |<a, dy/da>| of
            the head's output a (Michel et al., arXiv 1905.10650, Eq. 2), for each image.
    """

    patches: Float[Tensor, "B rows columns"]
    heads: Float[Tensor, "B L K"]


def relevance(
    model: ViT, images: Float[Tensor, "B C H W"], classes: Int[Tensor, "B"] | None = None
) -> Relevance:
    """Return the relevance for `classes`, by default for each image's prediction.

    Raises:
        InputError: the model has no head, so no class can be explained.
    """
    if model.config.num_classes is None:
        raise InputError("the model has no classes: relevance maps explain the logit of a class")
    start = readout_weights(model.config).to(images)
    pool = attention_pooling(model)
    if pool is not None:
        start = torch.zeros_like(start)  # the probe's attention comes with its gradient
    row = start.repeat(images.shape[0], 1)
    heads: list[Tensor] = []
    was_training = model.training
    model.eval()
    try:
        # Layers are recomputed in the backward pass: the activations of all would be gigabytes.
        with (
            watched_attention(model, row, heads),
            watched_pooling(pool, row),
            activation_checkpointing(model),
            torch.enable_grad(),
        ):
            images = images.detach().requires_grad_()
            logits = model(images)
            target = logits.argmax(dim=-1) if classes is None else classes.to(logits.device)
            # With respect to the images alone, so that the gradients of parameters are untouched.
            torch.autograd.grad(logits.gather(1, target[:, None]).sum(), images)
    finally:
        model.train(was_training)
    return Relevance(to_grid(row - start, model.config), torch.stack(heads[::-1], dim=1))


@contextmanager
def watched_pooling(pool: AttentionPooling | None, row: Float[Tensor, "B T"]) -> Iterator[None]:
    """During the backward pass, set `row` to A'_pool; does nothing without attention pooling."""
    if pool is None:
        yield
        return
    entering: list[Tensor] = []

    def enter(pooling: AttentionPooling, args: tuple[Tensor]) -> None:
        entering[:] = [args[0].detach()]

    def leave(out: torch.nn.Linear, args: tuple[Tensor]) -> None:
        z = entering[0]
        args[0].register_hook(lambda gradient: pass_back(z, gradient))  # type: ignore[no-untyped-call]

    def pass_back(z: Tensor, gradient: Tensor) -> None:
        with torch.no_grad():
            value = pool.attention.project_context(z[:, pool.skip :])[1]
            gradient = rearrange(gradient, "B 1 (K E) -> B K 1 E", K=pool.attention.heads)
            slopes = F.pad((gradient @ value.transpose(-2, -1))[:, :, 0], (pool.skip, 0))
            row.add_((slopes * pooling_maps(pool, z)).clamp_min(0).mean(dim=1))

    hooks = [pool.register_forward_pre_hook(enter), pool.attention.out.register_forward_pre_hook(leave)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def watched_attention(model: ViT, row: Float[Tensor, "B T"], heads: list[Tensor]) -> Iterator[None]:
    """During the backward pass, multiply `row` by (I + A'_l) at each layer, and append the importance of its
    heads to `heads`, last layer first."""
    entering: list[Tensor] = []  # the input of the attention that is running

    def enter(layer: Attention, args: tuple[Any, ...]) -> None:
        entering[:] = [args[0].detach()]

    def leave(out: torch.nn.Linear, args: tuple[Tensor]) -> None:
        # A hook that refers to its own tensor would keep both alive until a garbage collection of cycles.
        layer, z, output = owners[out], entering[0], args[0].detach()
        args[0].register_hook(  # type: ignore[no-untyped-call]
            lambda gradient: pass_back(layer, z, output, gradient)
        )

    def pass_back(layer: Attention, z: Tensor, output: Tensor, gradient: Tensor) -> None:
        with torch.no_grad():
            weights, value = layer.attention_weights(z), layer.project(z)[2]
            gradient, output = (
                rearrange(each, "B T (K E) -> B K T E", K=layer.heads) for each in (gradient, output)
            )
            evidence = (gradient @ value.transpose(-2, -1) * weights).clamp_min(0).mean(dim=1)  # A'_l
            row.add_(torch.einsum("bt,bts->bs", row, evidence))
            heads.append((gradient * output).sum(dim=(2, 3)).abs())

    layers = set(attention_layers(model, Attention))
    owners = {layer.out: layer for layer in layers}
    hooks = [layer.register_forward_pre_hook(enter) for layer in layers]
    hooks += [out.register_forward_pre_hook(leave) for out in owners]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
