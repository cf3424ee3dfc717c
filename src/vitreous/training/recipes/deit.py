"""Data-efficient image transformers (DeiT, arXiv 2012.12877, Table 9), without distillation.

    vitreous train imagenet/ --recipe deit

Hardware: 8 GPUs. Time: 3 hours for S/16
by model FLOPs (3 x forward) at 40 % of the peak of 8 A100: computed, not measured.
To expect: Ti 72.2 %, S 79.9 %, B 81.8 % on ImageNet at 224 (`--model ViT-B/16`).

Choices on which frameworks disagree: initialization as in timm (truncated normal 0.02); decay times the
learning rate; the crop's ratio drawn log-uniformly; RandAugment with timm's operations, magnitude 9 with
deviation 0.5, each applied half of the time; Mixup or CutMix for a whole batch; no clipping.
"""

from __future__ import annotations

from vitreous.data.config import AugmentationConfig, RandAugmentConfig, RandomResizedCropConfig
from vitreous.models.names import config_of
from vitreous.models.preprocessing import IMAGENET_MEAN, IMAGENET_STD, Preprocessing
from vitreous.training.config import OptimizerConfig, RunConfig, ScheduleConfig, TrainingConfig


def config() -> RunConfig:
    return RunConfig(
        source="imagenet",
        model=config_of("ViT-S/16", num_classes=1000, drop_path=0.1),
        preprocessing=Preprocessing(crop_fraction=0.875, mean=IMAGENET_MEAN, std=IMAGENET_STD),
        augmentation=AugmentationConfig(
            repeated_augmentation=3,
            random_resized_crop=RandomResizedCropConfig(scale=(0.08, 1.0)),
            flip=0.5,
            rand_augment=RandAugmentConfig(
                magnitude=9, magnitude_std=0.5, probability=0.5, operations="timm"
            ),
            random_erasing=0.25,
            mixup=0.8,
            cutmix=1.0,
        ),
        training=TrainingConfig(
            epochs=300,
            batch_size=1024,
            peak_lr=1e-3,
            optimizer=OptimizerConfig(weight_decay=0.05, clip_norm=None),
            schedule=ScheduleConfig(kind="cosine", warmup=5 / 300, end=0.01),
            label_smoothing=0.1,
            initialization="timm",
            precision="bf16",
        ),
    )
