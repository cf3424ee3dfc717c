"""The tokens behind every layer, and what the head would already say of them: the logit lens.

nostalgebraist, "interpreting GPT: the logit lens" (2020), carried over to images.
"""

from __future__ import annotations

from collections.abc import Iterator

from jaxtyping import Float
from torch import Tensor

from vitreous.models.vit import ViT


def layer_tokens(model: ViT, images: Float[Tensor, "B C H W"]) -> Iterator[Float[Tensor, "B T D"]]:
    """z_0, z_1 ... z_L of Eq. 1 to 3, one at a time."""
    z = model.embed(images)
    yield z
    for block in model.blocks:
        z = block(z)
        yield z


def read(model: ViT, z: Float[Tensor, "B T D"]) -> Float[Tensor, "B classes"]:
    """The class probabilities if the encoder ended with these tokens: the same norm, pooling and head."""
    return model.head(model.representation(model.pool(model.norm(z)))).softmax(dim=-1)
