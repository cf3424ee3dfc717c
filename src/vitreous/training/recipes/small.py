"""A small set of one's own, hundreds to tens of thousands of pictures, from scratch.

    vitreous train photos/ --recipe small

Hardware: two CPU cores, minutes. A convolutional stem replaces the large first patch (2106.14881), which is
what a small set cannot teach.
"""

from __future__ import annotations

from typing import Any

from vitreous.data.config import AugmentationConfig, RandomResizedCropConfig
from vitreous.models.config import ConvolutionStemConfig, ViTConfig
from vitreous.models.preprocessing import IMAGENET_MEAN, IMAGENET_STD, Preprocessing
from vitreous.training.config import (
    EvaluationConfig,
    OptimiserConfig,
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
            image_size=(48, 48),
            patch_size=(8, 8),
            width=192,
            depth=6,
            heads=3,
            mlp_dim=384,
            stem=ConvolutionStemConfig(widths=(32, 64, 128), strides=(2, 2, 2)),
            class_token=False,
            pooling="mean",
        ),
        preprocessing=Preprocessing(size=(48, 48), mean=IMAGENET_MEAN, std=IMAGENET_STD, crop_fraction=0.9),
        augmentation=AugmentationConfig(
            random_resized_crop=RandomResizedCropConfig(scale=(0.35, 1.0)), flip=0.5
        ),
        training=TrainingConfig(
            epochs=60,
            batch_size=64,
            peak_lr=6e-4,
            optimiser=OptimiserConfig(betas=(0.9, 0.98)),
            schedule=ScheduleConfig(warmup=0.1),
            ema_decay=0.999,
            label_smoothing=0.1,
        ),
        evaluation=EvaluationConfig(every_epochs=5),
    )
