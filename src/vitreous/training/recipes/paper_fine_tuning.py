"""The paper's fine-tuning at a higher resolution (arXiv 2010.11929, Table 4).

    vitreous train cifar10:cifar-10-batches-bin --recipe paper-fine-tuning --init B_16.npz

Hardware: one GPU with `--batch-size auto`. Time: 500 steps take 11 minutes, 10,000 four hours on one A100,
by model FLOPs at 384 (3 x forward, 55.5 GMACs) and 40 % of its peak: computed, not measured.
Steps and rates of Table 4, best rate chosen on held-out training images:

| data | training.steps | training.peak_lr |
|---|---|---|
| ImageNet | 20000 | 0.003, 0.01, 0.03, 0.06 |
| CIFAR-10, CIFAR-100 | 10000 | 0.001, 0.003, 0.01, 0.03 |
| Pets, Flowers | 500 | 0.001, 0.003, 0.01, 0.03 |
| VTAB | 2500 | 0.01 |

To expect from B/16 pre-trained on ImageNet-21k: CIFAR-10 99.02 %, CIFAR-100 92.06 %, ImageNet 84.53 %; after
500 steps CIFAR-10 98.59 % (public re-runs). H/14 uses 518 pixels.

Choices on which frameworks disagree: a zero head; positions resized as the checkpoint's own code does; no
decay; SGD's momentum without dampening; clipping before the momentum; the crop's ratio drawn uniformly, as
TensorFlow does; no RandAugment.
"""

from __future__ import annotations

from vitreous.data.config import AugmentationConfig, RandomResizedCropConfig
from vitreous.models.names import config_of
from vitreous.models.preprocessing import Preprocessing
from vitreous.training.config import OptimizerConfig, RunConfig, ScheduleConfig, TrainingConfig


def config() -> RunConfig:
    return RunConfig(
        source="cifar10:cifar-10-batches-bin",
        model=config_of("ViT-B/16", image_size=384, num_classes=10),
        preprocessing=Preprocessing(size=(384, 384), resize="squash", interpolation="bilinear"),
        augmentation=AugmentationConfig(
            random_resized_crop=RandomResizedCropConfig(scale=(0.05, 1.0), sampler="uniform"), flip=0.5
        ),
        training=TrainingConfig(
            steps=10_000,
            batch_size=512,
            peak_lr=0.01,
            optimizer=OptimizerConfig(kind="sgd", momentum=0.9, weight_decay=0.0, clip_norm=1.0),
            schedule=ScheduleConfig(kind="cosine", warmup=500),
            precision="bf16",
        ),
    )


IMPOSED = ("image_size",)
