"""Attention rollout: which input patches reach a token through all layers.

Abnar & Zuidema, arXiv 2005.00928. The paper's Fig. 6 and 14 are made with it (appendix D.8).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor


def flow(maps: Float[Tensor, "B K T T"]) -> Float[Tensor, "B T T"]:
    """One layer of the rollout: half the heads' mean, half the residual connection: 0.5 A + 0.5 I."""
    identity = torch.eye(maps.shape[-1], dtype=maps.dtype, device=maps.device)
    return (maps.mean(dim=1) + identity) / 2


def rollout(flows: Sequence[Float[Tensor, "B T T"]]) -> Float[Tensor, "B T T"]:
    """Row t: how much of each input token arrives at token t of the last layer; rows sum to one.

    The product of all layers' flows, the last on the left (equation 1 of 2005.00928).
    """
    total = flows[0]
    for layer in flows[1:]:
        total = layer @ total
    return total
