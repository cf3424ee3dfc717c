"""A model against the validation part, while it learns."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import nn

from vitreous.data.dataset import ImageDataset
from vitreous.data.image_samples import evaluation_loader
from vitreous.data.loading import worker_count
from vitreous.training.config import RunConfig
from vitreous.training.objectives import LOSSES, accuracy


def validation(
    images: ImageDataset | None, config: RunConfig
) -> Callable[[nn.Module], Mapping[str, float]] | None:
    """What measures the loss and the accuracy on `images`, each of them once; None without images."""
    if images is None:
        return None

    loss = LOSSES[config.training.loss]

    def measure(model: nn.Module) -> Mapping[str, float]:
        device = next(model.parameters()).device
        loader = evaluation_loader(
            images,
            preprocessing=config.preprocessing,
            batch_size=config.evaluation.batch_size,
            workers=worker_count(config.data.workers),
            device=device,
        )
        was_training, sums, count = model.training, {"loss": 0.0, "accuracy": 0.0}, 0
        model.eval()
        with torch.inference_mode():
            for batch in loader:
                targets = batch.targets
                logits = model(batch.images).float()
                sums["loss"] += float(loss(logits, targets, 0.0)) * len(targets)
                sums["accuracy"] += float(accuracy(logits, targets)) * len(targets)
                count += len(targets)
        model.train(was_training)
        return {f"validation_{name}": total / max(count, 1) for name, total in sums.items()}

    return measure
