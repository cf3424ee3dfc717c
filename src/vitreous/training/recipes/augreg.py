"""How to train your ViT (AugReg, arXiv 2106.10270): ImageNet-21k, "medium1" augmentation.

    vitreous train shards-{0000..2047}.tar --recipe augreg

Hardware: 8 GPUs of 80 GB (the paper: TPUv3). Time: 5 days for B/16
by model FLOPs (3 x forward) at 40 % of the peak of 8 A100: computed, not measured.
To expect after fine-tuning at 384: B/16 85.49 %, B/32 83.59 %, S/16 83.73 %, Ti/16 78.22 % on ImageNet.

Choices on which frameworks disagree: initialization as in vit_jax; decay times the learning rate
(big_vision's 1e-4, independent of the rate, is 0.1 here at 1e-3); the crop's ratio drawn uniformly;
RandAugment with big_vision's operations at their strongest, 10 (the paper's 15 reaches beyond the list).
"""

from __future__ import annotations

from vitreous.data.config import AugmentationConfig, RandAugmentConfig, RandomResizedCropConfig
from vitreous.models.names import config_of
from vitreous.models.preprocessing import Preprocessing
from vitreous.training.config import OptimizerConfig, RunConfig, ScheduleConfig, TrainingConfig


def config() -> RunConfig:
    return RunConfig(
        source="imagenet21k",
        model=config_of("ViT-B/16", num_classes=21843),
        preprocessing=Preprocessing(crop_fraction=0.875, interpolation="bilinear"),
        augmentation=AugmentationConfig(
            random_resized_crop=RandomResizedCropConfig(scale=(0.05, 1.0), sampler="uniform"),
            flip=0.5,
            rand_augment=RandAugmentConfig(layers=2, magnitude=10, operations="big_vision"),
            mixup=0.2,
        ),
        training=TrainingConfig(
            epochs=300,
            batch_size=4096,
            peak_lr=1e-3,
            optimizer=OptimizerConfig(betas=(0.9, 0.999), weight_decay=0.1, clip_norm=1.0),
            schedule=ScheduleConfig(kind="cosine", warmup=10_000),
            precision="bf16",
        ),
    )
