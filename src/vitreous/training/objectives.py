"""What a classifier is trained to do. An objective maps a model and a batch to a loss and named measures."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from vitreous.data.image_samples import Batch
from vitreous.training.config import TrainingConfig
from vitreous.training.step import Objective as Objective

Targets = Float[Tensor, "B classes"] | Int[Tensor, " B"]


def classification(config: TrainingConfig) -> Objective:
    """Cross-entropy against hard or soft targets, or one binary cross-entropy for each class."""
    measure = LOSSES[config.loss]

    def objective(
        model: nn.Module, batch: Batch, generator: torch.Generator
    ) -> tuple[Tensor, Mapping[str, Tensor]]:
        logits = model(batch.images).float()
        loss = measure(logits, batch.targets, config.label_smoothing)
        return loss, {"accuracy": accuracy(logits, batch.targets)}

    return objective


def softmax_loss(logits: Float[Tensor, "B classes"], targets: Targets, smoothing: float) -> Float[Tensor, ""]:
    """-sum_c t_c log softmax(y)_c, mean over the batch; t is smoothed to (1 - s) t + s / classes."""
    return F.cross_entropy(logits, targets, label_smoothing=smoothing)


def sigmoid_loss(logits: Float[Tensor, "B classes"], targets: Targets, smoothing: float) -> Float[Tensor, ""]:
    """One binary cross-entropy for each class, summed over the classes as in big_vision, mean over the batch.

    timm and DeiT-III take the mean over the classes: the learning rate of an Adam is blind to the difference.
    """
    if targets.ndim == 1:
        targets = F.one_hot(targets, logits.shape[1]).to(logits.dtype)
    targets = targets * (1 - smoothing) + smoothing / logits.shape[1]
    return F.binary_cross_entropy_with_logits(logits, targets, reduction="none").sum(dim=1).mean()


LOSSES = {"softmax": softmax_loss, "sigmoid": sigmoid_loss}


@torch.no_grad()
def accuracy(logits: Float[Tensor, "B classes"], targets: Targets) -> Float[Tensor, ""]:
    """The share of images whose likeliest class is that of the (heavier part of the) target."""
    hard = targets if targets.ndim == 1 else targets.argmax(dim=1)
    return (logits.argmax(dim=1) == hard).float().mean()
