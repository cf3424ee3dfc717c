"""From a configuration to the parts of a model: the only place where a choice of variant is made."""

from __future__ import annotations

from collections import OrderedDict
from functools import partial
from typing import Any

from torch import nn

from vitreous.layers.attention import Attention
from vitreous.layers.block import Branch, PostNormBlock, PreNormBlock
from vitreous.layers.head import DistilledHead
from vitreous.layers.mlp import MLP, SwiGLU
from vitreous.layers.pooling import (
    AttentionPooling,
    ClassAndMeanPooling,
    ClassTokenPooling,
    DistilledPooling,
    MeanPooling,
)
from vitreous.layers.positions import (
    LearnedPositions,
    LearnedPositions2d,
    RelativePositions,
    RotaryPositions2d,
    SinCosPositions2d,
)
from vitreous.layers.resnet import ResNetStem
from vitreous.layers.stems import ConvolutionStem, LinearPatchStem, PatchStem
from vitreous.models.config import ViTConfig


def norm(config: ViTConfig, width: int | None = None) -> nn.LayerNorm:
    return nn.LayerNorm(width or config.width, eps=config.norm_eps)


def stem(config: ViTConfig) -> nn.Module:
    """x_p E, in the chosen form."""
    kind = config.stem
    if kind.kind == "convolution":
        return ConvolutionStem(
            config.channels, config.width, widths=kind.widths, strides=kind.strides, norm=kind.norm
        )
    if kind.kind == "resnet":
        return ResNetStem(
            config.channels,
            config.width,
            patch=(config.patch_size[0] // kind.stride, config.patch_size[1] // kind.stride),
            layers=kind.layers,
            widths=kind.output_widths,
            root_width=round(64 * kind.width_factor),
            standardization=kind.standardization,
            standardization_eps=kind.standardization_eps,
            norm_eps=kind.norm_eps,
        )
    if kind.form == "convolution" and not (kind.norm_before or kind.norm_after):
        return PatchStem(config.channels, config.patch_size, config.width, bias=kind.bias)
    patch_dim = config.channels * config.patch_size[0] * config.patch_size[1]
    return LinearPatchStem(
        config.channels,
        config.patch_size,
        config.width,
        norm_before=norm(config, patch_dim) if kind.norm_before else nn.Identity(),
        norm_after=norm(config) if kind.norm_after else nn.Identity(),
        bias=kind.bias,
    )


def added_position(config: ViTConfig) -> nn.Module:
    """Positions that are summed to the tokens; nothing where they act inside the attention."""
    options: dict[str, Any] = {"extra": config.num_class_tokens, "registers": config.registers}
    match config.position.kind:
        case "learned":
            return LearnedPositions(config.grid, config.width, **options)
        case "learned-2d":
            return LearnedPositions2d(config.grid, config.width, **options)
        case "sincos-2d":
            temperature = config.position.temperature or 10_000.0
            return SinCosPositions2d(config.grid, config.width, **options, temperature=temperature)
        case _:
            return nn.Identity()


def stem_position(config: ViTConfig) -> nn.Module:
    """E_pos of Eq. 1, when positions are given at the stem."""
    return added_position(config) if config.position.where == "stem" else nn.Identity()


def layer_positions(config: ViTConfig) -> nn.ModuleList:
    """One position embedding in front of each layer (appendix D.4): none, one each, or one that all share."""
    match config.position.where:
        case "stem":
            return nn.ModuleList(nn.Identity() for _ in range(config.depth))
        case "every-layer":
            return nn.ModuleList(added_position(config) for _ in range(config.depth))
        case "every-layer-shared":
            return nn.ModuleList([added_position(config)] * config.depth)


def inner_position(config: ViTConfig) -> nn.Module | None:
    """Positions that act on queries and keys."""
    match config.position.kind:
        case "relative":
            return RelativePositions(config.sequence_length, config.resolved_head_dim)
        case "rotary-2d":
            temperature = config.position.temperature or 100.0
            return RotaryPositions2d(
                config.grid,
                config.resolved_head_dim,
                prefix=config.num_prefix_tokens,
                temperature=temperature,
            )
        case _:
            return None


def blocks(config: ViTConfig) -> nn.ModuleList:
    """The L encoder layers. Stochastic depth grows linearly from 0 to `drop_path` (arXiv 1603.09382)."""
    rates = [config.drop_path * layer / max(config.depth - 1, 1) for layer in range(config.depth)]
    shared = inner_position(config) if config.position.where == "every-layer-shared" else None
    return nn.ModuleList(block(config, rate, shared or inner_position(config)) for rate in rates)


def block(config: ViTConfig, drop_path: float, inner: nn.Module | None) -> nn.Module:
    """One encoder layer."""
    arrangement = PreNormBlock if config.norm == "pre" else PostNormBlock
    branch = partial(
        Branch, config.width, dropout=config.dropout, layer_scale=config.layer_scale, drop_path=drop_path
    )
    return arrangement(
        attention=Attention(
            config.width,
            heads=config.heads,
            head_dim=config.resolved_head_dim,
            qkv_bias=config.qkv_bias,
            norm=partial(norm, config) if config.qk_norm else None,
            inner_position=inner,
            dropout=config.attention_dropout,
        ),
        mlp=mlp(config),
        norms=(norm(config), norm(config)),
        branches=(branch(), branch()),
    )


def mlp(config: ViTConfig) -> nn.Module:
    if config.mlp == "swiglu":
        return SwiGLU(config.width, config.mlp_dim, dropout=config.dropout)
    return MLP(config.width, config.mlp_dim, activation=config.mlp, dropout=config.dropout)


def pooling(config: ViTConfig) -> nn.Module:
    """From tokens to what the head sees, with the last norm where that stands behind the pooling."""
    pool: nn.Module
    match config.pooling:
        case "class":
            pool = ClassTokenPooling()
        case "mean":
            pool = MeanPooling(skip=config.num_prefix_tokens)
        case "mean-all":
            pool = MeanPooling(skip=0)
        case "attention":
            pool = AttentionPooling(
                config.width,
                heads=config.heads,
                mlp=mlp(config),
                norm=norm(config),
                skip=config.num_prefix_tokens,
            )
        case "class+mean":
            pool = ClassAndMeanPooling(skip=config.num_prefix_tokens)
        case "class+distillation":
            pool = DistilledPooling()
    if config.final_norm == "pooled":
        return nn.Sequential(OrderedDict(pool=pool, norm=norm(config, pooled_width(config))))
    return pool


def pooled_width(config: ViTConfig) -> int:
    return 2 * config.width if config.pooling == "class+mean" else config.width


def feature_width(config: ViTConfig) -> int:
    """Channels of `ViT.features`."""
    return config.representation_size or pooled_width(config)


def representation(config: ViTConfig) -> nn.Module:
    """The hidden tanh layer of the pre-training head (section 3.1), where there is one."""
    if config.representation_size is None:
        return nn.Identity()
    linear = nn.Linear(pooled_width(config), config.representation_size)
    return nn.Sequential(OrderedDict(linear=linear, tanh=nn.Tanh()))


def head(config: ViTConfig) -> nn.Module:
    """The classifier; features pass through where there are no classes."""
    if config.num_classes is None:
        return nn.Identity()
    if config.pooling == "class+distillation":
        return DistilledHead(config.width, config.num_classes)
    return nn.Linear(feature_width(config), config.num_classes, bias=config.head_bias)
