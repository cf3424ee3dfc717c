"""Better plain ViT baselines for ImageNet-1k (arXiv 2205.01580).

    vitreous train imagenet/ --recipe s16-baseline

Hardware: 8 GPUs. Time for 90 epochs: 6.5 hours on a TPUv3-8 (the paper), 1 hour
by model FLOPs (3 x forward) at 40 % of the peak of 8 A100: computed, not measured.
To expect: 76.5 % after 90 epochs, 80.0 % after 300 (`--epochs 300`).

Choices on which frameworks disagree: initialization as in big_vision with a zero head; decay independent of
the learning rate (1e-4; it would be 0.1 in PyTorch's form); tanh GELU; the crop's ratio drawn uniformly;
RandAugment(2, 10) with big_vision's operations; no class token: the mean of the patches.
"""

from __future__ import annotations

from vitreous.data.config import AugmentationConfig, RandAugmentConfig, RandomResizedCropConfig
from vitreous.models.names import config_of
from vitreous.models.preprocessing import Preprocessing
from vitreous.training.config import OptimizerConfig, RunConfig, ScheduleConfig, TrainingConfig


def config() -> RunConfig:
    return RunConfig(
        source="imagenet",
        model=config_of(
            "ViT-S/16",
            num_classes=1000,
            position={"kind": "sincos-2d"},
            class_token=False,
            pooling="mean",
            mlp="gelu_tanh",
        ),
        preprocessing=Preprocessing(crop_fraction=0.875, interpolation="bilinear"),
        augmentation=AugmentationConfig(
            random_resized_crop=RandomResizedCropConfig(scale=(0.05, 1.0), sampler="uniform"),
            flip=0.5,
            rand_augment=RandAugmentConfig(layers=2, magnitude=10, operations="big_vision"),
            mixup=0.2,
        ),
        training=TrainingConfig(
            epochs=90,
            batch_size=1024,
            peak_lr=1e-3,
            optimizer=OptimizerConfig(weight_decay=1e-4, decay_form="independent", clip_norm=1.0),
            schedule=ScheduleConfig(kind="cosine", warmup=10_000),
            precision="bf16",
        ),
    )
