"""Masked patch prediction, the ViT paper's own self-supervision (arXiv 2010.11929, appendix B.1.2).

Half of the patch embeddings are corrupted: 80% of those become a learnable [mask], 10% become another
patch's embedding, 10% stay as they are. For every corrupted patch the model predicts, from that patch's
representation, one of three targets:

mean-color    its mean color with 3 bits a channel, one of 512; what the paper used.
small-colors  the patch scaled down to 4x4 pixels of 3-bit colors, 16 predictions in parallel.
pixels         the whole patch, by L2.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor, nn

from vitreous.data.batch_augmentation import on_device
from vitreous.errors import InputError
from vitreous.layers.initialization import init_weights
from vitreous.models.model import Model
from vitreous.models.preprocessing import Preprocessing
from vitreous.rng import torch_generator
from vitreous.tasks.pretraining.masking import MaskedPrediction, Reconstruction, put_tokens, take_tokens
from vitreous.tasks.pretraining.rules import MaskedPatchConfig

LEVELS = 8  # 3 bits
SMALL = 4  # sides of the scaled-down patch
RARE = 1e-4  # share of a color that no image of a sample has


class Corruption(NamedTuple):
    """Which M patches of each image are corrupted, and how.

    places: index of each corrupted patch.
    draw: uniform in 0 ... 1; below `masked` the patch becomes [mask], below masked + swapped another patch.
    others: index of the patch whose embedding it would get; never its own.
    """

    places: Int[Tensor, "B M"]
    draw: Float[Tensor, "B M"]
    others: Int[Tensor, "B M"]

    def to_device_of(self, images: Tensor) -> Corruption:
        """Return the same on the device of some images."""
        return Corruption(*(on_device(each, images) for each in self))


class MaskedPatchPrediction(MaskedPrediction):
    """The objective around `model`. The paper does not say where the other patch's embedding comes from: here
    from the same image."""

    def __init__(self, model: Model, config: MaskedPatchConfig | None = None, *, seed: int = 0) -> None:
        super().__init__(model)
        self.config = config or MaskedPatchConfig()
        self.target = self.config.target
        vit = self.model.config
        if not round(self.num_patches * self.config.corrupted):
            raise InputError(
                f"pretraining.masked_patch.corrupted={self.config.corrupted:g} corrupts none of the "
                f"{self.num_patches} patches: use a larger share, or smaller patches"
            )
        if self.target != "pixels" and vit.channels > 3:
            raise InputError(
                f"3-bit colors of {vit.channels} channels make too many classes: "
                "set pretraining.masked_patch.target=pixels"
            )
        outputs = {
            "mean-color": LEVELS**vit.channels,
            "small-colors": SMALL * SMALL * LEVELS**vit.channels,
            "pixels": self.patch_dim,
        }
        rng = torch_generator(seed, "masked-patch head")
        self.mask = nn.Parameter(torch.empty(vit.width).normal_(std=0.02, generator=rng))
        self.prediction = nn.Linear(vit.width, outputs[self.target])
        init_weights(self.prediction, rng)

    def draw(self, batch: int, generator: torch.Generator) -> Corruption:
        """Return the corruption of `batch` images; the same for the same state of the generator."""
        patches = self.num_patches
        shuffled = torch.rand(batch, patches, generator=generator).argsort(dim=1)
        places = shuffled[:, : round(patches * self.config.corrupted)]
        steps = torch.randint(1, max(patches, 2), places.shape, generator=generator)
        return Corruption(places, torch.rand(places.shape, generator=generator), (places + steps) % patches)

    def corrupt(self, embeddings: Float[Tensor, "B N D"], corruption: Corruption) -> Float[Tensor, "B N D"]:
        """Return the patch embeddings with the corrupted ones replaced."""
        places, draw, others = corruption
        draw = draw.unsqueeze(-1)
        masked, swapped = self.config.masked, self.config.masked + self.config.swapped
        kept_or_swapped = torch.where(
            draw < swapped, take_tokens(embeddings, others), take_tokens(embeddings, places)
        )
        return put_tokens(embeddings, places, torch.where(draw < masked, self.mask, kept_or_swapped))

    def predict(
        self, images: Float[Tensor, "B C H W"], corruption: Corruption
    ) -> Float[Tensor, "B M outputs"]:
        """Return the prediction for every corrupted patch."""
        replaced = corruption.draw < self.config.masked + self.config.swapped
        hidden = torch.zeros(len(images), self.num_patches, dtype=torch.bool, device=images.device)
        embeddings = self.embed_patches(images, hidden.scatter(1, corruption.places, replaced))
        tokens = self.encode_patches(self.corrupt(embeddings, corruption))
        return self.prediction(take_tokens(tokens, corruption.places))

    def forward(
        self, images: Float[Tensor, "B C H W"], generator: torch.Generator
    ) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
        """Return the loss over all corrupted patches, and for colors the share that was guessed right."""
        corruption = self.draw(images.shape[0], generator).to_device_of(images)
        predicted = self.predict(images, corruption)
        if self.config.target == "pixels":
            return F.mse_loss(predicted, take_tokens(self.pixel_targets(images), corruption.places)), {}
        target = take_tokens(self.colors(images), corruption.places)
        logits = rearrange(predicted, "B M (s classes) -> (B M s) classes", s=self.side**2)
        right = (logits.argmax(dim=-1) == target.flatten()).float().mean()
        return F.cross_entropy(logits, target.flatten()), {"accuracy": right}

    @property
    def last_layer(self) -> nn.Linear:
        return self.prediction

    def best_constant(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, " outputs"]:
        if self.target == "pixels":
            return self.pixel_targets(images).mean(dim=(0, 1))
        return (self.shares(self.colors(images).flatten(0, 1)) + RARE).log().flatten()

    def shares(self, colors: Int[Tensor, "M s"]) -> Float[Tensor, "s classes"]:
        """Return the share of each color at each place of a patch."""
        classes = LEVELS**self.model.config.channels
        return torch.stack([each.bincount(minlength=classes) for each in colors.unbind(dim=1)]) / len(colors)

    def colors(self, images: Float[Tensor, "B C H W"]) -> Int[Tensor, "B N s"]:
        """Return the colors of each patch, without what `looks` returns."""
        model = self.model
        seen = images if self.looks(images) is None else F.instance_norm(images)
        whole, patch = model.whole_patches(seen), model.config.patch_size
        return color_targets(whole, patch, side=self.side, preprocessing=model.preprocessing)

    @torch.no_grad()
    def trivial_loss(self, images: Float[Tensor, "B C H W"], generator: torch.Generator) -> Float[Tensor, ""]:
        places = self.draw(images.shape[0], generator).to_device_of(images).places
        if self.config.target == "pixels":
            return (
                take_tokens(self.pixel_targets(images), places).flatten(0, 1).var(dim=0, correction=0).mean()
            )
        shares = self.shares(take_tokens(self.colors(images), places).flatten(0, 1))
        return torch.special.entr(shares).sum(dim=1).mean()

    @torch.no_grad()
    def reconstruct(self, images: Float[Tensor, "B C H W"], generator: torch.Generator) -> Reconstruction:
        """Return every corrupted patch in gray, and as the model would paint it."""
        corruption = self.draw(images.shape[0], generator).to_device_of(images)
        predicted = self.predict(images, corruption)
        predicted = self.pixels_of(predicted if self.target == "pixels" else self.painted(predicted), images)
        patches = self.patches(images)
        masked = put_tokens(patches, corruption.places, torch.zeros_like(predicted))
        return self.reconstruction(masked, put_tokens(patches, corruption.places, predicted))

    @property
    def side(self) -> int:
        """How many colors are predicted along each side of a patch."""
        return 1 if self.config.target == "mean-color" else SMALL

    def painted(self, logits: Float[Tensor, "B M outputs"]) -> Float[Tensor, "B M patch_dim"]:
        """Return the normalized pixels of patches in their most probable colors."""
        vit, preprocessing, side = self.model.config, self.model.preprocessing, self.side
        colors = rearrange(logits, "B M (s classes) -> B M s classes", s=side * side).argmax(dim=-1)
        levels = torch.stack(
            [colors // LEVELS**power % LEVELS for power in reversed(range(vit.channels))], dim=-1
        )
        values = (levels + 0.5) / LEVELS  # the middle of what was rounded to the level; (B, M, s, C)
        values = (values - values.new_tensor(preprocessing.mean)) / values.new_tensor(preprocessing.std)
        small = rearrange(values, "B M (h w) C -> (B M) C h w", h=side)
        patches = F.interpolate(small, size=vit.patch_size, mode="nearest")
        return rearrange(patches, "(B M) C p q -> B M (p q C)", B=logits.shape[0])


def color_targets(
    images: Float[Tensor, "B C H W"], patch: tuple[int, int], *, side: int, preprocessing: Preprocessing
) -> Int[Tensor, "B N cells"]:
    """Return the 3-bit mean color of each of side x side cells of every patch, as a class: the first channel
    has the highest bits, so that RGB (r, g, b) in 0 ... 7 is 64 r + 8 g + b.

    Args:
        images: normalized; `preprocessing` says with which mean and standard deviation.
    """
    known = (torch.tensor(each, dtype=images.dtype) for each in (preprocessing.mean, preprocessing.std))
    mean, std = (on_device(each.view(-1, 1, 1), images) for each in known)
    cells = (images.shape[-2] // patch[0] * side, images.shape[-1] // patch[1] * side)
    means = F.adaptive_avg_pool2d(images * std + mean, cells)  # 0 ... 1
    levels = (means * LEVELS).floor().clamp(0, LEVELS - 1).long()
    weights = LEVELS ** torch.arange(images.shape[1] - 1, -1, -1, device=images.device)
    classes = (levels * weights.view(-1, 1, 1)).sum(dim=1)
    return rearrange(classes, "B (h s) (w t) -> B (h w) (s t)", s=side, t=side)
