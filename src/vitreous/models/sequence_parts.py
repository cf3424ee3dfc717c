"""From a configuration to the parts of an encoder-decoder: the only place that chooses a variant."""

from __future__ import annotations

from torch import nn

from vitreous.layers.attention import Attention, CrossAttention
from vitreous.layers.block import Branch, PostNormBlock, PreNormBlock
from vitreous.layers.decoder import PostNormDecoderBlock, PreNormDecoderBlock
from vitreous.layers.mlp import MLP
from vitreous.layers.sequence import (
    LearnedSequencePositions,
    NoPositions,
    SinusoidalPositions,
    TokenEmbedding,
    fairseq_sinusoids,
    halved_sinusoids,
    sinusoids,
)
from vitreous.models.sequence_config import DecoderConfig, TransformerConfig


def norm(config: DecoderConfig) -> nn.LayerNorm:
    return nn.LayerNorm(config.width, eps=config.norm_eps)


def positions(config: DecoderConfig) -> nn.Module:
    """Where a token stands, added to its vector (section 3.5)."""
    length, width = config.max_length, config.width
    match config.position:
        case "none":
            return NoPositions()
        case "learned":
            return LearnedSequencePositions(length, width, offset=config.position_offset)
        case "sinusoidal":
            return SinusoidalPositions(sinusoids(length, width))
        case "sinusoidal-halves":
            return SinusoidalPositions(halved_sinusoids(length, width))
        case "sinusoidal-fairseq":
            return SinusoidalPositions(fairseq_sinusoids(length, width, first=config.pad + 1))


def source_embedding(config: TransformerConfig) -> TokenEmbedding | None:
    """The source's own embedding, where its vocabulary is not that of the target."""
    if config.source_vocabulary is None:
        return None
    return TokenEmbedding(config.source_vocabulary, config.width, scale=config.scale_embedding)


def encoder_block(config: TransformerConfig) -> nn.Module:
    """One encoder layer: that of the ViT."""
    arrangement = PreNormBlock if config.norm == "pre" else PostNormBlock
    return arrangement(
        attention=attention(config),
        mlp=mlp(config),
        norms=(norm(config), norm(config)),
        branches=(branch(config), branch(config)),
    )


def decoder_block(config: DecoderConfig, context_width: int) -> nn.Module:
    """One decoder layer; `context_width` is that of the tokens it reads."""
    arrangement = PreNormDecoderBlock if config.norm == "pre" else PostNormDecoderBlock
    cross = CrossAttention(
        config.width,
        context_width=context_width,
        heads=config.heads,
        head_dim=config.width // config.heads,
        dropout=config.attention_dropout,
    )
    return arrangement(
        attention=attention(config),
        cross_attention=cross,
        mlp=mlp(config),
        norms=(norm(config), norm(config), norm(config)),
        branches=(branch(config), branch(config), branch(config)),
    )


def attention(config: DecoderConfig) -> Attention:
    head_dim = config.width // config.heads
    return Attention(config.width, heads=config.heads, head_dim=head_dim, dropout=config.attention_dropout)


def mlp(config: DecoderConfig) -> MLP:
    return MLP(config.width, config.mlp_dim, activation=config.activation, dropout=config.mlp_dropout)


def branch(config: DecoderConfig) -> Branch:
    """Dropout of what a branch adds (section 5.4)."""
    return Branch(config.width, dropout=config.dropout, layer_scale=None, drop_path=0.0)
