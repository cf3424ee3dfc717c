"""A model that takes pixels: resizing and normalizing as products, so that a file holds the preprocessing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from vitreous.errors import InputError
from vitreous.models.names import Model
from vitreous.models.preprocessing import Preprocessing
from vitreous.models.with_encoder import WithEncoder

SUPPORT = {"bilinear": 1.0, "bicubic": 2.0}  # of Pillow's filters, in pixels
FIXED = 2.0**22  # Pillow's weights are multiples of 1 / FIXED
Node = TypeVar("Node")  # of a graph


class FromPixels(nn.Module):
    """A model with its preprocessing inside: from images of any one size to probabilities.

    Resizing is what Pillow (13) does: a weighted mean of columns, rounded to bytes, then one of rows; or the
    other way round where that is less work. Each is a product with a matrix of weights that is computed from
    the size of the image. Raises InputError: the model's images are resized in a way that is not supported.
    """

    def __init__(self, model: Model) -> None:
        super().__init__()
        how: Preprocessing = model.preprocessing
        if how.resize == "fit" or how.interpolation not in SUPPORT or isinstance(model, WithEncoder):
            raise InputError(
                f"`with_preprocessing` cannot express {how.resize} and {how.interpolation}: it can crop and "
                "squash, bilinear and bicubic, for classifiers"
            )
        if model.task not in ("classification", "multilabel") or model.config.num_classes is None:
            raise InputError(
                "`with_preprocessing` writes a program that gives probabilities, and the model has none: "
                f"its task is {model.task}, with {model.config.num_classes or 'no'} classes"
            )
        self.model, self.how = model, how
        factor, shift = how.factor_and_shift()
        self.register_buffer("factor", factor)
        self.register_buffer("shift", shift)

    def forward(self, pixels: UInt8[Tensor, "B H W C"]) -> tuple[Tensor]:
        one = torch.scalar_tensor(1.0, dtype=torch.float64)
        height, width = one * pixels.shape[1], one * pixels.shape[2]
        least_height, least_width = (float(each) for each in self.how.enlarged)
        if self.how.resize == "crop":  # the longer side is rounded down
            scale = torch.maximum(least_height / height, least_width / width)
            to_height = torch.clamp_min(torch.floor(height * scale + 1e-6), least_height)
            to_width = torch.clamp_min(torch.floor(width * scale + 1e-6), least_width)
        else:
            to_height = torch.full_like(height, least_height)
            to_width = torch.full_like(width, least_width)
        down = self.weights(pixels.shape[1], height, to_height, self.how.size[0])
        across = self.weights(pixels.shape[2], width, to_width, self.how.size[1])
        images = pixels.permute(0, 3, 1, 2).double()  # of 53 bits: exactly what Pillow counts
        across = across.transpose(0, 1)
        columns_first = as_bytes(down @ as_bytes(images @ across))
        rows_first = as_bytes(as_bytes(down @ images) @ across)
        lost_rows, lost_columns = height - to_height, width - to_width
        images = torch.where(lost_rows > torch.clamp_min(2 * lost_columns, 0.0), rows_first, columns_first)
        factor, shift = self.get_buffer("factor"), self.get_buffer("shift")
        logits = self.model(images.float() * factor + shift)
        return (logits.sigmoid() if self.model.task == "multilabel" else logits.softmax(dim=-1),)

    def weights(self, count: int, size: Tensor, target: Tensor, kept: int) -> Float[Tensor, "kept count"]:
        """The weight of each of `count` lines in each of the `kept` lines in the middle of `target`."""
        cut = (target - kept) / 2
        start = torch.floor(cut) if self.how.crop_start == "floored" else torch.round(cut)
        step = size / target
        wide = torch.clamp_min(step, 1.0)
        centers = (torch.arange(kept, dtype=torch.float64) + start + 0.5) * step
        support = SUPPORT[self.how.interpolation] * wide
        first = torch.clamp_min(torch.floor(centers - support + 0.5), 0.0)[:, None]
        last = torch.minimum(torch.floor(centers + support + 0.5), size)[:, None]
        lines = torch.arange(count, dtype=torch.float64)[None]
        distance = torch.abs(lines - centers[:, None] + 0.5) / wide
        values = FILTERS[self.how.interpolation](distance) * ((lines >= first) & (lines < last))
        shares = values / values.sum(dim=1, keepdim=True)
        return torch.floor(shares * FIXED + 0.5) / FIXED


def bilinear(x: Tensor) -> Tensor:
    return torch.clamp_min(1 - x, 0.0)


def bicubic(x: Tensor) -> Tensor:
    """Keys' cubic with a = -0.5."""
    near, far = (1.5 * x - 2.5) * x * x + 1, ((-0.5 * x + 2.5) * x - 4) * x + 2
    return torch.where(x < 1, near, torch.where(x < 2, far, torch.zeros_like(x)))


FILTERS: dict[str, Callable[[Tensor], Tensor]] = {"bilinear": bilinear, "bicubic": bicubic}


def as_bytes(values: Tensor) -> Tensor:
    return torch.clamp(torch.floor(values + 0.5), 0.0, 255.0)
