"""Which recipe suits the data, from scratch and for fine-tuning: by rule, each choice with its reason."""

from __future__ import annotations

from typing import Any, NamedTuple

from vitreous.data.dataset import DataSummary
from vitreous.training.config import RunConfig
from vitreous.training.recipes import recipe
from vitreous.training.settings import configure

LOOKS = 220_000  # at images, in a whole training: some ten minutes on two cores at 64x64
EPOCHS = (20, 300)  # fewest and most
BATCH = (8, 64)  # images in a step, fewest and most
STEPS_IN_AN_EPOCH = 8  # at least, if a smaller batch allows it
LONG = 100  # epochs, from which on an image is seen so often that mixing pays
SMALL = 48  # pixels of the shorter side, below which images are shown at 32x32

# Images up to which so many steps are taken (Table 4: Pets and Flowers, CIFAR, ImageNet).
STEPS = ((10_000, 500), (500_000, 10_000))
MOST_STEPS = 20_000
PAPERS_BATCH, PAPERS_RATE = 512, 0.01


class Choice(NamedTuple):
    """A configuration, and why it is this one: a sentence for each part."""

    config: RunConfig
    reasons: tuple[str, ...]


def choose_recipe(source: str, data: DataSummary) -> Choice:
    """The recipe for training from scratch on data of this number and size."""
    if source == "digits":
        return Choice(recipe("digits").config, ("the recipe made for the bundled digits",))
    parts = (size(data), length(data), mixing(data), kind(data))
    settings: dict[str, Any] = {"model": {"num_classes": data.classes, "channels": data.channels}}
    for changes, _ in parts:
        for group, values in changes.items():
            settings[group] = {**settings.get(group, {}), **values}
    reasons = tuple(reason for _, reason in parts if reason)
    return Choice(configure(recipe("from-scratch").config, settings), reasons)


Part = tuple[dict[str, dict[str, Any]], str]  # settings, and the reason for them


def size(data: DataSummary) -> Part:
    """How large the images are shown, and so how many tokens there are."""
    seen = f"{data.images} images of {data.classes} classes, about {data.width}x{data.height}"
    stem = "a small ViT behind six 3x3 convolutions"
    if min(data.width, data.height) >= SMALL:
        return {}, f"{seen}: {stem}, at 64x64 in patches of 8x8"
    model = {"image_size": 32, "patch_size": 4, "stem": {"strides": (1, 1, 2, 1, 2, 1)}}
    return {
        "model": model
    }, f"{seen}: {stem}, at 32x32 in patches of 4x4, as more pixels than that would be made up"


def length(data: DataSummary) -> Part:
    """How long, and in what steps."""
    epochs, batch = epochs_for(data), batch_for(data)
    reason = f"{epochs} epochs in batches of {batch}: so few images must be looked at often"
    if epochs == EPOCHS[0]:
        reason = (
            f"{epochs} epochs in batches of {batch}: with so many images each need not be seen more often"
        )
    return {"training": {"epochs": epochs, "batch_size": batch}}, reason


def epochs_for(data: DataSummary) -> int:
    fewest, most = EPOCHS
    return max(fewest, min(most, round(LOOKS / data.images)))


def batch_for(data: DataSummary) -> int:
    fewest, most = BATCH
    return min(data.images, max(fewest, min(most, data.images // STEPS_IN_AN_EPOCH)))


def mixing(data: DataSummary) -> Part:
    """Mixup delays the beginning and helps in the end."""
    if epochs_for(data) < LONG:
        return {}, "no Mixup: in a short training it would cost more than it gives"
    return {"augmentation": {"mixup": 0.2}}, "Mixup, as every image will be seen a hundred times and more"


def kind(data: DataSummary) -> Part:
    """What follows from gray images and from several labels."""
    settings: dict[str, dict[str, Any]] = {}
    if data.channels == 1:
        settings["preprocessing"] = {"mean": (0.5,), "std": (0.5,)}
    if data.multi_label:
        settings["training"] = {"loss": "sigmoid"}
    return settings, "several labels for an image: one yes or no for each class" if data.multi_label else ""


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
