"""The paper's pre-training on ImageNet-21k (arXiv 2010.11929, Table 3).

    vitreous train shards-{0000..2047}.tar --recipe paper-imagenet21k

Hardware: 8 GPUs of 80 GB (the paper: 230 TPUv3-core-days for L/16, Table 2). Time: 37 hours for B/16
by model FLOPs (3 x forward) at 40 % of the peak of 8 A100: computed, not measured.
To expect: B/16 fine-tuned: CIFAR-10 99.02 %, CIFAR-100 92.06 %, ImageNet 84.53 % (public re-runs).
L takes 30 or 90 epochs with the same values.

Choices on which frameworks disagree: initialization as in vit_jax; decay times the learning rate; the crop's
ratio drawn uniformly; no RandAugment.
"""

from __future__ import annotations

from vitreous.data.config import AugmentationConfig, RandomResizedCropConfig
from vitreous.models.names import config_of
from vitreous.models.preprocessing import Preprocessing
from vitreous.training.config import OptimizerConfig, RunConfig, ScheduleConfig, TrainingConfig


def config() -> RunConfig:
    return RunConfig(
        source="imagenet21k",
        model=config_of("ViT-B/16", num_classes=21843, representation_size=768, dropout=0.1),
        preprocessing=Preprocessing(crop_fraction=0.875, interpolation="bilinear"),
        augmentation=AugmentationConfig(
            random_resized_crop=RandomResizedCropConfig(scale=(0.05, 1.0), sampler="uniform"), flip=0.5
        ),
        training=TrainingConfig(
            epochs=90,
            batch_size=4096,
            peak_lr=1e-3,
            optimizer=OptimizerConfig(betas=(0.9, 0.999), weight_decay=0.03, clip_norm=1.0),
            schedule=ScheduleConfig(kind="linear", warmup=10_000),
            precision="bf16",
        ),
    )
