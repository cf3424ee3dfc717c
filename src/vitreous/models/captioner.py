"""Images to text: the decoder of 2017 reads the Vision Transformer's tokens (TrOCR, arXiv 2109.10282).

memory = encode(images)              (B, T, D) tokens of the image, class token and all
logits = decode(target, memory)
"""

from __future__ import annotations

from jaxtyping import Float, Int
from torch import Tensor, nn

from vitreous.layers.initialization import fresh_weights
from vitreous.models.preprocessing import Preprocessing
from vitreous.models.sequence_config import CaptionerConfig
from vitreous.models.transformer import Memory, TextDecoder
from vitreous.models.vit import ViT


class Captioner(nn.Module):
    """A ViT encoder and a text decoder.

    Attributes:
        config: the whole description of the function that the model computes.
        preprocessing: from images to the `images` that the encoder was made for.
    """

    labels = None
    task = "captioning"

    def __init__(
        self, config: CaptionerConfig, *, preprocessing: Preprocessing | None = None, seed: int = 0
    ) -> None:
        super().__init__()
        self.config = config
        with fresh_weights(self, seed):
            self.encoder = ViT(config.encoder, preprocessing=preprocessing)
            self.text = TextDecoder(config.decoder, context_width=config.encoder.width)

    @property
    def preprocessing(self) -> Preprocessing:
        return self.encoder.preprocessing

    def encode(self, images: Float[Tensor, "B C H W"]) -> Memory:
        """What the decoder reads."""
        return Memory(self.encoder.tokens(images))

    def decode(self, target: Int[Tensor, "B T"], memory: Memory) -> Float[Tensor, "B T V"]:
        """Logits of the token after each target token, which begin with `config.decoder.start`."""
        return self.text(target, memory)

    def forward(self, images: Float[Tensor, "B C H W"], target: Int[Tensor, "B T"]) -> Float[Tensor, "B T V"]:
        return self.decode(target, self.encode(images))
