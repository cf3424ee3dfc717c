"""From a configuration to the parts of a model: the only place where a choice of variant is made."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import partial

from torch import nn

from vitreous.layers.attention import Attention, JointNorm, UnitLength
from vitreous.layers.block import (
    GATES,
    MLP,
    Branch,
    GatedMLP,
    ParallelBlock,
    PostBranchNormBlock,
    PostNormBlock,
    PreNormBlock,
)
from vitreous.layers.efficientnet import BlockShape, EfficientNetLite, EfficientNetLiteStem
from vitreous.layers.embedding import (
    ConvolutionStem,
    LearnedPositions,
    LearnedPositions2d,
    LinearPatchStem,
    PatchStem,
    RelativePositionBias,
    RelativePositions,
    SinCosPositions2d,
)
from vitreous.layers.pooling import (
    AttentionPooling,
    ClassAndMeanPooling,
    ClassTokenPooling,
    DistilledHead,
    DistilledPooling,
    MaxPooling,
    MeanPooling,
    Representation,
)
from vitreous.layers.resnet import PostActivationResNet, ResNet, ResNetStem
from vitreous.layers.rotary import ClassRotaryPositions2d, MixedRotaryPositions2d, RotaryPositions2d
from vitreous.models.config import ViTConfig
from vitreous.models.config_parts import (
    LITE0_LAST_WIDTH,
    RelativePositionConfig,
    ResNetConfig,
)

BLOCKS = {
    "pre": PreNormBlock,
    "post": PostNormBlock,
    "post-branch": PostBranchNormBlock,
    "parallel": ParallelBlock,
}


def build_norm(config: ViTConfig, width: int | None = None) -> nn.Module:
    kind = nn.LayerNorm if config.norm_kind == "layer" else nn.RMSNorm
    return kind(width or config.width, eps=config.norm_eps)


def build_resnet(version: type[ResNet], channels: int, config: ResNetConfig) -> ResNet:
    return version(
        channels,
        layers=config.layers,
        widths=config.output_widths,
        root_width=config.root_width,
        norm_eps=config.norm_eps,
        standardization=config.standardization,
        standardization_eps=config.standardization_eps,
    )


def build_stem(config: ViTConfig) -> nn.Module:
    """Build what computes x_p E, in the chosen form."""
    stem, channels, width, patch = config.stem, config.channels, config.width, config.patch_size
    if stem.kind == "convolution":
        return ConvolutionStem(channels, width, widths=stem.widths, strides=stem.strides, norm=stem.norm)
    if stem.kind == "resnet":
        backbone = build_resnet(PostActivationResNet, channels, stem)
        cells = patch[0] // stem.cell, patch[1] // stem.cell
        return ResNetStem(backbone, (stem.root_width, *stem.output_widths)[-1], width, patch=cells)
    if stem.kind == "efficientnet-lite":
        cells = patch[0] // stem.cell, patch[1] // stem.cell
        blocks = [BlockShape(*shape) for shape in stem.shapes]
        last_width = LITE0_LAST_WIDTH if stem.maps == "several" else None
        return EfficientNetLiteStem(
            EfficientNetLite(channels, blocks=blocks, last_width=last_width),
            stem.channels,
            width,
            taken=tuple(stem.taken),
            patch=cells if stem.projection else None,
        )
    if stem.form == "convolution":
        return PatchStem(channels, patch, width, bias=stem.bias)
    patch_dim = channels * patch[0] * patch[1]
    return LinearPatchStem(
        channels,
        patch,
        width,
        norm_before=build_norm(config, patch_dim) if stem.norm_before else nn.Identity(),
        norm_after=build_norm(config) if stem.norm_after else nn.Identity(),
        bias=stem.bias,
    )


def stem_position(config: ViTConfig) -> nn.Module | None:
    """Build the positions that are added at the stem; None where none are."""
    position = config.position
    if isinstance(position, RelativePositionConfig) and position.absolute:
        return LearnedPositions(
            config.grid,
            config.width,
            extra=config.num_class_tokens,
            registers=config.registers,
            init_std=position.init_std,
        )
    return added_position(config) if position.at_stem else None


def added_position(config: ViTConfig) -> nn.Module | None:
    """Build the positions that are added to the tokens; None where they act inside the attention."""
    extra, registers = config.num_class_tokens, config.registers
    position, grid, width = config.position, config.grid, config.width
    match position.kind:
        case "learned":
            return LearnedPositions(grid, width, extra=extra, registers=registers, init_std=position.init_std)
        case "learned-2d":
            return LearnedPositions2d(
                grid, width, extra=extra, registers=registers, init_std=position.init_std
            )
        case "sincos-2d":
            return SinCosPositions2d(
                grid, width, extra=extra, registers=registers, temperature=position.temperature
            )
        case _:
            return None


def attention_position(config: ViTConfig) -> nn.Module | None:
    """Build the positions that act on queries and keys."""
    position = config.position
    match position.kind:
        case "relative":
            length, head_dim = config.sequence_length, config.resolved_head_dim
            return RelativePositions(length, head_dim, init_std=position.init_std)
        case "relative-bias":
            prefix = config.num_prefix_tokens
            return RelativePositionBias(
                config.grid, config.heads, num_prefix_tokens=prefix, init_std=position.init_std
            )
        case _:
            return rotary_position(config)


def rotary_position(config: ViTConfig) -> nn.Module | None:
    """Build rotary positions, alone or beside added ones; None for none."""
    rotary, head_dim = config.rotary, config.resolved_head_dim
    if rotary is None:
        return None
    if rotary.kind == "mixed":
        return MixedRotaryPositions2d(
            config.grid,
            head_dim,
            heads=config.heads,
            num_prefix_tokens=config.num_prefix_tokens,
            pairs=rotary.pairs,
            axes=rotary.axes,
            offset=rotary.offset,
            temperature=rotary.temperature,
        )
    kind = ClassRotaryPositions2d if rotary.class_angles else RotaryPositions2d
    return kind(
        config.grid,
        head_dim,
        num_prefix_tokens=config.num_prefix_tokens,
        pairs=rotary.pairs,
        axes=rotary.axes,
        offset=rotary.offset,
        temperature=rotary.temperature or 100.0,
        periods=rotary.periods,
        coordinates=rotary.coordinates,
        reference=rotary.reference,
        registers=config.registers,
        register_temperature=rotary.register_temperature,
    )


def build_blocks(config: ViTConfig) -> nn.ModuleList:
    """Build the L encoder layers. Stochastic depth is linear in the layer (arXiv 1603.09382). Positions of
    every layer (appendix D.4) are one for each, or one that all share."""
    blocks = nn.ModuleList()
    first, last = config.drop_path
    inner = added = None
    for layer in range(config.depth):
        if layer == 0 or not config.position.shared:
            inner = attention_position(config)
            added = None if config.position.at_stem else added_position(config)
        drop_path = first + layer / max(config.depth - 1, 1) * (last - first)
        blocks.append(build_block(config, drop_path, inner, added))
    return blocks


def build_block(
    config: ViTConfig, drop_path: float, inner: nn.Module | None, added: nn.Module | None = None
) -> nn.Module:
    """Build one encoder layer, with positions inside its attention or added to its input."""
    branch = partial(
        Branch, config.width, dropout=config.dropout, layer_scale=config.layer_scale, drop_path=drop_path
    )
    attention = Attention(
        config.width,
        heads=config.heads,
        head_dim=config.resolved_head_dim,
        qkv_bias=config.qkv_bias,
        norm=qk_norm(config),
        sub_norm=partial(build_norm, config) if "attention" in config.extra_norms else None,
        position=inner,
        dropout=config.attention_dropout,
    )
    return BLOCKS[config.norm](
        attention=attention,
        mlp=build_mlp(config),
        norms=(build_norm(config), build_norm(config)),
        branches=(branch(), branch()),
        position=added,
    )


def qk_norm(config: ViTConfig) -> Callable[[int], nn.Module] | None:
    """Return what makes the norm of queries and keys, from the dimension of a head."""
    match config.qk_norm:
        case "head":
            return partial(build_norm, config)
        case "layer":
            return lambda head_dim: JointNorm(build_norm(config, config.heads * head_dim), config.heads)
        case "unit":
            return partial(UnitLength, config.heads)
        case "none":
            return None


def build_mlp(config: ViTConfig, hidden: int | None = None) -> nn.Module:
    hidden = hidden or config.mlp_dim
    sub_norm = build_norm(config, hidden) if "mlp" in config.extra_norms else None
    make, activation = (GatedMLP, GATES[config.mlp]) if config.mlp in GATES else (MLP, config.mlp)
    return make(config.width, hidden, activation=activation, dropout=config.dropout, sub_norm=sub_norm)


def build_pooling(config: ViTConfig) -> nn.Module:
    """Build what leads from tokens to the input of the head, with the last norm where it follows the
    pooling."""
    pool: nn.Module
    pooling = config.pooling
    match pooling.kind:
        case "class":
            pool = ClassTokenPooling()
        case "mean":
            pool = MeanPooling(skip=config.num_prefix_tokens)
        case "mean-all":
            pool = MeanPooling(skip=None)
        case "max" | "mean+max":
            pool = MaxPooling(skip=config.num_prefix_tokens, mean=pooling.kind == "mean+max")
        case "attention" | "attention-all":
            pool = AttentionPooling(
                config.width,
                heads=pooling.heads or config.heads,
                mlp=build_mlp(config, pooling.mlp_dim),
                norm=build_norm(config),
                skip=config.num_prefix_tokens if pooling.kind == "attention" else 0,
                dropout=config.attention_dropout,
            )
        case "class+mean":
            pool = ClassAndMeanPooling(skip=config.num_prefix_tokens)
        case "class+distillation":
            pool = DistilledPooling()
    if config.final_norm in ("pooled", "both"):
        return nn.Sequential(OrderedDict(pool=pool, norm=build_norm(config, config.pooled_width)))
    return pool


def build_representation(config: ViTConfig) -> nn.Module:
    """Build the hidden tanh layer of the pre-training head (section 3.1), where there is one."""
    if config.representation_size is None:
        return nn.Identity()
    return Representation(config.pooled_width, config.representation_size)


def build_head(config: ViTConfig) -> nn.Module:
    """Build the classifier; features pass through where there are no classes."""
    if config.num_classes is None:
        return nn.Identity()
    if config.distillation_token:
        return DistilledHead(config.width, config.num_classes)
    return nn.Linear(config.feature_width, config.num_classes)
