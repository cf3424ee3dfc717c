"""Configuration of what writes sequences: the 2017 Transformer, and a decoder that reads images."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import model_validator
from torch import Tensor

from vitreous.errors import InputError, nearest
from vitreous.models.config import ViTConfig
from vitreous.models.config_parts import Config, OrNone, Positive, Probability, setting


class DecoderConfig(Config):
    """A decoder that writes tokens. Letters of 1706.03762 in brackets; the defaults are its base model."""

    vocabulary: Positive = setting(37000, "number of tokens that can be written [V]")
    width: Positive = setting(512, "embedding dimension [d_model]")
    depth: Positive = setting(6, "number of decoder layers [N]")
    heads: Positive = setting(8, "number of attention heads [h]")
    mlp_dim: Positive = setting(2048, "number of hidden units of each MLP [d_ff]")
    max_length: Positive = setting(512, "the longest sequence, in tokens")

    norm: Literal["pre", "post"] = setting("post", "whether LayerNorm is applied before or after each branch")
    norm_eps: float = setting(1e-5, "constant added to the variance in each LayerNorm", gt=0)
    final_norm: bool = setting(
        False, "whether LayerNorm is applied after the last layer, which pre-norm needs"
    )
    activation: Literal["relu", "gelu", "gelu_tanh", "quick_gelu", "silu"] = setting(
        "relu", "activation function of the MLP"
    )
    position: OrNone[Literal["none", "sinusoidal", "sinusoidal-halves", "sinusoidal-fairseq", "learned"]] = (
        setting(
            "sinusoidal",
            "kind of position embedding; halves: all sines, then all cosines; fairseq: the same, with "
            "fairseq's own wavelengths",
        )
    )
    position_offset: int = setting(0, "number of unused rows at the start of a learned table", ge=0)
    scale_embedding: bool = setting(True, "whether token embeddings are multiplied by sqrt(width)")
    embedding_norm: bool = setting(
        False, "whether LayerNorm is applied to the sum of tokens and positions before layer 1"
    )
    logits_bias: bool = setting(False, "whether the logits have a bias for each token")
    dropout: Probability = setting(0.1, "dropout rate of the embeddings and of each branch's output [P_drop]")
    attention_dropout: Probability = setting(0.0, "dropout rate of the attention weights")
    mlp_dropout: Probability = setting(0.0, "dropout rate after the activation of the MLP")

    pad: int = setting(0, "the token that fills up shorter sequences in a batch", ge=0)
    start: int = setting(1, "the token with which the decoder begins", ge=0)
    end: int = setting(2, "the token that ends a sequence", ge=0)
    never: tuple[int, ...] = setting((), "tokens that decoding must not generate")
    end_at_limit: bool = setting(False, "whether decoding writes `end` when the maximum length is reached")

    @model_validator(mode="after")
    def _consistent(self) -> DecoderConfig:
        if self.width % self.heads:
            raise ValueError(f"width {self.width} is not a multiple of {self.heads} heads: change one")
        if self.norm == "pre" and not self.final_norm:
            raise ValueError(
                "pre-norm layers need final_norm=True: nothing else normalizes the output of the last layer"
            )
        for name in ("pad", "start", "end"):
            if getattr(self, name) >= self.vocabulary:
                raise ValueError(
                    f"{name} is token {getattr(self, name)}, but there are only {self.vocabulary}: "
                    "raise vocabulary"
                )
        return self

    @property
    def sequence_length(self) -> int:
        return self.max_length

    def example_inputs(self, batch: int) -> tuple[Tensor, ...]:
        """Return two texts of full length."""
        text = torch.zeros(batch, self.max_length, dtype=torch.long)
        return text, text


class TransformerConfig(DecoderConfig):
    """The encoder-decoder of "Attention Is All You Need" (1706.03762, Table 3).

    Example:
        >>> config = vt.TransformerConfig.base(vocabulary=37000)  # of the paper
        >>> config.width, config.depth, config.heads
        (512, 6, 8)
    """

    encoder_depth: Positive = setting(6, "number of encoder layers [N]")
    encoder_heads: Positive | None = setting(
        None, "number of attention heads of the encoder; None: the same as `heads`"
    )
    encoder_mlp_dim: Positive | None = setting(
        None, "number of hidden units of the encoder's MLPs; None: the same as `mlp_dim`"
    )
    source_vocabulary: Positive | None = setting(
        None, "size of the source vocabulary; None: source and target share one vocabulary and its embedding"
    )

    @classmethod
    def base(cls, **overrides: object) -> TransformerConfig:
        """Return the paper's base model: N = 6, d_model 512, d_ff 2048, h = 8, dropout 0.1."""
        return cls(**overrides)

    @classmethod
    def big(cls, **overrides: object) -> TransformerConfig:
        """Return the paper's big model: N = 6, d_model 1024, d_ff 4096, h = 16, dropout 0.3."""
        return cls(**{"width": 1024, "mlp_dim": 4096, "heads": 16, "dropout": 0.3, **overrides})

    @model_validator(mode="after")
    def _heads_of_the_encoder(self) -> TransformerConfig:
        if self.encoder_heads and self.width % self.encoder_heads:
            raise ValueError(f"width {self.width} is not a multiple of {self.encoder_heads} encoder_heads")
        return self


# The models of 1706.03762's Table 3, which `vitreous describe` knows by name.
NAMED = {"transformer-base": TransformerConfig.base, "transformer-big": TransformerConfig.big}


def named(name: str) -> dict[str, object]:
    """Return the fields that a name stands for. Raises InputError: there is no such model."""
    if name not in NAMED:
        raise InputError(f"unknown model {name!r}: {nearest(name, list(NAMED))}")
    return NAMED[name]().model_dump()


class CaptionerConfig(Config):
    """Images to text: a Vision Transformer's tokens, read by a decoder."""

    encoder: ViTConfig = ViTConfig(num_classes=None)
    decoder: DecoderConfig = DecoderConfig()

    @model_validator(mode="after")
    def _no_head(self) -> CaptionerConfig:
        if self.encoder.num_classes is not None:
            raise ValueError("a captioner's encoder has no classes: set encoder.num_classes to none")
        return self

    def example_inputs(self, batch: int) -> tuple[Tensor, ...]:
        """Return images, and a text of full length."""
        text = torch.zeros(batch, self.decoder.max_length, dtype=torch.long)
        return torch.empty(batch, self.encoder.channels, *self.encoder.image_size), text
