"""What the masked objectives share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int, Num
from torch import Tensor, nn

from vitreous.errors import InputError, Param
from vitreous.layers.embedding import ConvolutionStem, from_patches, to_patches
from vitreous.models.config_parts import ConvolutionStemConfig
from vitreous.models.model import Model
from vitreous.models.vit import ViT
from vitreous.training.objectives import Illustration


class Reconstruction(NamedTuple):
    """What a report shows of masked prediction, both as normalized images like those that went in.

    masked: the image with its hidden patches in the mean color.
    reconstructed: the image with the model's guess in the hidden patches.
    """

    masked: Float[Tensor, "B C H W"]
    reconstructed: Float[Tensor, "B C H W"]


class Masking(NamedTuple):
    """Where patches went: the visible ones first, each group by ascending noise.

    order: the patch at each place of the shuffled sequence.
    visible: how many of them the encoder sees.
    """

    order: Int[Tensor, "B N"]
    visible: int

    @property
    def removed(self) -> Int[Tensor, "B M"]:
        """Indices of the patches that the encoder does not see."""
        return self.order[:, self.visible :]


class MaskedPrediction(nn.Module, ABC):
    """An objective that hides patches of images and predicts them.

    Args:
        model: what is pre-trained.

    Raises:
        InputError: a model without patch tokens.
    """

    target: str | None = None  # what is predicted, where an objective has several

    def __init__(self, model: Model) -> None:
        super().__init__()
        if not isinstance(model, ViT):
            raise InputError(
                f"a BiT has no patch tokens to mask: pretrain a ViT, or use another {Param('objective')}"
            )
        self.model = model
        for unused in (self.model.pool, self.model.representation, self.model.head):
            # Patches are predicted and nothing is pooled, so these weights would get no gradient.
            unused.requires_grad_(False)
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
        return to_patches(self.model.whole_patches(images), self.model.config.patch_size)

    def looks(
        self, images: Float[Tensor, "B C H W"]
    ) -> tuple[Float[Tensor, "B 1 patch_dim"], Float[Tensor, "B 1 patch_dim"]] | None:
        """Return the mean and standard deviation of each channel of each image, for each number of a patch,
        where the stem takes them away: they are not to be predicted. None: the stem does not."""
        stem = self.model.config.stem
        if not isinstance(stem, ConvolutionStemConfig) or stem.norm != "instance":
            return None
        variance, mean = torch.var_mean(images, dim=(2, 3), correction=0)
        std, pixels = (variance + 1e-6).sqrt(), self.patch_dim // images.shape[1]
        return mean.repeat(1, pixels).unsqueeze(1), std.repeat(1, pixels).unsqueeze(1)

    def pixel_targets(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B N patch_dim"]:
        """Return the pixels of each patch, without what `looks` returns."""
        patches, looks = self.patches(images), self.looks(images)
        return patches if looks is None else (patches - looks[0]) / looks[1]

    def pixels_of(
        self, predicted: Float[Tensor, "B N patch_dim"], images: Float[Tensor, "B C H W"]
    ) -> Float[Tensor, "B N patch_dim"]:
        """Return the inverse of `pixel_targets`."""
        looks = self.looks(images)
        return predicted if looks is None else predicted * looks[1] + looks[0]

    @torch.no_grad()
    def start_at_constant(self, images: Float[Tensor, "B C H W"]) -> None:
        """Let the prediction start as the best one that does not look at the image. Else the first thing that
        the tokens learn is to be alike: one large vector that all of them share, which hides the rest."""
        nn.init.zeros_(self.last_layer.weight)
        self.last_layer.bias.copy_(self.best_constant(images))

    @property
    @abstractmethod
    def last_layer(self) -> nn.Linear:
        """What predicts."""

    @abstractmethod
    def best_constant(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, " outputs"]:
        """Return the output that, given for every patch of these images, has the lowest loss."""

    def embed_patches(
        self, images: Float[Tensor, "B C H W"], hidden: Bool[Tensor, "B N"]
    ) -> Float[Tensor, "B N D"]:
        """Return the outputs of the stem, where those of `hidden` patches are to be replaced or removed. A
        stem of convolutions, which sees the neighbors, leaves them out; that of a hybrid gets them in the
        mean color."""
        images = self.model.whole_patches(images)
        if isinstance(self.model.stem, ConvolutionStem):
            return visible_tokens(self.model.stem, images, ~hidden.view(-1, *self.model.config.grid))
        if self.model.config.stem.kind != "patch":
            grid, patch = self.model.config.grid, self.model.config.patch_size
            pixels = to_patches(images, patch).masked_fill(hidden.unsqueeze(-1), 0.0)
            images = from_patches(pixels, grid, patch)
        return self.model.stem(images)

    def reconstruction(
        self, masked: Float[Tensor, "B N patch_dim"], filled: Float[Tensor, "B N patch_dim"]
    ) -> Reconstruction:
        """Return the images of patches."""
        grid, patch = self.model.config.grid, self.model.config.patch_size
        return Reconstruction(from_patches(masked, grid, patch), from_patches(filled, grid, patch))

    @abstractmethod
    def reconstruct(self, images: Float[Tensor, "B C H W"], generator: torch.Generator) -> Reconstruction:
        """Return the images with some patches hidden, and with what is predicted there."""

    def illustration(self, images: Float[Tensor, "B C H W"], generator: torch.Generator) -> Illustration:
        """Show each image whole, masked and reconstructed."""
        columns = {"image": images, **self.eval().reconstruct(images, generator)._asdict()}
        return Illustration("reconstruction", columns, target=self.target)

    @abstractmethod
    def trivial_loss(self, images: Float[Tensor, "B C H W"], generator: torch.Generator) -> Float[Tensor, ""]:
        """Return the loss of the best prediction that does not look at the image."""

    def encode_patches(self, patches: Float[Tensor, "B N D"]) -> Float[Tensor, "B N D"]:
        """Return the patch tokens after the last layer and the final norm, from (corrupted) outputs of the
        stem: Eq. 1-4 of the ViT paper as `ViT.tokens` computes them, entered after the stem."""
        z = self.model.add_positions(self.model.prepend_tokens(patches))
        tokens = self.model.norm(self.model.encode(z))
        return tokens[:, self.model.config.num_prefix_tokens :]


def visible_tokens(
    stem: ConvolutionStem, images: Float[Tensor, "B C H W"], visible: Bool[Tensor, "B h w"]
) -> Float[Tensor, "B N D"]:
    """Return the tokens of images of which only some patches are visible: the others are zero between all
    convolutions and do not count in the norms, so that a visible patch looks as it does in the whole image
    (sparse convolution, arXiv 2301.03580)."""
    z, cells = images, visible.unsqueeze(1).to(images.dtype)
    shares = cells.mean(dim=(2, 3), keepdim=True).clamp(min=1e-6)
    for layer in stem.convolutions:
        if isinstance(layer, nn.GroupNorm):
            z = visible_norm(layer, z * F.interpolate(cells, z.shape[-2:]), shares)
        else:
            z = layer(z * F.interpolate(cells, z.shape[-2:]) if isinstance(layer, nn.Conv2d) else z)
    return stem.project(z)


def visible_norm(
    norm: nn.GroupNorm, z: Float[Tensor, "B C H W"], shares: Float[Tensor, "B 1 1 1"]
) -> Float[Tensor, "B C H W"]:
    """Apply a GroupNorm with the mean and variance of what is visible, which has `shares` of each image; the
    rest of `z` is zero."""
    cells = z.float()
    groups = cells.view(len(z), norm.num_groups, -1)
    counts = shares.flatten(1) * groups.shape[2]
    # Two sums are taken, since torch.var_mean and its gradient take several times as long.
    mean = groups.sum(dim=2) / counts
    square = torch.linalg.vector_norm(groups, dim=2).square() / counts
    scale = torch.rsqrt((square - mean.square()).clamp(min=0) + norm.eps).unsqueeze(2)
    weight, bias = (each.view(norm.num_groups, -1) for each in (norm.weight, norm.bias))
    scales = scale * weight  # (B, groups, channels of a group)
    shifts = bias - mean.unsqueeze(2) * scales
    shape = (*z.shape[:2], 1, 1)
    return torch.addcmul(shifts.reshape(shape), cells, scales.reshape(shape)).to(z.dtype)


def statistics(
    patches: Float[Tensor, "B N patch_dim"],
) -> tuple[Float[Tensor, "B N 1"], Float[Tensor, "B N 1"]]:
    """Return the mean and standard deviation of each patch: unbiased variance plus 1e-6, as in the authors'
    code."""
    variance = patches.var(dim=-1, keepdim=True)
    return patches.mean(dim=-1, keepdim=True), (variance + 1e-6).sqrt()


def take_tokens(tokens: Num[Tensor, "B N D"], places: Int[Tensor, "B M"]) -> Num[Tensor, "B M D"]:
    """Return the tokens at `places`, image by image."""
    return tokens.gather(1, places.unsqueeze(-1).expand(-1, -1, tokens.shape[-1]))


def put_tokens(
    tokens: Float[Tensor, "B N D"], places: Int[Tensor, "B M"], new: Float[Tensor, "B M D"]
) -> Float[Tensor, "B N D"]:
    """Return `tokens` with those at `places` replaced by `new`."""
    return tokens.scatter(1, places.unsqueeze(-1).expand(-1, -1, tokens.shape[-1]), new.to(tokens.dtype))
