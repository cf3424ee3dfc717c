"""The size of a gradient, whole or in shards."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor


def global_norm(gradients: Sequence[Tensor]) -> Float[Tensor, ""]:
    """The norm of all gradients as one vector. Of shards it is the whole vector's: all processes must ask."""
    norm = torch.nn.utils.get_total_norm(gradients)
    return norm if type(norm) is Tensor else norm.full_tensor()  # type: ignore[attr-defined]
