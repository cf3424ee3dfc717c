"""Sharpness-aware minimization (arXiv 2010.01412), on top of any optimizer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from vitreous.training.gradients import global_norm

Measured = TypeVar("Measured")


def sharpened(gradient: Callable[[], Measured], parameters: Sequence[Tensor], radius: float) -> Measured:
    """Leaves in `.grad` the gradient at w + radius g / |g|, where g is the gradient at w (Eq. 2 and 3).

    Args:
        gradient: computes the gradient of the same batch with the same random draws each time.

    Returns what `gradient` measured at w.
    """
    measured = gradient()
    learning = [p for p in parameters if p.grad is not None]
    gradients = [p.grad for p in learning if p.grad is not None]
    with torch.no_grad():
        scale = radius / (global_norm(gradients) + 1e-12)
        here = [p.clone() for p in learning]  # restored as they were: subtracting would leave rounding
        torch._foreach_add_(learning, [g * scale for g in gradients])
    gradient()
    with torch.no_grad():
        for parameter, before in zip(learning, here, strict=True):
            parameter.copy_(before)
    return measured
