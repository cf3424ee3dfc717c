"""How a segmenter is trained: on the bundled pages, and on somebody's own images."""

from __future__ import annotations

from vitreous.data.config import AugmentationConfig, ColorJitterConfig, RandomResizedCropConfig
from vitreous.data.segmentation.digit_pages import CLASSES, DIGIT_PAGES, SIDE
from vitreous.data.segmentation.masked import MaskSplits
from vitreous.models.config import ConvolutionStemConfig, PositionConfig
from vitreous.models.preprocessing import IMAGENET_MEAN, IMAGENET_STD, Preprocessing
from vitreous.models.segmenter import SegmenterConfig
from vitreous.tasks.segmentation.config import SegmentationConfig
from vitreous.training.config import OptimizerConfig, ScheduleConfig, TrainingConfig

LOOKS = 100_000  # at images, in a whole training
EPOCHS = (20, 400)  # fewest and most
LARGE = 192  # pixels of the shorter side, from which on images are shown at 256x256


def digit_pages_config() -> SegmentationConfig:
    """The bundled job: pages of handwritten digits.

    vitreous train --task segmentation

    What decided, on pages of training digits that were set aside, after equal processor time: with a norm
    over all channels behind each convolution the loss stayed for 200 steps at that of calling everything
    background, with one for each channel (blind to dark ink on light paper or the other way round) it fell at
    once; the linear decoder learned the classes twice as fast as the mask Transformer, which finds their
    outlines sooner; batches of 16 were better than of 32.
    """
    return SegmentationConfig(
        source=DIGIT_PAGES,
        recipe=DIGIT_PAGES,
        model=SegmenterConfig(
            image_size=(SIDE, SIDE),
            channels=1,
            patch_size=(8, 8),
            num_classes=len(CLASSES),
            width=128,
            depth=5,
            heads=4,
            mlp_dim=256,
            stem=ConvolutionStemConfig(
                widths=(32, 32, 64, 64, 128), strides=(2, 1, 2, 1, 2), norm="instance"
            ),
            position=PositionConfig(kind="sincos-2d"),
            class_token=False,
            layer_scale=0.1,
            decoder="linear",
            cells=4,
        ),
        preprocessing=Preprocessing(
            size=(SIDE, SIDE),
            channels=1,
            resize="squash",
            interpolation="bilinear",
            mean=(0.5,),
            std=(0.33,),
        ),
        training=TrainingConfig(
            steps=2500,
            batch_size=16,
            peak_lr=1.5e-3,
            optimizer=OptimizerConfig(betas=(0.9, 0.98), weight_decay=0.05),
            schedule=ScheduleConfig(warmup=0.03),
        ),
    )


def masks_config(data: MaskSplits) -> SegmentationConfig:
    """For somebody's own images, from scratch: a small ViT behind convolutions, at 128x128 or, of images
    that are large enough, at 256x256; random crops, mirrored where that is asked for."""
    large = min(data.size) >= LARGE
    size = (256, 256) if large else (128, 128)
    strides = (2, 1, 2, 1, 2, 1, 2) if large else (2, 1, 2, 1, 2)
    images = len(data.train)
    gray = data.channels == 1
    batch = min(16, max(images // 4, 1))
    return SegmentationConfig(
        source=data.name,
        recipe="masks",
        model=SegmenterConfig(
            image_size=size,
            channels=data.channels,
            patch_size=(16, 16) if large else (8, 8),
            num_classes=len(data.train.classes),
            width=192,
            depth=6,
            heads=6,
            mlp_dim=384,
            stem=ConvolutionStemConfig(
                widths=(32, 32, 64, 64, 128, 128, 192)[: len(strides)], strides=strides, norm="instance"
            ),
            position=PositionConfig(kind="sincos-2d"),
            class_token=False,
            layer_scale=0.1,
            decoder="linear",
            cells=4,
        ),
        preprocessing=Preprocessing(
            size=size,
            channels=data.channels,
            resize="squash",
            interpolation="bilinear",
            mean=(0.5,) if gray else IMAGENET_MEAN,
            std=(0.25,) if gray else IMAGENET_STD,
        ),
        augmentation=AugmentationConfig(
            random_resized_crop=RandomResizedCropConfig(scale=(0.25, 1.0)),
            color_jitter=ColorJitterConfig(),
        ),
        training=TrainingConfig(
            epochs=min(max(LOOKS // images, EPOCHS[0]), EPOCHS[1]),
            batch_size=batch,
            peak_lr=1e-3,
            optimizer=OptimizerConfig(betas=(0.9, 0.98), weight_decay=0.05),
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
