"""How a segmenter is trained: what its `config.toml` holds, and what a user's data decide of it."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from vitreous.data.config import AugmentationConfig
from vitreous.data.segmentation.digit_pages import DIGIT_PAGES
from vitreous.data.segmentation.masked import MaskSplits
from vitreous.models.config import ViTConfig
from vitreous.models.preprocessing import Preprocessing
from vitreous.models.segmenter import SegmenterConfig
from vitreous.tasks.choose import packaged_config
from vitreous.training.config import RunConfig
from vitreous.training.settings import configure

LOOKS = 100_000  # at images, in a whole training
EPOCHS = (20, 400)  # fewest and most
LARGE = 192  # pixels of the shorter side, from which on images are shown at 256x256
CHANGES = ("random_resized_crop", "flip", "three_augment", "color_jitter", "noise")
FOR_CLASSES = {
    "training": ("loss", "distillation"),
    "evaluation": ("fewshot", "calibrate", "temperature"),
    "data": ("class_balance", "in_memory"),
}
LARGE_STEM = {"widths": (32, 32, 64, 64, 128, 128, 192), "strides": (2, 1, 2, 1, 2, 1, 2)}


class SegmentationConfig(RunConfig):
    """All of a segmenter's run."""

    vit: ClassVar[type[ViTConfig]] = SegmenterConfig

    task: Literal["segmentation"] = Field(default="segmentation", description="always segmentation")
    source: str = Field(default=DIGIT_PAGES, description="the DATA argument")
    model: SegmenterConfig = SegmenterConfig()
    preprocessing: Preprocessing = Preprocessing(resize="squash", interpolation="bilinear")

    @model_validator(mode="after")
    def _for_pixels(self) -> SegmentationConfig:
        shown = self.preprocessing
        if shown.resize != "squash" or shown.crop_fraction != 1:
            raise ValueError(
                "a segmenter sees whole images: set preprocessing.resize=squash and "
                "preprocessing.crop_fraction=1"
            )
        unused = set(AugmentationConfig.model_fields) - {*CHANGES}
        if not self.augmentation.mixes:
            unused.remove("mix_probability")
        instead = f"cannot change a mask too: leave it out; there are {', '.join(CHANGES)}"
        self.check_defaults("augmentation", sorted(unused), instead)
        for group, names in FOR_CLASSES.items():
            self.check_defaults(group, names, "is for images that have one class each: leave it out")
        return self


def masks_config(data: MaskSplits) -> SegmentationConfig:
    """For a user's own images, from scratch: a small ViT after convolutions, at 128x128 or, of images that
    are large enough, at 256x256; random crops, mirrored where that is asked for."""
    images = len(data.train)
    model: dict[str, Any] = {"num_classes": len(data.train.classes), "channels": data.channels}
    if min(data.size) >= LARGE:
        model |= {"image_size": 256, "patch_size": 16, "stem": LARGE_STEM}
    epochs = min(max(LOOKS // images, EPOCHS[0]), EPOCHS[1])
    return packaged_config(
        SegmentationConfig,
        "masks",
        {
            "source": data.name,
            "model": model,
            "preprocessing": {"mean": (0.5,), "std": (0.25,)} if data.channels == 1 else {},
            "training": {"epochs": epochs, "batch_size": min(16, max(images // 4, 1))},
        },
    )


def fine_tuning_config(data: MaskSplits) -> SegmentationConfig:
    """The same, on the encoder of a checkpoint: a smaller rate, fewer epochs; its architecture and sizes come
    from the checkpoint. The mask Transformer, and one logit for each patch and class, as in the paper."""
    base = masks_config(data)
    training = {"peak_lr": 2e-4, "epochs": max(base.training.epochs / 4, 10)}
    model = {"cells": 1, "decoder": "mask-transformer"}
    return configure(base, {"recipe": "masks, fine-tuned", "model": model, "training": training})
