"""How weights are drawn: one class for each codebase that is followed, since they disagree.

A layer that has weights of its own, or a rule for those of its children, has a method `reset(init)`, which
calls these; `models.initialization` walks over a whole model.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


class GoogleInit:
    """Draw as vit_jax and big_vision do: Xavier-uniform matrices, zero biases (vit_jax draws those of the MLP
    from N(0, 1e-6)), LeCun-normal patch projection, positions N(0, std), zero tokens and a zero head.

    Args:
        generator: the source of all random numbers. Weights on another device are drawn on the generator's
            and copied, so that a seed means the same weights everywhere.
    """

    def __init__(self, generator: torch.Generator) -> None:
        self.generator = generator

    def draw(self, weight: Tensor, fill: Callable[..., Tensor], **options: Any) -> None:
        """Fill `weight` in place by a function of `torch.nn.init`."""
        if weight.device.type == self.generator.device.type:
            fill(weight, generator=self.generator, **options)
            return
        drawn = torch.empty(weight.shape, dtype=weight.dtype, device=self.generator.device)
        weight.copy_(fill(drawn, generator=self.generator, **options))

    def matrix(self, weight: Tensor) -> None:
        """Draw the weight of a linear layer, or one part of several that are packed into one weight."""
        self.draw(weight, nn.init.xavier_uniform_)

    def convolution(self, weight: Tensor, bias: Tensor | None) -> None:
        """Draw a convolution: flax's lecun_normal, a truncated normal of variance 1 / fan_in *after*
        truncation; 0.8796 is the standard deviation of a unit normal that is cut at two."""
        std = math.sqrt(1 / weight[0].numel()) / 0.87962566103423978
        self.draw(weight, nn.init.trunc_normal_, std=std, a=-2 * std, b=2 * std)
        if bias is not None:
            nn.init.zeros_(bias)

    def table(self, weight: Tensor, std: float) -> None:
        """Draw a table of positions or of token embeddings."""
        self.draw(weight, nn.init.normal_, std=std)

    def prefix(self, weight: Tensor, *, distillation: int | None) -> None:
        """Draw the prefix tokens; `distillation` is the row of DeiT's token, where there is one."""
        nn.init.zeros_(weight)

    def probe(self, weight: Tensor) -> None:
        """Draw the query of attention pooling, (1, 1, D), whose fans are 1 and D in flax."""
        self.draw(weight[0], nn.init.xavier_uniform_)

    def head(self, head: nn.Module) -> None:
        """Draw the classifier, which has been drawn as any other linear layer."""
        for parameter in head.parameters():
            nn.init.zeros_(parameter)


class TimmInit(GoogleInit):
    """Draw as timm's VisionTransformer does: truncated normal 0.02 for matrices, positions and DeiT's token,
    zero biases, N(0, 1e-6) for the other tokens, PyTorch's default for convolutions."""

    def matrix(self, weight: Tensor) -> None:
        self.draw(weight, nn.init.trunc_normal_, std=0.02)

    def convolution(self, weight: Tensor, bias: Tensor | None) -> None:
        self.draw(weight, nn.init.kaiming_uniform_, a=math.sqrt(5))
        if bias is not None:
            bound = 1 / math.sqrt(weight[0].numel())
            self.draw(bias, nn.init.uniform_, a=-bound, b=bound)

    def table(self, weight: Tensor, std: float) -> None:
        self.draw(weight, nn.init.trunc_normal_, std=std)

    def prefix(self, weight: Tensor, *, distillation: int | None) -> None:
        self.draw(weight, nn.init.normal_, std=1e-6)
        if distillation is not None:
            self.draw(weight[distillation], nn.init.trunc_normal_, std=0.02)

    def probe(self, weight: Tensor) -> None:
        std = weight.shape[-1] ** -0.5
        self.draw(weight, nn.init.trunc_normal_, std=std, a=-2 * std, b=2 * std)

    def head(self, head: nn.Module) -> None:
        """Leave the classifier as any other linear layer."""
