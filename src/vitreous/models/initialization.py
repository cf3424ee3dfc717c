"""Where weights begin. Frameworks disagree here, so each scheme has the name of the code it follows."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn

from vitreous.layers.attention import Attention, CrossAttention
from vitreous.layers.positions import LearnedPositions, LearnedPositions2d, RelativePositions
from vitreous.layers.resnet import StandardizedConvolution

Scheme = Literal["google", "timm"]


def initialize(model: nn.Module, scheme: Scheme = "google") -> None:
    """Set every weight of `model` as the named code does.

    google: Xavier-uniform matrices (each of q, k and v by itself), zero biases (vit_jax draws those of the
        MLP from N(0, 1e-6)), LeCun-normal patch projection, positions N(0, std), zero class token and zero
        head (vit_jax, big_vision).
    timm: truncated normal 0.02 for matrices, zero biases, class token N(0, 1e-6), head as other matrices.

    Weights on the meta device are left alone: they are about to be loaded.
    """
    if any(parameter.is_meta for parameter in model.parameters()):
        return
    position = getattr(getattr(model, "config", None), "position", None)
    std = position.init_std if position else 0.02
    with torch.no_grad():
        for module in reversed(list(model.modules())):  # children first: a parent may know better
            initialize_module(module, scheme, std)
        prefix = getattr(model, "prefix", None)
        if isinstance(prefix, Tensor):
            nn.init.zeros_(prefix) if scheme == "google" else nn.init.normal_(prefix, std=1e-6)
        head = getattr(model, "head", None)
        if scheme == "google" and isinstance(head, nn.Module):
            for parameter in head.parameters():
                nn.init.zeros_(parameter)


def initialize_module(module: nn.Module, scheme: Scheme, position_std: float) -> None:
    """The weights that `module` itself holds."""
    match module:
        case nn.Linear():
            initialize_linear(module, scheme)
        case StandardizedConvolution():
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
        case nn.Conv2d():
            lecun_normal(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        case Attention() if scheme == "google":
            for part in module.qkv.weight.chunk(3):
                nn.init.xavier_uniform_(part)
        case CrossAttention() if scheme == "google":
            for part in module.key_value.weight.chunk(2):
                nn.init.xavier_uniform_(part)
        case LearnedPositions() | RelativePositions():
            nn.init.normal_(module.table, std=position_std)
        case LearnedPositions2d():
            for table in (module.x, module.y, module.extra_table):
                nn.init.normal_(table, std=position_std)
        case _:
            if isinstance(probe := getattr(module, "probe", None), Tensor):
                nn.init.xavier_uniform_(probe)


def initialize_linear(linear: nn.Linear, scheme: Scheme) -> None:
    if scheme == "google":
        nn.init.xavier_uniform_(linear.weight)
    else:
        nn.init.trunc_normal_(linear.weight, std=0.02)
    if linear.bias is not None:
        nn.init.zeros_(linear.bias)


def lecun_normal(weight: Tensor) -> None:
    """Truncated normal of variance 1 / fan_in after truncation, as flax's lecun_normal: the standard
    deviation is corrected by 0.8796, that of a normal cut at two of its own."""
    fan_in = weight[0].numel()
    std = math.sqrt(1 / fan_in) / 0.87962566103423978
    nn.init.trunc_normal_(weight, std=std, a=-2 * std, b=2 * std)
