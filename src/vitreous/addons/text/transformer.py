"""The Transformer of 2017 (arXiv 1706.03762, section 3 and Fig. 1): the encoder that the ViT took over, and
the decoder that it left out; and that decoder after a ViT, from images to text (TrOCR, arXiv 2109.10282).

memory = encode(source)             every source token attends to every other                (Fig. 1, left)
logits = decode(target, memory)     a target token attends to those before it, and to the memory    (right)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, ClassVar, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from vitreous.addons.text.config import CaptionerConfig, DecoderConfig, TransformerConfig
from vitreous.addons.text.layers import (
    DecoderBlock,
    DecoderPast,
    LearnedSequencePositions,
    NoPositions,
    SinusoidalPositions,
    TokenEmbedding,
    causal_mask,
    fairseq_sinusoids,
    halved_sinusoids,
    padding_mask,
    post_norm,
    pre_norm,
    sinusoids,
)
from vitreous.layers.attention import Attention, CrossAttention, KeyValues, LogitBias
from vitreous.layers.block import (
    MLP,
    Branch,
    PostNormBlock,
    PreNormBlock,
)
from vitreous.layers.initialization import GoogleInit, fresh_weights
from vitreous.models.config import Origin
from vitreous.models.preprocessing import Preprocessing
from vitreous.models.vit import ViT


def sequence_norm(config: DecoderConfig) -> nn.LayerNorm:
    return nn.LayerNorm(config.width, eps=config.norm_eps)


def sequence_positions(config: DecoderConfig) -> nn.Module:
    """Return the positions of tokens, added to their vectors (section 3.5)."""
    length, width = config.max_length, config.width
    match config.position:
        case "none":
            return NoPositions()
        case "learned":
            return LearnedSequencePositions(length, width, offset=config.position_offset)
        case "sinusoidal":
            return SinusoidalPositions(partial(sinusoids, length, width))
        case "sinusoidal-halves":
            return SinusoidalPositions(partial(halved_sinusoids, length, width))
        case "sinusoidal-fairseq":
            return SinusoidalPositions(partial(fairseq_sinusoids, length, width, first=config.pad + 1))


def block_parts(config: DecoderConfig, branches: int) -> dict[str, Any]:
    """Return the parts that encoder and decoder layers share; dropout is that of section 5.4."""
    head_dim = config.width // config.heads
    branch = partial(Branch, config.width, dropout=config.dropout, layer_scale=None, drop_path=0.0)
    return {
        "attention": Attention(
            config.width, heads=config.heads, head_dim=head_dim, dropout=config.attention_dropout
        ),
        "mlp": MLP(config.width, config.mlp_dim, activation=config.activation, dropout=config.mlp_dropout),
        "norms": tuple(sequence_norm(config) for _ in range(branches)),
        "branches": tuple(branch() for _ in range(branches)),
    }


def decoder_block(config: DecoderConfig, context_width: int) -> nn.Module:
    """Return one decoder layer; `context_width` is that of the tokens it reads."""
    cross_attention = CrossAttention(
        config.width,
        context_width=context_width,
        heads=config.heads,
        head_dim=config.width // config.heads,
        dropout=config.attention_dropout,
    )
    residual = pre_norm if config.norm == "pre" else post_norm
    return DecoderBlock(**block_parts(config, 3), cross_attention=cross_attention, residual=residual)


class Stack(nn.Module):
    """Positions, layers and norms, vectors in and vectors out."""

    described: ClassVar = {
        "position": ("positions", "1706.03762, 3.5"),
        "embedding_norm": ("LayerNorm of the tokens", ""),
        "norm": ("LayerNorm", ""),
    }

    def __init__(self, config: DecoderConfig, blocks: Iterable[nn.Module]) -> None:
        super().__init__()
        self.position = sequence_positions(config)
        self.embedding_norm = sequence_norm(config) if config.embedding_norm else nn.Identity()
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(blocks)
        self.norm = sequence_norm(config) if config.final_norm else nn.Identity()

    def embed(self, z: Float[Tensor, "B T D"], start: int = 0) -> Float[Tensor, "B T D"]:
        """Add positions, of which the first is `start`."""
        return self.dropout(self.embedding_norm(self.position(z, start)))


class Encoder(Stack):
    """The encoder's layers: those of the ViT."""

    def __init__(self, config: TransformerConfig) -> None:
        block = PreNormBlock if config.norm == "pre" else PostNormBlock
        own = {"heads": config.encoder_heads, "mlp_dim": config.encoder_mlp_dim}
        config = config.model_copy(update={name: size for name, size in own.items() if size})
        super().__init__(config, (block(**block_parts(config, 2)) for _ in range(config.encoder_depth)))

    def forward(self, z: Float[Tensor, "B T D"], mask: LogitBias | None = None) -> Float[Tensor, "B T D"]:
        z = self.embed(z)
        for block in self.blocks:
            z = block(z, mask)
        return self.norm(z)


class Decoder(Stack):
    """The decoder's layers; `context_width` is that of the tokens they read."""

    def __init__(self, config: DecoderConfig, *, context_width: int) -> None:
        super().__init__(config, (decoder_block(config, context_width) for _ in range(config.depth)))

    def forward(
        self,
        z: Float[Tensor, "B T D"],
        context: Float[Tensor, "B S M"],
        mask: Float[Tensor, "#B #K #T U"] | None = None,
        context_mask: Float[Tensor, "#B #K #T S"] | None = None,
        past: list[DecoderPast] | None = None,
    ) -> Float[Tensor, "B T D"]:
        """Return the tokens after the last layer. `past` (one for each layer) holds the tokens before these,
        and is extended by these."""
        z = self.embed(z, len(past[0].attention) if past else 0)
        for layer, block in enumerate(self.blocks):
            z = block(z, context, mask, context_mask, past[layer] if past else None)
        return self.norm(z)


class Memory(NamedTuple):
    """What a decoder reads.

    Attributes:
        context: (B, S, M), the encoder's output.
        mask: (B, 1, 1, S), added to the logits of the attention over it; None where nothing is padding.
    """

    context: Float[Tensor, "B S M"]
    mask: Float[Tensor, "B 1 1 S"] | None = None

    def repeat(self, times: int) -> Memory:
        """Return every row `times` times, in sequence."""
        mask = None if self.mask is None else self.mask.repeat_interleave(times, dim=0)
        return Memory(self.context.repeat_interleave(times, dim=0), mask)


class TextDecoder(nn.Module):
    """Token ids in, logits of the next token out: embedding, decoder stack, and the embedding again."""

    described: ClassVar = {
        "tokens": ("token embedding", "1706.03762, 3.4"),
        "tokens.logits": ("logits", "1706.03762, 3.4"),
    }

    def __init__(self, config: DecoderConfig, *, context_width: int) -> None:
        super().__init__()
        self.config = config
        self.tokens = TokenEmbedding(config.vocabulary, config.width, scale=config.scale_embedding)
        self.decoder = Decoder(config, context_width=context_width)
        self.bias = nn.Parameter(torch.zeros(config.vocabulary)) if config.logits_bias else None

    def reset(self, init: GoogleInit) -> None:
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, ids: Int[Tensor, "B T"], memory: Memory) -> Float[Tensor, "B T V"]:
        """Return the logits after each token of whole sequences, as in training ("teacher forcing"). Padding
        is at the end, so the causal mask alone hides it from every real token."""
        mask = causal_mask(ids.shape[1], device=ids.device)
        z = self.decoder(self.tokens(ids), memory.context, mask, memory.mask)
        return self.tokens.logits(z, self.bias)

    def no_past(self) -> list[DecoderPast]:
        """Return the empty cache of `step`, before the first step."""
        return [DecoderPast(KeyValues(), KeyValues()) for _ in self.decoder.blocks]

    def step(self, ids: Int[Tensor, "B T"], memory: Memory, past: list[DecoderPast]) -> Float[Tensor, "B V"]:
        """Return the logits after the last of these tokens, which follow those in `past` and are added to
        it."""
        new, seen = ids.shape[1], len(past[0].attention)
        # A single token sees everything so far: it needs no mask.
        mask = causal_mask(new, seen, device=ids.device) if new > 1 else None
        z = self.decoder(self.tokens(ids), memory.context, mask, memory.mask, past)
        return self.tokens.logits(z[:, -1:], self.bias)[:, 0]


class SequenceModel(nn.Module):
    """An encoder, whose result `encode` returns as the memory, and a decoder that writes text after it.

    Attributes:
        config: the whole description of the function that the model computes.
        origin: the file that the weights were loaded from, which its tokenizer is beside.
    """

    labels = None
    origin: Origin | None = None
    text: TextDecoder
    encode: Callable[..., Memory]

    def decode(self, target: Int[Tensor, "B T"], memory: Memory) -> Float[Tensor, "B T V"]:
        """Return logits of the token after each target token, which begin with the decoder's start token."""
        return self.text(target, memory)

    def forward(self, source: Tensor, target: Int[Tensor, "B T"]) -> Float[Tensor, "B T V"]:
        return self.decode(target, self.encode(source))

    def paired_outputs(
        self, module: Any, ours: Tensor, theirs: Tensor, rng: torch.Generator
    ) -> Iterator[tuple[Tensor, Any]]:
        """Yield logits for the same sources and tokens, of this model and of the module that it was made
        from; `ours` and `theirs` are a weight of each."""
        decoder = self.text.config
        ids = torch.randint(decoder.vocabulary, (2, 2, 4), generator=rng)
        source, target = ids.where(ids != decoder.pad, decoder.end)
        if isinstance(self, Captioner):
            seen = self.config.encoder
            source = torch.randn(2, seen.channels, *seen.image_size, generator=rng)
        placed = source.to(theirs) if source.is_floating_point() else source.to(theirs.device)
        logits = module(placed, decoder_input_ids=target.to(theirs.device)).logits
        placed = source.to(ours) if source.is_floating_point() else source.to(ours.device)
        yield self(placed, target.to(ours.device)), logits


class Transformer(SequenceModel):
    """The encoder-decoder built from a configuration; `TransformerConfig.base()` is the paper's.

    Example:
        >>> config = vt.TransformerConfig(vocabulary=100, width=32, depth=2, heads=4, mlp_dim=64)
        >>> source, target = torch.randint(4, 100, (2, 7)), torch.randint(4, 100, (2, 5))
        >>> vt.Transformer(config)(source, target).shape  # logits of each next token
        torch.Size([2, 5, 100])

    Args:
        config: the whole description of the function that the model computes.
        seed: random seed of the weights.
    """

    described: ClassVar = {"source_tokens": ("token embedding", "1706.03762, 3.4")}

    task = "translation"

    def __init__(self, config: TransformerConfig, *, seed: int = 0) -> None:
        super().__init__()
        self.config = config
        with fresh_weights(self, seed):
            # Source and target share one embedding.
            self.source_tokens = None
            if config.source_vocabulary is not None:
                self.source_tokens = TokenEmbedding(
                    config.source_vocabulary, config.width, scale=config.scale_embedding
                )
            self.encoder = Encoder(config)
            self.text = TextDecoder(config, context_width=config.width)

    def encode(self, source: Int[Tensor, "B S"], real: Bool[Tensor, "B S"] | None = None) -> Memory:
        """Return what the decoder reads. `real` is false at padding; by default, that is where the pad token
        is."""
        mask = padding_mask(source != self.config.pad if real is None else real)
        tokens = self.source_tokens or self.text.tokens
        return Memory(self.encoder(tokens(source), mask), mask)


class Captioner(SequenceModel):
    """A ViT with a text decoder that attends to all of its tokens, including the class token.

    Example:
        >>> from vitreous.addons.text.config import CaptionerConfig, DecoderConfig
        >>> encoder = vt.ViTConfig(image_size=(32, 32), depth=2, num_classes=None)
        >>> decoder = DecoderConfig(vocabulary=100, width=32, depth=1, heads=2, mlp_dim=64)
        >>> model = vt.Captioner(CaptionerConfig(encoder=encoder, decoder=decoder))
        >>> model(torch.randn(1, 3, 32, 32), torch.randint(4, 100, (1, 7))).shape  # logits of each next token
        torch.Size([1, 7, 100])

    Args:
        config: the configuration of the encoder and of the decoder.
        preprocessing: converts images to the input of the encoder; by default, they are squashed to its size.
        seed: random seed of the weights.
    """

    task = "captioning"

    def __init__(
        self, config: CaptionerConfig, *, preprocessing: Preprocessing | None = None, seed: int = 0
    ) -> None:
        super().__init__()
        self.config = config
        with fresh_weights(self, seed):
            self.encoder = ViT(config.encoder, preprocessing=preprocessing)
            self.text = TextDecoder(config.decoder, context_width=config.encoder.width)

    @property
    def preprocessing(self) -> Preprocessing:
        """From images to the `images` that the encoder was made for."""
        return self.encoder.preprocessing

    def encode(self, images: Float[Tensor, "B C H W"]) -> Memory:
        """Return what the decoder reads."""
        return Memory(self.encoder.tokens(images))


def build_sequence_model(
    config: TransformerConfig | CaptionerConfig,
    *,
    preprocessing: Preprocessing | None = None,
    seed: int = 0,
    **_: object,
) -> Transformer | Captioner:
    """Build the model of a configuration; a model that writes text has no labels and no temperature."""
    if isinstance(config, CaptionerConfig):
        return Captioner(config, preprocessing=preprocessing, seed=seed)
    return Transformer(config, seed=seed)


class EncoderDecoder(nn.Module):
    """The two stacks alone, vectors in and vectors out, as `torch.nn.Transformer` has them."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        with fresh_weights(self, seed=0):
            self.encoder = Encoder(config)
            self.decoder = Decoder(config, context_width=config.width)

    def forward(
        self,
        source: Float[Tensor, "B S D"],
        target: Float[Tensor, "B T D"],
        source_mask: Float[Tensor, "#B #K #S S"] | None = None,
        target_mask: Float[Tensor, "#B #K #T T"] | None = None,
    ) -> Float[Tensor, "B T D"]:
        """Return the logits. Masks are added to the logits; that of the source hides its padding from the
        decoder too."""
        return self.decoder(target, self.encoder(source, source_mask), target_mask, source_mask)

    def paired_outputs(
        self, module: Any, ours: Tensor, theirs: Tensor, rng: torch.Generator
    ) -> Iterator[tuple[Tensor, Any]]:
        """Yield outputs for the same vectors, of this model and of the module that it was made from; `ours`
        and `theirs` are a weight of each."""
        both = torch.randn(2, 2, 4, self.config.width, generator=rng)  # source and target
        turned = both if module.batch_first else both.transpose(1, 2)
        found = module(*turned.to(theirs))
        yield self(*both.to(ours)), found if module.batch_first else found.transpose(0, 1)
