"""Further recipes for ImageNet: DeiT (2012.12877), DeiT III (2204.07118), AugReg, plain baselines, MAE."""

from __future__ import annotations

from vitreous.data.config import (
    AugmentationConfig,
    ColorJitterConfig,
    RandAugmentConfig,
    RandomResizedCropConfig,
)
from vitreous.models.names import config_of
from vitreous.models.preprocessing import IMAGENET_MEAN, IMAGENET_STD, Preprocessing
from vitreous.training.config import (
    DistillationConfig,
    OptimizerConfig,
    RunConfig,
    ScheduleConfig,
    TrainingConfig,
)

DEIT_AUGMENTATION = AugmentationConfig(
    random_resized_crop=RandomResizedCropConfig(scale=(0.08, 1.0)),
    flip=0.5,
    rand_augment=RandAugmentConfig(magnitude=9, magnitude_std=0.5, probability=0.5, operations="timm"),
    random_erasing=0.25,
    mixup=0.8,
    cutmix=1.0,
)
MEDIUM1 = AugmentationConfig(  # AugReg's name for it
    random_resized_crop=RandomResizedCropConfig(scale=(0.05, 1.0), sampler="uniform"),
    flip=0.5,
    rand_augment=RandAugmentConfig(layers=2, magnitude=10, operations="big_vision"),
    mixup=0.2,
)


def deit() -> RunConfig:
    """Data-efficient image transformers (DeiT, arXiv 2012.12877, Table 9), without distillation.

        vitreous train imagenet/ --recipe deit

    Hardware: 8 GPUs. Time: 3 hours for S/16
    by model FLOPs (3 x forward) at 40 % of the peak of 8 A100: computed, not measured.
    To expect: Ti 72.2 %, S 79.9 %, B 81.8 % on ImageNet at 224 (`--model ViT-B/16`).

    Choices on which frameworks disagree: initialization as in timm (truncated normal 0.02); decay times the
    learning rate; the crop's ratio drawn log-uniformly; RandAugment with timm's operations, magnitude 9 with
    deviation 0.5, each applied half of the time; Mixup or CutMix for a whole batch; no clipping.
    """
    return RunConfig(
        source="imagenet",
        model=config_of("ViT-S/16", num_classes=1000, drop_path=0.1),
        preprocessing=Preprocessing(crop_fraction=0.875, mean=IMAGENET_MEAN, std=IMAGENET_STD),
        augmentation=DEIT_AUGMENTATION.model_copy(update={"repeated_augmentation": 3}),
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


def deit_distilled() -> RunConfig:
    """DeiT with a distillation token (arXiv 2012.12877, section 4): a teacher's choice beside the label.

        vitreous train imagenet/ --recipe deit-distilled --set training.distillation.teacher=MODEL

    MODEL is any classifier that knows the classes: a run, a checkpoint. The paper's is a RegNetY-16GF (82.9
    %); a convolutional network teaches more than a transformer of the same accuracy. Hardware: as `deit`.
    Time: 3 hours for S/16, as there, and the teacher's forward passes: of a RegNetY-16GF (16 GMACs) 3.4 hours
    more, computed, not measured. To expect: Ti 74.5 %, S 81.2 %, B 83.4 % on ImageNet at 224.

    Choices on which frameworks disagree: those of `deit`; the teacher sees the very images that the student
    sees, mixed ones too.
    """
    plain = deit()
    model = {**plain.model.model_dump(), "distillation_token": True, "pooling": "class+distillation"}
    training = plain.training.model_copy(update={"distillation": DistillationConfig(form="hard", weight=0.5)})
    return plain.model_copy(update={"model": type(plain.model)(**model), "training": training})


def deit3() -> RunConfig:
    """DeiT III (arXiv 2204.07118, Table 1): supervised training on ImageNet-1k with three simple
    augmentations.

        vitreous train imagenet/ --recipe deit3

    Hardware: 8 GPUs. Time: 4 hours for S/16
    by model FLOPs (3 x forward) at 40 % of the peak of 8 A100: computed, not measured.
    To expect: S 80.4 % after 400 epochs, 81.4 % after 800 (`--epochs 800`); B 83.8 % after 800.

    Choices on which frameworks disagree: the paper's optimizer is LAMB at 3e-3, which torch.optim lacks:
    this recipe uses AdamW at 1e-3, so the numbers above are the paper's, not ours. Initialization as in timm;
    decay times the learning rate; crop ratio log-uniform; 3-Augment and color jitter instead of RandAugment;
    binary cross-entropy.
    """
    return RunConfig(
        source="imagenet",
        model=config_of("ViT-S/16", num_classes=1000, drop_path=0.05, layer_scale=1e-4),
        preprocessing=Preprocessing(crop_fraction=1.0, mean=IMAGENET_MEAN, std=IMAGENET_STD),
        augmentation=AugmentationConfig(
            repeated_augmentation=3,
            random_resized_crop=RandomResizedCropConfig(scale=(0.08, 1.0)),
            flip=0.5,
            three_augment=True,
            color_jitter=ColorJitterConfig(brightness=0.3, contrast=0.3, saturation=0.3),
            mixup=0.8,
            cutmix=1.0,
        ),
        training=TrainingConfig(
            epochs=400,
            batch_size=2048,
            peak_lr=1e-3,
            optimizer=OptimizerConfig(weight_decay=0.02, clip_norm=1.0),
            schedule=ScheduleConfig(kind="cosine", warmup=5 / 400),
            loss="sigmoid",
            initialization="timm",
            precision="bf16",
        ),
    )


def augreg() -> RunConfig:
    """How to train your ViT (AugReg, arXiv 2106.10270): ImageNet-21k, "medium1" augmentation.

        vitreous train shards-{0000..2047}.tar --recipe augreg

    Hardware: 8 GPUs of 80 GB (the paper: TPUv3). Time: 5 days for B/16
    by model FLOPs (3 x forward) at 40 % of the peak of 8 A100: computed, not measured.
    To expect after fine-tuning at 384: B/16 85.49 %, B/32 83.59 %, S/16 83.73 %, Ti/16 78.22 % on ImageNet.

    Choices on which frameworks disagree: initialization as in vit_jax; decay times the learning rate
    (big_vision's 1e-4, independent of the rate, is 0.1 here at 1e-3); the crop's ratio drawn uniformly;
    RandAugment with big_vision's operations at their strongest, 10 (the paper's 15 reaches beyond the list).
    """
    return RunConfig(
        source="imagenet21k",
        model=config_of("ViT-B/16", num_classes=21843),
        preprocessing=Preprocessing(crop_fraction=0.875, interpolation="bilinear"),
        augmentation=MEDIUM1,
        training=TrainingConfig(
            epochs=300,
            batch_size=4096,
            peak_lr=1e-3,
            optimizer=OptimizerConfig(betas=(0.9, 0.999), weight_decay=0.1, clip_norm=1.0),
            schedule=ScheduleConfig(kind="cosine", warmup=10_000),
            precision="bf16",
        ),
    )


def s16_baseline() -> RunConfig:
    """Better plain ViT baselines for ImageNet-1k (arXiv 2205.01580).

        vitreous train imagenet/ --recipe s16-baseline

    Hardware: 8 GPUs. Time for 90 epochs: 6.5 hours on a TPUv3-8 (the paper), 1 hour
    by model FLOPs (3 x forward) at 40 % of the peak of 8 A100: computed, not measured.
    To expect: 76.5 % after 90 epochs, 80.0 % after 300 (`--epochs 300`).

    Choices on which frameworks disagree: initialization as in big_vision with a zero head; decay independent
    of the learning rate (1e-4; it would be 0.1 in PyTorch's form); tanh GELU; the crop's ratio drawn
    uniformly; RandAugment(2, 10) with big_vision's operations; no class token: the mean of the patches.
    """
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
        augmentation=MEDIUM1,
        training=TrainingConfig(
            epochs=90,
            batch_size=1024,
            peak_lr=1e-3,
            optimizer=OptimizerConfig(weight_decay=1e-4, decay_form="independent", clip_norm=1.0),
            schedule=ScheduleConfig(kind="cosine", warmup=10_000),
            precision="bf16",
        ),
    )


def mae_fine_tuning() -> RunConfig:
    """Fine-tuning a masked autoencoder (MAE, arXiv 2111.06377, Table 9): late layers learn faster.

        vitreous train imagenet/ --recipe mae-fine-tuning --init RUN

    RUN is a `vitreous pretrain` run or MAE's own weights. Hardware: 8 GPUs. Time: 4 hours for B/16
    by model FLOPs (3 x forward) at 40 % of the peak of 8 A100: computed, not measured.
    To expect: B/16 83.6 %, L/16 85.9 % (50 epochs, layer decay 0.75) on ImageNet at 224.

    Choices on which frameworks disagree: layer l of L learns at decay^(L + 1 - l), the tokens as layer 0;
    the mean of the normalized patches (MAE normalizes the mean); decay times the learning rate; crop ratio
    log-uniform; RandAugment with timm's operations; the head drawn small (timm), not zero.
    """
    return RunConfig(
        source="imagenet",
        model=config_of("ViT-B/16", num_classes=1000, drop_path=0.1, pooling="mean"),
        preprocessing=Preprocessing(crop_fraction=0.875, mean=IMAGENET_MEAN, std=IMAGENET_STD),
        augmentation=DEIT_AUGMENTATION,
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
