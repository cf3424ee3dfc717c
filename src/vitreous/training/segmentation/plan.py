"""From what a user gave to a checked configuration and its data."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from vitreous.data.segmentation.digit_pages import DIGIT_PAGES
from vitreous.data.segmentation.folders import open_masked
from vitreous.data.segmentation.masked import MaskSplits
from vitreous.errors import InputError
from vitreous.models.segmenter import Segmenter
from vitreous.models.vit import ViT
from vitreous.training.initial_model import absolute_source, checkpoint, fitted_to_checkpoint
from vitreous.training.plan import data_config, overruled
from vitreous.training.run import Run
from vitreous.training.segmentation.config import SegmentationConfig
from vitreous.training.segmentation.recipes import digit_pages_config, fine_tuning_config, masks_config
from vitreous.training.settings import check_known, configure, merged, without_none_words

Tree = Mapping[str, Any]
WHOLE = {"resize": "squash", "crop_fraction": 1.0}  # however a checkpoint's images were cut
NO_PATCHES = "{} has no patch tokens to make maps of: give a ViT, such as ViT-Ti/16"


class SegmentationPlan(NamedTuple):
    """A run before it begins: its configuration, why it is this one, and its data."""

    config: SegmentationConfig
    reasons: tuple[str, ...]
    splits: MaskSplits


def plan_segmentation(source: str | None, settings: Tree, *, init: str | None = None) -> SegmentationPlan:
    """The configuration for the data (the bundled pages where there are none), with the user's settings over
    it.

    Args:
        init: a checkpoint of any ViT, or a run; its encoder is taken, its positions resized.

    Raises:
        InputError: unknown settings, values or data, or what does not fit together.
    """
    check_known({key: value for key, value in settings.items() if key != "model"}, SegmentationConfig)
    settings = without_none_words(settings, SegmentationConfig)
    source = source or settings.get("source") or DIGIT_PAGES
    splits = open_masked(source, data_config(settings))
    init = init or settings.get("init")
    config, reason = chosen(source, settings, splits, init=init)
    config = configure(config, settings, with_classes(settings, splits))
    check_batch(config, splits)
    config = config.model_copy(update={"source": absolute_source(source)})
    return SegmentationPlan(config, (reason, *overruled(settings)), splits)


def chosen(
    source: str, settings: Tree, splits: MaskSplits, *, init: str | None
) -> tuple[SegmentationConfig, str]:
    """The recipe for the data, without the user's settings, and why it is this one."""
    if str(settings.get("model", {}).get("name", "")).startswith("BiT"):
        raise InputError(NO_PATCHES.format(settings["model"]["name"]))
    count = f"{len(splits.train)} images of {len(splits.train.classes)} classes"
    if init:
        base = fine_tuning_config(splits)
        config = fitted_to_checkpoint(base, init, fitted(settings, init), imposed=("pooling",))
        return config, f"{count}, on the encoder of {init}"
    if source == DIGIT_PAGES:
        return digit_pages_config(), "the recipe made for the bundled pages of digits"
    config = masks_config(splits)
    height, width = config.model.image_size
    return config, (
        f"{count}: a small ViT behind convolutions at {height}x{width}, {config.training.epochs:g} epochs"
    )


def fitted(settings: Tree, init: str) -> dict[str, Any]:
    """The user's settings over what a checkpoint made for classes cannot have here: images of which a part
    is cut off, and a norm behind a pooling."""
    loaded = checkpoint(init)
    if not isinstance(loaded, ViT | Segmenter):
        raise InputError(NO_PATCHES.format(init))
    changed = {"final_norm": "none"} if loaded.config.final_norm == "pooled" else {}
    return merged({"preprocessing": WHOLE, "model": changed}, settings)


def with_classes(settings: Tree, splits: MaskSplits) -> dict[str, Any]:
    """The decoder has one map for each class of the data."""
    wanted, present = settings.get("model", {}).get("num_classes"), len(splits.train.classes)
    if wanted not in (None, present):
        raise InputError(
            f"model.num_classes is {wanted}, but {splits.name} has {present} classes: leave it out"
        )
    return {"model": {"num_classes": present}}


def check_batch(config: SegmentationConfig, splits: MaskSplits) -> None:
    """An epoch has at least one whole batch."""
    if (images := len(splits.train)) < config.training.batch_size:
        raise InputError(
            f"a batch of {config.training.batch_size} is more than the {images} images to train on: set "
            f"--batch-size {max(images // 4, 1)}, for example"
        )


def reopened(path: Path) -> tuple[Run, MaskSplits]:
    """A run that goes on, and its data."""
    run = Run.open(path, SegmentationConfig)
    return run, open_masked(run.config.source, run.config.data)
