"""A model without weights of its own: what another engine computes from a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from vitreous.errors import InputError
from vitreous.models.preprocessing import Preprocessing

Compute = Callable[..., list[np.ndarray]]


class Program(nn.Module):
    """An exported model: its logits and its features, without weights to look at or to train.

    Args:
        path: the file.
        compute: returns logits and features of images, as arrays; or the logits alone, `compute(images, 1)`.
        config, preprocessing, labels, task: of the model that was exported.
        digest: of the file, in place of weights for whatever is cached by them.
    """

    def __init__(
        self,
        path: Path,
        compute: Compute,
        config: Any,
        preprocessing: Preprocessing,
        labels: list[str] | None,
        task: str | None,
        digest: bytes,
    ) -> None:
        super().__init__()
        self.path, self.compute = path, compute
        self.config, self.preprocessing, self.labels, self.task = config, preprocessing, labels, task
        self.temperature = 1.0  # what calibration has changed is in the program
        self.register_buffer("digest", torch.tensor(list(digest), dtype=torch.uint8))

    def forward(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B classes"]:
        return self.outputs(images, 1)[0]

    def features(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B D"]:
        """Return what the head of the model sees."""
        return self.outputs(images, 2)[1]

    def outputs(self, images: Float[Tensor, "B C H W"], count: int = 2) -> list[Tensor]:
        """Return the logits and the features. Raises InputError for another precision than the file's."""
        if torch.is_autocast_enabled("cpu"):
            raise InputError(f"{self.path} computes in the precision it was written in: use `precision` fp32")
        found = self.compute(images.float().cpu().numpy(), count)
        return [torch.tensor(each, device=images.device) for each in found]
