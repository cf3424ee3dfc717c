"""A model against the validation part, while it learns."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from torch import nn

from vitreous.data.loading import EvaluationLoader
from vitreous.data.pictures import Pictures
from vitreous.training.config import RunConfig


def validation(
    pictures: Pictures | None, config: RunConfig
) -> Callable[[nn.Module], Mapping[str, float]] | None:
    """What measures the loss and the accuracy on `pictures`, each of them once; None without pictures."""
    if pictures is None:
        return None

    def measure(model: nn.Module) -> Mapping[str, float]:
        device = next(model.parameters()).device
        loader = EvaluationLoader(
            pictures, preprocessing=config.preprocessing, batch_size=config.evaluation.batch_size
        )
        was_training, right, loss, count = model.training, 0, 0.0, 0
        model.eval()
        with torch.inference_mode():
            for batch in loader:
                targets = batch.targets.to(device)
                logits = model(batch.images.to(device)).float()
                loss += float(F.cross_entropy(logits, targets, reduction="sum"))
                right += int((logits.argmax(dim=1) == targets).sum())
                count += len(targets)
        model.train(was_training)
        return {"validation_loss": loss / count, "validation_accuracy": right / count}

    return measure
