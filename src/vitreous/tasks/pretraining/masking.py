"""What the masked objectives share: hiding tokens, picking tokens, and which models can be masked."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vitreous.errors import InputError
from vitreous.models.config import ViTConfig
from vitreous.models.names import Model
from vitreous.models.vit import ViT


class Reconstruction(NamedTuple):
    """What a report shows of masked prediction, both as normalized images like those that went in.

    masked: the image with its hidden patches in the mean color.
    reconstructed: the image with the model's guess in the hidden patches.
    """

    masked: Float[Tensor, "B C H W"]
    reconstructed: Float[Tensor, "B C H W"]


def maskable(model: Model) -> ViT:
    """The same model, if hiding some of its patches hides their pixels.

    Raises:
        InputError: a model without patch tokens, or with a stem that looks across the borders of patches.
    """
    if not isinstance(model, ViT):
        raise InputError("a BiT has no patch tokens to mask: pretrain a ViT, or use --objective dino")
    stem = model.config.stem.kind
    if stem != "patch":
        raise InputError(
            f"a {stem} stem sees the neighbors of a patch, so a masked patch would leak into them: "
            "set model.stem.kind=patch, or use --objective dino"
        )
    return model


def take(tokens: Float[Tensor, "B N D"], places: Int[Tensor, "B M"]) -> Float[Tensor, "B M D"]:
    """The tokens at `places`, image by image."""
    return tokens.gather(1, places.unsqueeze(-1).expand(-1, -1, tokens.shape[-1]))


def put(
    tokens: Float[Tensor, "B N D"], places: Int[Tensor, "B M"], new: Float[Tensor, "B M D"]
) -> Float[Tensor, "B N D"]:
    """`tokens` with those at `places` replaced by `new`."""
    return tokens.scatter(1, places.unsqueeze(-1).expand(-1, -1, tokens.shape[-1]), new)


def random_places(batch: int, patches: int, count: int, generator: torch.Generator) -> Int[Tensor, "B M"]:
    """`count` different patches of each image, in random order."""
    return torch.rand(batch, patches, generator=generator).argsort(dim=1)[:, :count]


def encode_patches(model: ViT, patches: Float[Tensor, "B N D"]) -> Float[Tensor, "B N D"]:
    """The patch tokens after the last layer and the final norm, from (corrupted) outputs of the stem:
    Eq. 1-4 of the paper as `ViT.tokens` computes them, entered after the stem."""
    tokens = model.norm(model.encode(model.positioned(patches)))
    return tokens[:, model.config.num_prefix_tokens :]


def patch_dim(config: ViTConfig) -> int:
    """Numbers in one patch of pixels: P^2 C."""
    return config.patch_size[0] * config.patch_size[1] * config.channels
