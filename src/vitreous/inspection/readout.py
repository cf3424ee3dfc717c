"""Which tokens the head sees: where a question "what did the model look at?" begins."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from vitreous.models.config import ViTConfig


def readout_weights(config: ViTConfig) -> Float[Tensor, "T"]:
    """How much each token of the last layer counts in what is pooled; sums to one.

    The class token alone (Eq. 4), the mean of the patches, or the halves of both. Attention pooling weighs
    patches by their content; here they count alike.
    """
    weights = torch.zeros(config.tokens)
    patches = torch.zeros(config.tokens)
    patches[config.prefix :] = 1 / (config.tokens - config.prefix)
    match config.pooling:
        case "class":
            weights[0] = 1
        case "class+distillation":
            weights[:2] = 0.5
        case "class+mean":
            weights[0] = 0.5
            weights = weights + patches / 2
        case "mean-all":
            weights[:] = 1 / config.tokens
        case "mean" | "attention":
            weights = patches
    return weights


def readout_name(config: ViTConfig) -> str:
    """The same in words, for captions."""
    return {
        "class": "the class token",
        "class+distillation": "the class and the distillation token",
        "class+mean": "the class token and the mean of the patches",
        "mean-all": "the mean of all tokens",
        "mean": "the mean of the patches",
        "attention": "the patches, each counted alike",
    }[config.pooling]


def readout_attention(
    maps: Float[Tensor, "*B K T T"], weights: Float[Tensor, "T"]
) -> Float[Tensor, "*B K T"]:
    """What the head's tokens attend to: the rows of each map, averaged with `weights`."""
    return torch.einsum("t,...ts->...s", weights.to(maps), maps)


def to_grid(values: Float[Tensor, "*B T"], config: ViTConfig) -> Float[Tensor, "*B rows columns"]:
    """The patches' part of a value per token, laid out as in the picture."""
    return values[..., config.prefix :].reshape(*values.shape[:-1], *config.grid)
