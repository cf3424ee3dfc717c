"""Configuration of what writes sequences: the 2017 Transformer, and a decoder that reads images."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from vitreous.models.config import ViTConfig
from vitreous.models.config_parts import Config, OrNone, Positive, Probability


class DecoderConfig(Config):
    """A decoder that writes tokens. Letters of 1706.03762 in brackets; the defaults are its base model."""

    vocabulary: Positive = Field(default=37000, description="tokens that can be written [V]")
    width: Positive = Field(default=512, description="[d_model]")
    depth: Positive = Field(default=6, description="decoder layers [N]")
    heads: Positive = Field(default=8, description="[h]")
    mlp_dim: Positive = Field(default=2048, description="[d_ff]")
    max_length: Positive = Field(default=512, description="the longest sequence, in tokens")

    norm: Literal["pre", "post"] = Field(default="post", description="LayerNorm before or after each branch")
    norm_eps: float = Field(default=1e-5, gt=0, description="added to the variance in each LayerNorm")
    final_norm: bool = Field(default=False, description="LayerNorm after the last layer; pre-norm needs it")
    activation: Literal["relu", "gelu", "gelu_tanh", "quick_gelu", "silu"] = Field(
        default="relu", description="of the MLP"
    )
    position: OrNone[Literal["none", "sinusoidal", "sinusoidal-halves", "sinusoidal-fairseq", "learned"]] = (
        Field(
            default="sinusoidal",
            description="halves: all sines, then all cosines; fairseq: its own waves as well",
        )
    )
    position_offset: int = Field(default=0, ge=0, description="unused rows before a learned table's first")
    scale_embedding: bool = Field(default=True, description="tokens are multiplied by sqrt(width)")
    embedding_norm: bool = Field(
        default=False, description="LayerNorm on tokens and positions before layer 1"
    )
    logits_bias: bool = Field(default=False, description="whether the logits have a bias for each token")
    dropout: Probability = Field(
        default=0.1, description="of embeddings and of each branch's output [P_drop]"
    )
    attention_dropout: Probability = Field(default=0.0, description="of the attention weights")
    mlp_dropout: Probability = Field(default=0.0, description="after the MLP's activation")

    pad: int = Field(default=0, ge=0, description="the token that fills a batch's shorter rows")
    start: int = Field(default=1, ge=0, description="the token that a decoder begins with")
    end: int = Field(default=2, ge=0, description="the token that ends a sequence")
    never: tuple[int, ...] = Field(default=(), description="tokens that decoding must not write")
    end_at_limit: bool = Field(default=False, description="decoding writes `end` at the longest length")

    @model_validator(mode="after")
    def _consistent(self) -> DecoderConfig:
        if self.width % self.heads:
            raise ValueError(f"width {self.width} is not a multiple of {self.heads} heads: change one")
        if self.norm == "pre" and not self.final_norm:
            raise ValueError("pre-norm layers need final_norm=True: nothing else normalizes the last one")
        for name in ("pad", "start", "end"):
            if getattr(self, name) >= self.vocabulary:
                raise ValueError(
                    f"{name} is token {getattr(self, name)}, but there are only {self.vocabulary}: "
                    "raise vocabulary"
                )
        return self


class TransformerConfig(DecoderConfig):
    """The encoder-decoder of "Attention Is All You Need" (1706.03762, Table 3)."""

    encoder_depth: Positive = Field(default=6, description="encoder layers [N]")
    encoder_heads: Positive | None = Field(default=None, description="of the encoder; None: heads")
    encoder_mlp_dim: Positive | None = Field(default=None, description="of the encoder; None: mlp_dim")
    source_vocabulary: Positive | None = Field(
        default=None, description="None: source and target share one vocabulary and one embedding"
    )

    @classmethod
    def base(cls, **overrides: Any) -> TransformerConfig:
        """N = 6, d_model 512, d_ff 2048, h = 8, dropout 0.1."""
        return cls(**overrides)

    @classmethod
    def big(cls, **overrides: Any) -> TransformerConfig:
        """N = 6, d_model 1024, d_ff 4096, h = 16, dropout 0.3."""
        return cls(**{"width": 1024, "mlp_dim": 4096, "heads": 16, "dropout": 0.3, **overrides})

    @model_validator(mode="after")
    def _heads_of_the_encoder(self) -> TransformerConfig:
        if self.encoder_heads and self.width % self.encoder_heads:
            raise ValueError(f"width {self.width} is not a multiple of {self.encoder_heads} encoder_heads")
        return self


# The models of 1706.03762's Table 3, which `vitreous describe` knows by name.
NAMED = {"transformer-base": TransformerConfig.base, "transformer-big": TransformerConfig.big}


class CaptionerConfig(Config):
    """Images to text: a Vision Transformer's tokens, read by a decoder."""

    encoder: ViTConfig = ViTConfig(num_classes=None)
    decoder: DecoderConfig = DecoderConfig()

    @model_validator(mode="after")
    def _no_head(self) -> CaptionerConfig:
        if self.encoder.num_classes is not None:
            raise ValueError("a captioner's encoder has no classes: set encoder.num_classes to none")
        return self
