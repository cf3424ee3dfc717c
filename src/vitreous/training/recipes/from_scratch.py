"""A small set of one's own, hundreds to tens of thousands of images, from scratch.

    vitreous train photos/

Hardware: two CPU cores. Time: four to ten minutes (`--minutes 4`) on 3,600 images of 24 classes.
To expect, on three made sets of that size which tuned nothing: 88.3, 75.7 and 37.3 % after four minutes,
95.8, 74.3 and 37.8 % after ten, where a CNN of six convolutions has 83.8, 71.2, 36.5 and 92.2, 73.2, 37.7 %
(benchmarks/results/from_scratch.json).

What a small set cannot teach is built in. Six 3x3 convolutions stand
before the tokens (2106.14881), and each of their channels is normalized by itself: with one norm over all
channels the differences in brightness and color between images hide the little that tells the classes
apart, and the loss stays where it began. LayerScale lets the layers start as next to nothing, so that at
first this is a small convolutional network. Images are turned, shifted and scaled, never mirrored: a
mirrored letter is another one.

Choices on which frameworks disagree: initialization as in vit_jax; decay times the learning rate; no crop,
but the whole image; no RandAugment; the mean of the patches instead of a class token.
"""

from __future__ import annotations

from typing import Any

from vitreous.data.config import AffineConfig, AugmentationConfig
from vitreous.models.config import ConvolutionStemConfig, ViTConfig
from vitreous.models.preprocessing import IMAGENET_MEAN, IMAGENET_STD, Preprocessing
from vitreous.training.config import (
    EvaluationConfig,
    OptimizerConfig,
    RunConfig,
    ScheduleConfig,
    TrainingConfig,
)

TINY: dict[str, Any] = {
    "training": {"steps": 2, "batch_size": 8},
    "model": {"depth": 1, "width": 32, "heads": 2, "mlp_dim": 32},
}


def config() -> RunConfig:
    return RunConfig(
        source="photos",
        model=ViTConfig(
            image_size=(64, 64),
            patch_size=(8, 8),
            width=128,
            depth=3,
            heads=4,
            mlp_dim=256,
            stem=ConvolutionStemConfig(
                widths=(32, 32, 64, 64, 128, 128), strides=(2, 1, 2, 1, 2, 1), norm="instance"
            ),
            class_token=False,
            pooling="mean",
            layer_scale=0.1,
        ),
        preprocessing=Preprocessing(size=(64, 64), mean=IMAGENET_MEAN, std=IMAGENET_STD),
        augmentation=AugmentationConfig(affine=AffineConfig(rotate=12, translate=0.12, scale=0.2, shear=6)),
        training=TrainingConfig(
            epochs=60,
            batch_size=64,
            peak_lr=2e-3,
            optimizer=OptimizerConfig(betas=(0.9, 0.98)),
            schedule=ScheduleConfig(warmup=0.1),
            ema_decay=0.995,
            label_smoothing=0.1,
        ),
        evaluation=EvaluationConfig(every_epochs=5),
    )
