"""How long and fast to fine-tune, by the number of images: the rule of BiT and of the paper's Table 4."""

from __future__ import annotations

from vitreous.data.dataset import DataSummary
from vitreous.training.choose import Choice
from vitreous.training.recipes import recipe
from vitreous.training.settings import configure

# Images up to which so many steps are taken (Table 4: Pets and Flowers, CIFAR, ImageNet).
STEPS = ((10_000, 500), (500_000, 10_000))
MOST_STEPS = 20_000
PAPERS_BATCH, PAPERS_RATE = 512, 0.01
STEPS_IN_AN_EPOCH = 8  # at least: a small set gets smaller batches, and a rate that is smaller in proportion


def choose_fine_tuning(data: DataSummary) -> Choice:
    """The paper's fine-tuning, cut to the size of the data."""
    steps = next((steps for images, steps in STEPS if data.images <= images), MOST_STEPS)
    batch = max(1, min(PAPERS_BATCH, data.images // STEPS_IN_AN_EPOCH))
    rate = PAPERS_RATE * batch / PAPERS_BATCH
    training = {"steps": steps, "batch_size": batch, "peak_lr": rate, "schedule": {"warmup": steps // 10}}
    if data.multi_label:
        training["loss"] = "sigmoid"
    reason = (
        f"{data.images} images: {steps} steps of {batch} with SGD at {rate:.4g}, as the paper's Table 4 "
        "has it for sets of this size"
    )
    config = recipe("paper-fine-tuning").config
    return Choice(configure(config, {"training": training}), (reason,))
