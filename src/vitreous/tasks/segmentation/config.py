"""How a segmenter is trained: what its `config.toml` holds, on the bundled pages, and on a user's images."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import model_validator

from vitreous.data.config import AugmentationConfig, ColorJitterConfig, RandomResizedCropConfig
from vitreous.data.segmentation.digit_pages import CLASSES, DIGIT_PAGES, SIDE
from vitreous.data.segmentation.masked import MaskSplits
from vitreous.models.config import ConvolutionStemConfig, PositionConfig, ViTConfig
from vitreous.models.preprocessing import IMAGENET_MEAN, IMAGENET_STD, Preprocessing
from vitreous.models.segmenter import SegmenterConfig
from vitreous.training.config import OptimizerConfig, RunConfig, ScheduleConfig, TrainingConfig

LOOKS = 100_000  # at images, in a whole training
EPOCHS = (20, 400)  # fewest and most
LARGE = 192  # pixels of the shorter side, from which on images are shown at 256x256
CHANGES = ("random_resized_crop", "flip", "three_augment", "color_jitter", "noise")
FOR_CLASSES = {
    "training": ("loss", "distillation"),
    "evaluation": ("fewshot",),
    "data": ("class_balance", "in_memory"),
}
OPTIMIZER = OptimizerConfig(betas=(0.9, 0.98), weight_decay=0.05)
WHOLE: dict[str, Any] = {"resize": "squash", "interpolation": "bilinear"}


class SegmentationConfig(RunConfig):
    """All of a segmenter's run."""

    vit: ClassVar[type[ViTConfig]] = SegmenterConfig

    task: Literal["segmentation"] = "segmentation"
    source: str = DIGIT_PAGES
    model: SegmenterConfig = SegmenterConfig()
    preprocessing: Preprocessing = Preprocessing(**WHOLE)

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


def small_segmenter(
    size: tuple[int, int], channels: int, classes: int, widths: tuple[int, ...], **fields: Any
) -> SegmenterConfig:
    """Return a small ViT after convolutions, every other one of stride 2, with the linear decoder."""
    strides = tuple(1 + (place + 1) % 2 for place in range(len(widths)))
    patch = 2 ** strides.count(2)
    return SegmenterConfig(
        image_size=size,
        channels=channels,
        patch_size=(patch, patch),
        num_classes=classes,
        stem=ConvolutionStemConfig(widths=widths, strides=strides, norm="instance"),
        position=PositionConfig(kind="sincos-2d"),
        class_token=False,
        layer_scale=0.1,
        decoder="linear",
        cells=4,
        **fields,
    )


def digit_pages_config() -> SegmentationConfig:
    """The bundled job: pages of handwritten digits.

    vitreous train --task segmentation

    What decided, on pages of training digits that were set aside, after equal processor time: with a norm
    over all channels after each convolution the loss stayed for 200 steps at that of calling everything
    background, with one for each channel (blind to dark ink on light paper or the other way round) it fell at
    once; the linear decoder learned the classes twice as fast as the mask Transformer, which finds their
    outlines sooner; batches of 16 were better than of 32.
    """
    size, widths = (SIDE, SIDE), (32, 32, 64, 64, 128)
    return SegmentationConfig(
        recipe=DIGIT_PAGES,
        model=small_segmenter(size, 1, len(CLASSES), widths, width=128, depth=5, heads=4, mlp_dim=256),
        preprocessing=Preprocessing(size=size, channels=1, mean=(0.5,), std=(0.33,), **WHOLE),
        training=TrainingConfig(
            steps=2500,
            batch_size=16,
            peak_lr=1.5e-3,
            optimizer=OPTIMIZER,
            schedule=ScheduleConfig(warmup=0.03),
        ),
    )


def masks_config(data: MaskSplits) -> SegmentationConfig:
    """For a user's own images, from scratch: a small ViT after convolutions, at 128x128 or, of images that
    are large enough, at 256x256; random crops, mirrored where that is asked for."""
    large, gray, images = min(data.size) >= LARGE, data.channels == 1, len(data.train)
    size: tuple[int, int] = (256, 256) if large else (128, 128)
    widths = (32, 32, 64, 64, 128, 128, 192)[: 7 if large else 5]
    classes, channels = len(data.train.classes), data.channels
    return SegmentationConfig(
        source=data.name,
        recipe="masks",
        model=small_segmenter(size, channels, classes, widths, width=192, depth=6, heads=6, mlp_dim=384),
        preprocessing=Preprocessing(
            size=size,
            channels=channels,
            mean=(0.5,) if gray else IMAGENET_MEAN,
            std=(0.25,) if gray else IMAGENET_STD,
            **WHOLE,
        ),
        augmentation=AugmentationConfig(
            random_resized_crop=RandomResizedCropConfig(scale=(0.25, 1.0)),
            color_jitter=ColorJitterConfig(),
        ),
        training=TrainingConfig(
            epochs=min(max(LOOKS // images, EPOCHS[0]), EPOCHS[1]),
            batch_size=min(16, max(images // 4, 1)),
            peak_lr=1e-3,
            optimizer=OPTIMIZER,
            schedule=ScheduleConfig(warmup=0.05),
        ),
    )


def fine_tuning_config(data: MaskSplits) -> SegmentationConfig:
    """The same, on the encoder of a checkpoint: a smaller rate, fewer epochs; its architecture and sizes come
    from the checkpoint. The mask Transformer, and one logit for each patch and class, as in the paper."""
    base = masks_config(data)
    return base.model_copy(
        update={
            "recipe": "masks, fine-tuned",
            "model": base.model.model_copy(update={"cells": 1, "decoder": "mask-transformer"}),
            "training": base.training.model_copy(
                update={"peak_lr": 2e-4, "epochs": max(base.training.epochs / 4, 10)}
            ),
        }
    )
