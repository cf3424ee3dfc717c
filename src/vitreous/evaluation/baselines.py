"""What a probe of a model's features is compared with: those of raw pixels and of the untrained encoder."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from vitreous.data.dataset import Splits
from vitreous.evaluation.probes import Probe, probe
from vitreous.models.bit import BiT
from vitreous.models.names import Runnable, build_model
from vitreous.models.preprocessing import Preprocessing
from vitreous.models.vit import ViT

RAW = 16  # pixels of a side of the images whose pixels are probed


class RawPixels(nn.Module):
    """A model whose features are the pixels themselves, of images at most 16 pixels high and wide."""

    def __init__(self, preprocessing: Preprocessing) -> None:
        super().__init__()
        self.preprocessing, self.config = preprocessing, "raw pixels"
        self.weight = nn.Parameter(torch.zeros(1))  # says where the images are computed

    def features(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B D"]:
        height, width = (min(side, RAW) for side in images.shape[-2:])
        return F.adaptive_avg_pool2d(images.float(), (height, width)).flatten(1)


def beside_baselines(found: Probe, model: Runnable, splits: Splits, **options: Any) -> Probe:
    """Return a probe with those of raw pixels and of the same encoder with fresh weights beside it: what is
    below them has learned nothing of use."""
    beside: dict[str, Runnable | nn.Module] = {"raw pixels": RawPixels(model.preprocessing)}
    if isinstance(model, ViT | BiT):
        fresh = build_model(model.config, preprocessing=model.preprocessing, labels=model.labels)
        beside["untrained"] = fresh.eval()
    return replace(found, baselines={name: probe(each, splits, **options) for name, each in beside.items()})
