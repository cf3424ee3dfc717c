"""Which tokens the head sees: where a question "what did the model look at?" begins."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from vitreous.layers.pooling import AttentionPooling
from vitreous.models.config import ViTConfig
from vitreous.models.vit import ViT


def readout_weights(config: ViTConfig) -> Float[Tensor, "T"]:
    """How much each token of the last layer counts in what is pooled; sums to one.

    The class token alone (Eq. 4), the mean of the patches, or the halves of both. Attention pooling weighs
    patches by their content, which only `readout_of` an image can tell; here they count alike.
    """
    weights = torch.zeros(config.sequence_length)
    patches = torch.zeros(config.sequence_length)
    patches[config.num_prefix_tokens :] = 1 / (config.sequence_length - config.num_prefix_tokens)
    match config.pooling:
        case "class":
            weights[0] = 1
        case "class+distillation":
            weights[:2] = 0.5
        case "class+mean":
            weights[0] = 0.5
            weights = weights + patches / 2
        case "mean-all":
            weights[:] = 1 / config.sequence_length
        case "mean" | "attention":
            weights = patches
    return weights


def readout_of(model: ViT, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B T"]:
    """How much each token of the last layer counts, image by image; rows sum to one. On the CPU.

    For attention pooling this is its own map, mean of its heads: the last step of a rollout.
    """
    pool = attention_pooling(model)
    if pool is None:
        return readout_weights(model.config).expand(images.shape[0], -1)
    with torch.no_grad():
        return pooling_maps(pool, model.tokens(images)).mean(dim=1).float().cpu()


def attention_pooling(model: ViT) -> AttentionPooling | None:
    """The model's pooling, if it is one by attention; with or without a norm behind it."""
    return next((each for each in model.pool.modules() if isinstance(each, AttentionPooling)), None)


def pooling_maps(pool: AttentionPooling, z: Float[Tensor, "B T D"]) -> Float[Tensor, "B K T"]:
    """What the learned probe attends to in each head; nothing of the tokens that it does not see."""
    probe = pool.probe.expand(z.shape[0], -1, -1)
    maps = pool.attention.attention_weights(probe, z[:, pool.skip :])[:, :, 0]
    return F.pad(maps, (pool.skip, 0))


def readout_name(config: ViTConfig) -> str:
    """The same in words, for captions."""
    return {
        "class": "the class token",
        "class+distillation": "the class and the distillation token",
        "class+mean": "the class token and the mean of the patches",
        "mean-all": "the mean of all tokens",
        "mean": "the mean of the patches",
        "attention": "the attention-weighted mean of the patches",
    }[config.pooling]


def readout_attention(
    maps: Float[Tensor, "*B K T T"], weights: Float[Tensor, "*#B T"]
) -> Float[Tensor, "*B K T"]:
    """What the head's tokens attend to: the rows of each map, averaged with `weights`."""
    return torch.einsum("...t,...kts->...ks", weights.to(maps), maps)


def to_grid(values: Float[Tensor, "*B T"], config: ViTConfig) -> Float[Tensor, "*B rows columns"]:
    """The patches' part of a value per token, laid out as in the image."""
    return values[..., config.num_prefix_tokens :].reshape(*values.shape[:-1], *config.grid)
