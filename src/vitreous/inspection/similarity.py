"""What the position embeddings have learned of the plane (paper, Fig. 7 center and Fig. 10)."""

from __future__ import annotations

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from vitreous.errors import InputError
from vitreous.layers.positions import LearnedPositions, LearnedPositions2d, SinCosPositions2d
from vitreous.models.names import Model
from vitreous.models.vit import ViT

Positions = LearnedPositions | LearnedPositions2d | SinCosPositions2d


def position_rows(model: Model) -> Float[Tensor, "N D"]:
    """The position embedding of each patch; of the first layer, where every layer has its own.

    Raises:
        InputError: positions are not added to the tokens, or there are none; the sentence says which.
    """
    if not isinstance(model, ViT):
        raise InputError("a convolutional network has no position embeddings")
    for module in (model.position, getattr(model.blocks[0], "position", None)):
        if isinstance(module, Positions):
            return module.rows()[module.extra :].detach().float()
    kind = model.config.position.kind
    if kind == "none":
        raise InputError("the model has no position embeddings")
    raise InputError(f"{kind} positions act inside the attention: there is no embedding of a place")


def position_similarity(
    rows: Float[Tensor, "N D"], grid: tuple[int, int]
) -> Float[Tensor, "rows columns rows columns"]:
    """[i, j, k, l]: the cosine between the embedding of the patch at (i, j) and of that at (k, l)."""
    unit = F.normalize(rows, dim=-1)
    return (unit @ unit.T).reshape(*grid, *grid)
