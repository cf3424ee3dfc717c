"""Models that have a Vision Transformer inside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from vitreous.models.config import Origin
from vitreous.models.preprocessing import Preprocessing
from vitreous.models.vit import Images, ViT


class WithEncoder(nn.Module):
    """A model around a Vision Transformer, such as one that decodes its patch tokens. What is done with a ViT
    (resizing, freezing, rates that decay with depth, inspection) is done with the one inside.

    Attributes:
        encoder: the ViT, without a head.
        head: what comes after it.
        config: whose `encoder` is that of the ViT.
        preprocessing, labels, task, temperature, origin: as of a ViT.
    """

    encoder: ViT
    head: nn.Module
    config: Any
    preprocessing: Preprocessing
    labels: list[str] | None
    task: str | None
    temperature: float
    origin: Origin | None

    def tokens(self, images: Images) -> Float[Tensor, "B T D"]:
        """All tokens of the encoder after its final norm."""
        return self.encoder.tokens(images)

    def intermediates(
        self, images: Images, layers: Sequence[int] | None = None, *, maps: bool = False, norm: bool = False
    ) -> list[Float[Tensor, "B T D"]] | list[Float[Tensor, "B D h w"]]:
        """Return the tokens of the encoder after some layers: see `ViT.intermediates`."""
        return self.encoder.intermediates(images, layers, maps=maps, norm=norm)

    def features(self, images: Images) -> Float[Tensor, "B D"]:
        """The pooled tokens of the encoder."""
        return self.encoder.features(images)


def encoder_of(model: nn.Module) -> nn.Module:
    """Return the Vision Transformer inside a model; any other model is its own encoder."""
    return model.encoder if isinstance(model, WithEncoder) else model
