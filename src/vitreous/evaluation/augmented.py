"""Test-time augmentation: the mean answer to several views of each image."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from vitreous.models.names import Runnable

ENLARGED = 9 / 8  # the size of which the corner crops are cut


class AveragedViews(nn.Module):
    """A model whose answer is the mean over views of an image: the image, its four corners, enlarged, and
    where that is allowed their mirror images. Of probabilities the outputs are the logits of the mean.

    Args:
        model: a classifier or a regression model.
        mirrored: whether a mirrored image means the same.
    """

    def __init__(self, model: Runnable, *, mirrored: bool) -> None:
        super().__init__()
        self.model = model
        self.mirrored = mirrored
        self.config, self.preprocessing = model.config, model.preprocessing
        self.labels, self.task = model.labels, model.task
        self.temperature = 1.0  # a mean of probabilities has none

    def forward(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B outputs"]:
        outputs = torch.stack([self.model(view).float() for view in views(images, mirrored=self.mirrored)])
        if self.task == "regression":
            return outputs.mean(dim=0)
        if self.task == "multilabel":
            return outputs.sigmoid().mean(dim=0).logit(eps=1e-7)
        return outputs.log_softmax(dim=-1).logsumexp(dim=0) - math.log(len(outputs))


def views(images: Float[Tensor, "B C H W"], *, mirrored: bool) -> list[Float[Tensor, "B C H W"]]:
    """Return the image, its four corners at 9/8 of the size, and all five mirrored where that is allowed."""
    height, width = images.shape[-2:]
    size = (round(height * ENLARGED), round(width * ENLARGED))
    large = F.interpolate(images, size=size, mode="bilinear", align_corners=False)
    down, right = size[0] - height, size[1] - width
    crops = [large[..., y : y + height, x : x + width] for y in (0, down) for x in (0, right)]
    found = [images, *crops]
    return [*found, *(each.flip(-1) for each in found)] if mirrored else found
