"""How spread a head's attention is: from one token (0) to all tokens alike (1)."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor


def head_entropy(maps: Float[Tensor, "*B K T T"]) -> Float[Tensor, "*B K"]:
    """Mean entropy of a head's rows, as a share of log T, the entropy of uniform attention."""
    tokens = maps.shape[-1]
    return torch.special.entr(maps).sum(dim=-1).mean(dim=-1) / max(math.log(tokens), 1e-12)
