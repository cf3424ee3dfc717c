"""Which recipe suits the data, from scratch and for fine-tuning: by rule, each choice with its reason."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Generic, NamedTuple

import torch

from vitreous.checkpoints.pretrained_encoders import encoder_names
from vitreous.data.dataset import DataSummary
from vitreous.languages.terminal import said
from vitreous.models.bit import BiTConfig
from vitreous.models.config import ViTConfig
from vitreous.models.model import build_model
from vitreous.outside import read_text
from vitreous.training.config import CommandConfig, RunConfig, length_of
from vitreous.training.initial_model import described_checkpoint
from vitreous.training.learner import scaled_lr
from vitreous.training.recipes import recipe
from vitreous.training.settings import AnyConfig, AnyRun, Tree, configure, leaves

LOOKS = 220_000  # at images, in a whole training: some ten minutes on two cores at 64x64
EPOCHS = (20, 300)  # fewest and most
BATCH = (8, 64)  # images in a step, fewest and most
STEPS_IN_AN_EPOCH = 8  # at least, if a smaller batch allows it
LONG = 100  # epochs, from which on an image is seen so often that mixing pays
SMALL = 48  # pixels of the shorter side, below which images are shown at 32x32

# Mixup and label smoothing make the probabilities of the bundled digits too low. Fitted on 142 images of the
# training set after training on the others, so that no image is missing for it in the demo.
DIGITS_TEMPERATURE = 0.59

SMALL_ENCODER = 4_000_000  # weights, below which fine-tuning takes as long as training from scratch
TUNING_EPOCHS = (5, 100)  # of larger ones, fewest and most: 1000 / the root of the number of images
LAYER_DECAY = 0.75  # of larger ones: it slows a small one down
RATED_WIDTH = 128  # of the model that the rate of the recipe is for
PUBLISHED_SIZE = 224
SMALLEST_PUBLISHED = 8  # patch: of smaller ones, 224 pixels would be thousands of tokens
WARMUP = 0.1  # the largest part of a training that it takes where a recipe is scaled down

# Of images in color that are not small: for a model that sees the center of an image, and for one that sees
# all of it, squashed.
COLORS: Tree = {"color_jitter": {"brightness": 0.3, "contrast": 0.3, "saturation": 0.3}}
PARTS: Tree = {
    "affine": {"rotate": 10.0, "translate": 0.0, "scale": 0.0, "shear": 0.0},
    "random_resized_crop": {"scale": (0.5, 1.0)},
}
WHOLE = "squash"

PHOTO = 96  # pixels of the shorter side, from which on images may be photographs
FEW = 150  # images of a class, up to which an encoder that comes with the package may pay


SettingsBranch = dict[str, Any]  # of settings that are being chosen


@dataclass(frozen=True)
class Reason:
    """Why a configuration is as it is.

    Attributes:
        text: a sentence.
        holds: the values, by the names of their leaves, that it speaks of: where one is another, it is not
            said, or `otherwise` instead.
    """

    text: str
    holds: Tree = field(default_factory=dict)
    otherwise: str = ""

    @classmethod
    def of_settings(
        cls, config: CommandConfig, names: Sequence[str], text: str, otherwise: str = ""
    ) -> Reason:
        """Return a reason for the values that these leaves, or all leaves of these groups, have."""
        every = leaves(config)
        return cls(text, {leaf: every[leaf] for leaf in every if leaf.startswith(tuple(names))}, otherwise)

    def true_of(self, config: CommandConfig) -> str:
        """Return what is still true of a configuration that may have been changed."""
        now = leaves(config)
        changed = any(now.get(leaf) != value for leaf, value in self.holds.items())
        return self.otherwise if changed else self.text


class RecipeChoice(NamedTuple, Generic[AnyRun]):
    """A configuration before a checkpoint's and the user's settings, and why it is this one."""

    config: AnyRun
    reasons: tuple[Reason, ...]
    imposed: tuple[str, ...] = ()  # fields of its model that a checkpoint does not change


def packaged_config(kind: type[AnyConfig], file: Path, settings: Tree | None = None) -> AnyConfig:
    """Return the configuration of a file of the package, with what the data decide over it."""
    return configure(kind(), tomllib.loads(read_text(file)), settings or {})


def choose(
    source: str,
    data: DataSummary,
    *,
    name: str | None,
    init: str | None = None,
    model: str | None = None,
) -> RecipeChoice[RunConfig]:
    """Return the recipe called `name`; without a name, the one that suits the data.

    Args:
        init: a checkpoint that is fine-tuned.
        model: the name of the model that is trained from scratch; None: a small one.
    """
    # What is given decides: a recipe that is named holds for any data; a checkpoint brings its architecture
    # and its preprocessing, so that length, batch and rates are left to choose. Only from scratch do all of
    # them follow from the data.
    encoder, images = described_checkpoint(init) if init else (None, None)
    if name:
        chosen = recipe(name)
        config = chosen.suited(
            name=model, encoder=encoder, images=data.images, size=(data.height, data.width)
        )
        return RecipeChoice(config, (Reason(said("{name}, as requested", name=name)),), tuple(chosen.imposed))
    if encoder and images:
        return choose_fine_tuning(source, data, encoder, images.resize)
    return choose_recipe(source, data, model)


def choose_recipe(
    source: str, data: DataSummary, named: str | None = None, resize: str | None = None
) -> RecipeChoice[RunConfig]:
    """Return the recipe for training from scratch on such data.

    Args:
        named: the model, at its `published_size`.
        resize: how images are shown; by default whole where their class is learned, by a model without a
            name: on images of many shapes an SVM and a small ViT lose 4 to 9 points where the center is cut.
    """
    if source == "digits" and named is None:
        config = configure(recipe("digits").config, {"evaluation": {"calibrate": DIGITS_TEMPERATURE}})
        return RecipeChoice(config, (Reason(said("the recipe made for the bundled digits")),))
    # A training costs about the same whatever the number of images: few of them are seen often, many are seen
    # a few times. Few make small batches, as an epoch needs some steps to learn anything.
    fewest, most = EPOCHS
    epochs = max(fewest, min(most, round(LOOKS / data.images)))
    batch = min(data.images, max(BATCH[0], min(BATCH[1], data.images // STEPS_IN_AN_EPOCH)))
    model: SettingsBranch = {"num_classes": data.classes or 1, "channels": data.channels}
    settings: SettingsBranch = {
        "model": model,
        "training": {"length": length_of(epochs=epochs), "batch_size": batch},
    }
    # The architecture: the user's, as it is published. Else the small ViT of the recipe, with finer patches
    # where images have so few pixels that patches of 8x8 would leave a handful of tokens.
    small = min(data.width, data.height) < SMALL
    if named is not None:
        model |= {"name": named, "image_size": published_size(named)}
    elif small:
        model |= {"image_size": 32, "patch_size": 4, "stem": {"strides": (1, 1, 2, 1, 2, 1)}}
    # How images are shown, and changed: what could change a label is left as it is (`augmentation_for`).
    if resize is None:
        resize = "crop" if named or not data.classes or data.multi_label else WHOLE
    settings["preprocessing"] = {"resize": resize}
    settings["augmentation"] = augmentation_for(data, small=small, named=named is not None, resize=resize)
    if epochs >= LONG:
        settings["augmentation"]["mix"] = {"mixup": 0.2}
    if data.channels != 3:
        half = (0.5,) * data.channels
        settings["preprocessing"] |= {"mean": half, "std": half}
    if data.multi_label:
        settings["training"]["loss"] = "sigmoid"
    # The rate at the end, as it is scaled by the width of the model that has come out of all this.
    config = configure(recipe("from-scratch").config, settings)
    rate = config.training.peak_lr * rate_factor(config.model)
    config = configure(config, {"training": {"peak_lr": rate}})
    return RecipeChoice(config, recipe_reasons(config, data, named, small=small))


def augmentation_for(data: DataSummary, *, small: bool, named: bool, resize: str) -> SettingsBranch:
    """Return how training images are changed. A number, or one of several labels, may depend on the
    direction, the place, the size and the color of what is seen: nothing is changed. Small images are often
    signs, which have a direction: they are rotated, shifted and scaled a little. Others are mirrored as well,
    and the colors of color ones are changed; of those whose center is shown a part is taken."""
    if not data.classes or data.multi_label:
        return {"affine": None}
    if small and not named:
        return {}
    if data.channels != 3:
        return {"flip": 0.5}
    return {"flip": 0.5, **COLORS, **({} if resize == WHOLE else PARTS)}


def published_size(named: str) -> tuple[int, int]:
    """Return the size at which a model of this name is published; where its patches are smaller than those of
    any that is published, 8 x 8 patches."""
    patch = named.rpartition("/")[2]
    side = 8 * int(patch) if patch.isdigit() and int(patch) < SMALLEST_PUBLISHED else PUBLISHED_SIZE
    return side, side


def recipe_reasons(
    config: RunConfig, data: DataSummary, named: str | None, *, small: bool
) -> tuple[Reason, ...]:
    """Return why a model is trained from scratch as `config` says."""
    reason = partial(Reason.of_settings, config)
    size: dict[str, object] = {"images": data.images, "width": data.width, "height": data.height}
    seen = said("{images} images, about {width}x{height}", **size)
    if data.classes:
        seen = said(
            "{images} images of {classes} classes, about {width}x{height}", classes=data.classes, **size
        )
    training, length = config.training, ("training.length",)
    height, width = config.model.image_size
    size = {"width": width, "height": height}
    model = said("a small ViT after six 3x3 convolutions, at {width}x{height} in patches of 8x8", **size)
    if named is not None:
        model = said("{name} at {width}x{height}, at a learning rate for its width", name=named, **size)
    elif small:
        model = said(
            "a small ViT after six 3x3 convolutions, at {width}x{height} in patches of 4x4, as the images "
            "have no more detail",
            **size,
        )
    lengths: dict[str, object] = {"epochs": training.epochs, "batch": training.batch_size}
    times = said(
        "{epochs:g} epochs in batches of {batch}: a dataset this small must be seen many times", **lengths
    )
    if training.epochs == EPOCHS[0]:
        times = said(
            "{epochs:g} epochs in batches of {batch}: a dataset this large does not need more epochs",
            **lengths,
        )
    mixed = said("no Mixup: in a short training run, it would cost more than it gains")
    if config.augmentation.mix:
        mixed = said("Mixup, since every image will be seen at least a hundred times")
    reasons = [
        reason(("model.",), f"{seen}: {model}", seen),
        reason((*length, "training.batch_size"), times),
        reason(("augmentation.mix", *length), mixed),
    ]
    changed = config.augmentation
    if not data.classes or data.multi_label:
        text = said(
            "images are not rotated, mirrored or cropped, since this might change their labels; if it does "
            "not, set augmentation.flip=0.5 or augmentation.affine.rotate=12, for example"
        )
        reasons.append(reason(("augmentation.affine", "augmentation.flip"), text))
    elif changed.random_resized_crop:
        text = said(
            "images are mirrored, cropped at random and changed in color, as is usual for photographs"
        )
        reasons.append(reason(("augmentation.random_resized_crop", "augmentation.color_jitter"), text))
    else:
        text = said("images are rotated, shifted and scaled a little")
        if any(changed.flip) and changed.color_jitter:
            text = said("images are mirrored, rotated, shifted and scaled a little, and changed in color")
        elif any(changed.flip):
            text = said("images are mirrored, rotated, shifted and scaled a little")
        reasons.append(reason(("augmentation.affine", "augmentation.flip"), text))
    if config.preprocessing.resize == WHOLE and data.height != data.width:
        text = said("images are squashed to a square, not cropped: the edges may matter for the label")
        reasons.append(reason(("preprocessing.resize",), text))
    if data.multi_label:
        text = said("an image may have several labels: one yes or no for each class")
        reasons.append(reason(("training.loss",), text))
    if data.channels == 3 and min(data.height, data.width) >= PHOTO:
        text = said(
            "from scratch; if these are photographs, a pre-trained encoder is far better: add --init "
            "hf:google/vit-base-patch16-224 (on CIFAR-10, 98.6% after 500 steps from such weights, where "
            "ViTs trained from scratch reach 80 to 95%)"
        )
        reasons.append(reason(("init",), text))
    # few images of each class, none of which would be enlarged
    few = data.images <= FEW * data.classes and min(config.model.image_size) > SMALL
    if few and named is None and (names := encoder_names()):
        text = said(
            "from scratch; for a dataset this small, the bundled encoder may be better: add --init {name}",
            name=names[0],
        )
        reasons.append(reason(("init",), text))
    return tuple(reasons)


def rate_factor(model: ViTConfig | BiTConfig) -> float:
    """Return how much lower than that of the small model the rate of a wider one is."""
    return min(1.0, RATED_WIDTH / (model.width if isinstance(model, ViTConfig) else 768))


def encoder_weight_count(encoder: ViTConfig | BiTConfig) -> int:
    """Return how many weights an encoder has: its stem, its layers and its positions, without a head."""
    with torch.device("meta"):
        model = build_model(encoder.model_copy(update={"num_classes": None}))
    return sum(weight.numel() for weight in model.parameters())


def choose_fine_tuning(
    source: str, data: DataSummary, encoder: ViTConfig | BiTConfig, resize: str = "crop"
) -> RecipeChoice[RunConfig]:
    """Return the recipe for training from scratch on these data, at rates that suit trained weights: AdamW
    whose rate falls with the model's width, and in a ViT from layer to layer towards the image."""
    chosen = choose_recipe(source, data, resize=resize)
    own = chosen.config
    small = encoder_weight_count(encoder) < SMALL_ENCODER
    epochs = own.training.epochs
    assert epochs is not None  # as `choose_recipe` has it
    if not small:
        fewest, most = TUNING_EPOCHS
        epochs = min(epochs, max(fewest, min(most, round(1000 / data.images**0.5))))
    layer_decay = LAYER_DECAY if isinstance(encoder, ViTConfig) and not small else None
    changed = {
        "length": length_of(epochs=epochs),
        "peak_lr": own.training.peak_lr * rate_factor(encoder),
        "optimizer": {"layer_decay": layer_decay},
    }
    config = configure(own, {"training": changed})
    training = config.training
    rate = said("fine-tuning with AdamW at a learning rate of {rate:.2g}", rate=training.peak_lr)
    if layer_decay:
        rate = said(
            "fine-tuning with AdamW at a learning rate of {rate:.2g}, each layer {decay:g} times as fast as "
            "the one above it",
            rate=training.peak_lr,
            decay=layer_decay,
        )
    length = ("training.length", "training.batch_size")
    times = said(
        "{epochs:g} epochs in batches of {batch} for {images} images",
        epochs=training.epochs,
        batch=training.batch_size,
        images=data.images,
    )
    of_images = {"augmentation.flip", "augmentation.color_jitter.hue", "preprocessing.resize"}
    changes = [each for each in chosen.reasons if of_images & each.holds.keys()]
    reasons = (
        *changes,
        Reason.of_settings(config, ("training.peak_lr", "training.optimizer"), rate),
        Reason.of_settings(config, length, times),
    )
    return RecipeChoice(config, reasons)


def fitted_to_count(config: AnyRun, images: int) -> tuple[AnyRun, tuple[str, ...]]:
    """Return the configuration of a recipe for more images than there are, scaled down: a smaller batch, a
    lower rate (with SGD by the same factor, with others by its root), a warm-up that is not most of the
    training; and a sentence about it."""
    training = config.training
    batch = max(1, images // STEPS_IN_AN_EPOCH)
    factor = batch / training.batch_size
    power = 0.0 if training.lr_batch_size else 1.0 if training.optimizer.kind == "sgd" else 0.5
    rate = training.peak_lr * factor**power
    total = training.total_steps(images // batch)
    warmup = training.schedule.warmup
    if warmup > WARMUP * total:
        warmup = WARMUP
    changed = {"batch_size": batch, "peak_lr": rate, "schedule": {"warmup": warmup}}
    if training.machine:
        changed["machine"] = {"grad_accum_steps": 1}
    scaled = configure(config, {"training": changed})
    sentence = said(
        "{images} images: batches of {batch} instead of {size}, at a peak learning rate of {rate:.2g} "
        "instead of {planned:g}",
        images=images,
        batch=batch,
        size=training.batch_size,
        rate=scaled_lr(scaled.training),
        planned=scaled_lr(training),
    )
    return scaled, (sentence,)
