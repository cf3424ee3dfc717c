"""Which recipe suits the data, from scratch and for fine-tuning: by rule, each choice with its reason.

The recipes of classification are in `training.recipes`, those of other tasks in recipes/, TOML files as
`--config` takes them.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, NamedTuple

from vitreous.data.dataset import DataSummary
from vitreous.training.recipes import recipe
from vitreous.training.settings import AnyConfig, Tree, configure

LOOKS = 220_000  # at images, in a whole training: some ten minutes on two cores at 64x64
EPOCHS = (20, 300)  # fewest and most
BATCH = (8, 64)  # images in a step, fewest and most
STEPS_IN_AN_EPOCH = 8  # at least, if a smaller batch allows it
LONG = 100  # epochs, from which on an image is seen so often that mixing pays
SMALL = 48  # pixels of the shorter side, below which images are shown at 32x32

# Mixup and label smoothing make the probabilities of the bundled digits too low. Fitted on 142 images of the
# training part after training on the others, so that no image is missing for it in the demo.
DIGITS_TEMPERATURE = 0.59

# Images up to which so many steps are taken (Table 4: Pets and Flowers, CIFAR, ImageNet).
STEPS = ((10_000, 500), (500_000, 10_000))
MOST_STEPS = 20_000
PAPERS_BATCH, PAPERS_RATE = 512, 0.01


class Choice(NamedTuple):
    """A configuration before a checkpoint's and the user's settings, and why it is this one.

    Attributes:
        reasons: a sentence for each part.
        imposed: fields of its model that a checkpoint does not change.
    """

    config: Any
    reasons: tuple[str, ...]
    imposed: tuple[str, ...] = ()


def packaged_config(kind: type[AnyConfig], name: str, settings: Tree | None = None) -> AnyConfig:
    """Return the configuration of recipes/NAME.toml, with what the data decide over it."""
    text = (Path(__file__).parent / "recipes" / f"{name}.toml").read_text(encoding="utf-8")
    return configure(kind(), tomllib.loads(text), settings or {})


def choose(source: str, data: DataSummary, *, name: str | None, init: str | None) -> Choice:
    """Return the recipe called `name`; without a name, the one that suits the data.

    Raises:
        InputError: there is no such recipe.
    """
    if name:
        chosen = recipe(name)
        return Choice(chosen.config, (f"{name}, as asked",), tuple(chosen.imposed))
    return choose_fine_tuning(data) if init else choose_recipe(source, data)


def choose_recipe(source: str, data: DataSummary) -> Choice:
    """Return the recipe for training from scratch on data of this number and size."""
    if source == "digits":
        config = configure(recipe("digits").config, {"evaluation": {"temperature": DIGITS_TEMPERATURE}})
        return Choice(config, ("the recipe made for the bundled digits",))
    fewest, most = EPOCHS
    epochs = max(fewest, min(most, round(LOOKS / data.images)))
    batch = min(data.images, max(BATCH[0], min(BATCH[1], data.images // STEPS_IN_AN_EPOCH)))
    model: dict[str, Any] = {"num_classes": data.classes or 1, "channels": data.channels}
    settings: dict[str, Any] = {"model": model, "training": {"epochs": epochs, "batch_size": batch}}

    classes = f" of {data.classes} classes" if data.classes else ""
    seen = f"{data.images} images{classes}, about {data.width}x{data.height}"
    stem = "a small ViT after six 3x3 convolutions"
    if min(data.width, data.height) >= SMALL:
        reasons = [f"{seen}: {stem}, at 64x64 in patches of 8x8"]
    else:
        model |= {"image_size": 32, "patch_size": 4, "stem": {"strides": (1, 1, 2, 1, 2, 1)}}
        reasons = [f"{seen}: {stem}, at 32x32 in patches of 4x4, as more pixels than that would be made up"]
    why = "so few images must be seen often"
    if epochs == fewest:
        why = "with so many images each need not be seen more often"
    reasons.append(f"{epochs} epochs in batches of {batch}: {why}")
    if epochs < LONG:
        reasons.append("no Mixup: in a short training it would cost more than it gives")
    else:
        settings["augmentation"] = {"mixup": 0.2}
        reasons.append("Mixup, as every image will be seen a hundred times and more")
    if data.channels == 1:
        settings["preprocessing"] = {"mean": (0.5,), "std": (0.5,)}
    if data.multi_label:
        settings["training"]["loss"] = "sigmoid"
        reasons.append("several labels for an image: one yes or no for each class")
    return Choice(configure(recipe("from-scratch").config, settings), tuple(reasons))


def choose_fine_tuning(data: DataSummary) -> Choice:
    """Return the paper's fine-tuning, cut to the size of the data."""
    steps = next((steps for images, steps in STEPS if data.images <= images), MOST_STEPS)
    batch = max(1, min(PAPERS_BATCH, data.images // STEPS_IN_AN_EPOCH))
    rate = PAPERS_RATE * batch / PAPERS_BATCH
    training = {"steps": steps, "batch_size": batch, "peak_lr": rate, "schedule": {"warmup": steps // 10}}
    if data.multi_label:
        training["loss"] = "sigmoid"
    reason = (
        f"{data.images} images: {steps} steps of {batch} with SGD at {rate:.4g}, as the paper's Table 4 "
        "has it for datasets of this size"
    )
    return Choice(configure(recipe("paper-fine-tuning").config, {"training": training}), (reason,))
