"""Fine-tuning a masked autoencoder (MAE, arXiv 2111.06377, Table 9): late layers learn faster.

    vitreous train imagenet/ --recipe mae-fine-tuning --init RUN

RUN is a `vitreous pretrain` run or MAE's own weights. Hardware: 8 GPUs. Time: 4 hours for B/16
by model FLOPs (3 x forward) at 40 % of the peak of 8 A100: computed, not measured.
To expect: B/16 83.6 %, L/16 85.9 % (50 epochs, layer decay 0.75) on ImageNet at 224.

Choices on which frameworks disagree: layer l of L learns at decay^(L + 1 - l), the tokens as layer 0;
the mean of the normalized patches (MAE normalizes the mean); decay times the learning rate; crop ratio
log-uniform; RandAugment with timm's operations; the head drawn small (timm), not zero.
"""

from __future__ import annotations

from vitreous.data.config import AugmentationConfig, RandAugmentConfig, RandomResizedCropConfig
from vitreous.models.names import config_of
from vitreous.models.preprocessing import IMAGENET_MEAN, IMAGENET_STD, Preprocessing
from vitreous.training.config import OptimizerConfig, RunConfig, ScheduleConfig, TrainingConfig


def config() -> RunConfig:
    return RunConfig(
        source="imagenet",
        model=config_of("ViT-B/16", num_classes=1000, drop_path=0.1, pooling="mean"),
        preprocessing=Preprocessing(crop_fraction=0.875, mean=IMAGENET_MEAN, std=IMAGENET_STD),
        augmentation=AugmentationConfig(
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
            epochs=100,
            batch_size=1024,
            peak_lr=2e-3,
            optimizer=OptimizerConfig(weight_decay=0.05, layer_decay=0.65, clip_norm=None),
            schedule=ScheduleConfig(kind="cosine", warmup=0.05),
            label_smoothing=0.1,
            initialization="timm",
            precision="bf16",
        ),
    )


IMPOSED = ("pooling", "drop_path")
