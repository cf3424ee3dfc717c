"""SimMIM (Xie et al., arXiv 2111.09886): random masking in coarse units, a learnable [mask] in place of the
hidden patch embeddings, one linear layer that predicts raw pixels, L1 over the hidden pixels."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from einops import repeat
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor, nn

from vitreous.layers.initialization import init_weights
from vitreous.models.config import Config, Positive, Probability
from vitreous.models.names import Model
from vitreous.rng import torch_generator
from vitreous.tasks.pretraining.masking import MaskedPrediction, Reconstruction, random_places


class SimMIMConfig(Config):
    """The paper masks 60 % in units of 32 pixels: two patches of ViT-B/16 a side."""

    mask_ratio: Probability = 0.6
    unit: Positive = Field(default=2, description="sides of a masked square, in patches")


class SimMIM(MaskedPrediction):
    """The objective around `model`. Unlike MAE's, the encoder sees all places and needs no decoder."""

    def __init__(self, model: Model, config: SimMIMConfig | None = None, *, seed: int = 0) -> None:
        super().__init__(model)
        self.config = config or SimMIMConfig()
        rng = torch_generator(seed, "simmim head")
        self.mask = nn.Parameter(torch.empty(self.model.config.width).normal_(std=0.02, generator=rng))
        self.prediction = nn.Linear(self.model.config.width, self.patch_dim)
        init_weights(self.prediction, rng)

    def draw(self, batch: int, generator: torch.Generator) -> Int[Tensor, "B N"]:
        """1 where a patch is hidden. Units at the right and bottom border may be cut."""
        height, width = self.model.config.grid
        rows, columns = (math.ceil(side / self.config.unit) for side in (height, width))
        count = math.ceil(rows * columns * self.config.mask_ratio)
        places = random_places(batch, rows * columns, count, generator)
        units = torch.zeros(batch, rows * columns, dtype=torch.int64).scatter(1, places, 1)
        unit = self.config.unit
        hidden = repeat(units.view(batch, rows, columns), "B h w -> B (h s) (w t)", s=unit, t=unit)
        return hidden[:, :height, :width].flatten(1)

    def predict(
        self, images: Float[Tensor, "B C H W"], hidden: Int[Tensor, "B N"]
    ) -> Float[Tensor, "B N patch_dim"]:
        """Pixels of every patch, (row, column, channel) in each."""
        embeddings = self.model.stem(self.model.pad_images(images))
        embeddings = torch.where(hidden.bool().unsqueeze(-1), self.mask, embeddings)
        return self.prediction(self.encode_patches(embeddings))

    def forward(
        self, images: Float[Tensor, "B C H W"], generator: torch.Generator
    ) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
        """The mean absolute error over hidden pixels."""
        hidden = self.draw(images.shape[0], generator).to(images.device)
        predicted = self.predict(images, hidden)
        errors = F.l1_loss(predicted, self.patches(images), reduction="none").mean(dim=-1)
        return (errors * hidden).sum() / hidden.sum(), {}

    @torch.no_grad()
    def reconstruct(self, images: Float[Tensor, "B C H W"], generator: torch.Generator) -> Reconstruction:
        """Hidden patches in gray, and filled in."""
        hidden = self.draw(images.shape[0], generator).to(images.device)
        patches, here = self.patches(images), hidden.bool().unsqueeze(-1)
        filled = torch.where(here, self.predict(images, hidden), patches)
        return self.reconstruction(torch.where(here, 0.0, patches), filled)
