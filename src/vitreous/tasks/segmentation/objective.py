"""Cross-entropy of each pixel."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from vitreous.data.segmentation.loading import MaskBatch
from vitreous.data.segmentation.masked import IGNORED
from vitreous.training.config import TrainingConfig
from vitreous.training.objectives import Objective


def segmentation(config: TrainingConfig) -> Objective:
    """The mean cross-entropy over all pixels that have a class (2105.05633, section 3.2). Where a batch is
    cut into parts or shared by processes, each takes the mean over its own pixels."""

    def objective(
        model: nn.Module, batch: MaskBatch, generator: torch.Generator
    ) -> tuple[Tensor, Mapping[str, Tensor]]:
        logits = model(batch.images).float()
        loss = pixel_loss(logits, batch.masks, config.label_smoothing)
        found = logits.detach().argmax(dim=1)
        return loss, {"accuracy": pixel_accuracy(found, batch.masks), "miou": batch_miou(found, batch)}

    return objective


def pixel_loss(
    logits: Float[Tensor, "B classes H W"], masks: Int[Tensor, "B H W"], smoothing: float
) -> Float[Tensor, ""]:
    """0 for a batch whose every pixel is left out."""
    total = F.cross_entropy(logits, masks, ignore_index=IGNORED, label_smoothing=smoothing, reduction="sum")
    return total / (masks != IGNORED).sum().clamp_min(1)


def pixel_accuracy(found: Int[Tensor, "B H W"], masks: Int[Tensor, "B H W"]) -> Float[Tensor, ""]:
    """The share of judged pixels that have the right class."""
    judged = masks != IGNORED
    return ((found == masks) & judged).sum() / judged.sum().clamp_min(1)


def batch_miou(found: Int[Tensor, "B H W"], batch: MaskBatch) -> Float[Tensor, ""]:
    """Mean IoU over the classes that the batch shows or that were found in it: a rough, early measure."""
    judged = batch.masks != IGNORED
    wanted, called = batch.masks[judged], found[judged]
    counts = [torch.bincount(each, minlength=IGNORED) for each in (wanted[wanted == called], wanted, called)]
    hits, present, claimed = counts
    union = present + claimed - hits
    return (hits / union.clamp_min(1)).sum() / (union > 0).sum().clamp_min(1)
