"""A linear classifier on frozen features, trained with augmentation; `vitreous probe` has closed forms.

    vitreous train photos/ --recipe linear-probe --init B_16.npz

Hardware: one GPU, or patience; the encoder runs forward only. Time: B/16 sees 50,000
images 30 times in 7 minutes on one A100 with `--precision bf16`, by model FLOPs (1 x forward) at 40 % of
its peak: computed, not measured.
To expect: a few points below fine-tuning for supervised or DINO features, 10 to 15 for MAE (2111.06377,
Table 3: B/16 68.0 % against 83.6 %, there with the LARS optimizer).

Choices on which frameworks disagree: a zero head; no decay; no normalization of the features in front of
it; the crop's ratio log-uniform; no RandAugment.
"""

from __future__ import annotations

from vitreous.data.config import AugmentationConfig, RandomResizedCropConfig
from vitreous.models.names import config_of
from vitreous.models.preprocessing import Preprocessing
from vitreous.training.config import OptimizerConfig, RunConfig, ScheduleConfig, TrainingConfig


def config() -> RunConfig:
    return RunConfig(
        source="photos",
        model=config_of("ViT-B/16"),
        preprocessing=Preprocessing(crop_fraction=0.875),
        augmentation=AugmentationConfig(random_resized_crop=RandomResizedCropConfig(), flip=0.5),
        training=TrainingConfig(
            epochs=30,
            batch_size=256,
            peak_lr=0.1,
            optimizer=OptimizerConfig(kind="sgd", momentum=0.9, weight_decay=0.0, clip_norm=None),
            schedule=ScheduleConfig(kind="cosine", warmup=0.05),
            freeze=("backbone",),
        ),
    )
