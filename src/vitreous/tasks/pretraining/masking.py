"""What the masked objectives share."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float, Int, Num
from torch import Tensor, nn

from vitreous.errors import InputError
from vitreous.layers.stems import from_patches, to_patches
from vitreous.models.names import Model
from vitreous.models.vit import ViT


class Reconstruction(NamedTuple):
    """What a report shows of masked prediction, both as normalized images like those that went in.

    masked: the image with its hidden patches in the mean color.
    reconstructed: the image with the model's guess in the hidden patches.
    """

    masked: Float[Tensor, "B C H W"]
    reconstructed: Float[Tensor, "B C H W"]


class MaskedPrediction(nn.Module):
    """An objective that hides patches of images and predicts them.

    Args:
        model: what is pre-trained.

    Raises:
        InputError: a model without patch tokens, or with a stem that looks across the borders of patches.
    """

    def __init__(self, model: Model) -> None:
        super().__init__()
        if not isinstance(model, ViT):
            raise InputError("a BiT has no patch tokens to mask: pretrain a ViT, or use --objective dino")
        if (stem := model.config.stem.kind) != "patch":
            raise InputError(
                f"a {stem} stem sees the neighbors of a patch, so a masked patch would leak into them: "
                "set model.stem.kind=patch, or use --objective dino"
            )
        self.model = model
        height, width = self.model.config.grid
        self.num_patches = height * width

    @property
    def encoder(self) -> ViT:
        """What pre-training was for; the rest is discarded."""
        return self.model

    @property
    def patch_dim(self) -> int:
        """Numbers in one patch of pixels: P^2 C."""
        p, q = self.model.config.patch_size
        return p * q * self.model.config.channels

    def patches(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B N patch_dim"]:
        """Return the pixels of each patch."""
        return to_patches(self.model.pad_images(images), self.model.config.patch_size)

    def reconstruction(
        self, masked: Float[Tensor, "B N patch_dim"], filled: Float[Tensor, "B N patch_dim"]
    ) -> Reconstruction:
        """Return the images of patches."""
        grid, patch = self.model.config.grid, self.model.config.patch_size
        return Reconstruction(from_patches(masked, grid, patch), from_patches(filled, grid, patch))

    def encode_patches(self, patches: Float[Tensor, "B N D"]) -> Float[Tensor, "B N D"]:
        """Return the patch tokens after the last layer and the final norm, from (corrupted) outputs of the
        stem: Eq. 1-4 of the ViT paper as `ViT.tokens` computes them, entered after the stem."""
        z = self.model.add_positions(self.model.prepend_tokens(patches))
        tokens = self.model.norm(self.model.encode(z))
        return tokens[:, self.model.config.num_prefix_tokens :]


def take(tokens: Num[Tensor, "B N D"], places: Int[Tensor, "B M"]) -> Num[Tensor, "B M D"]:
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
