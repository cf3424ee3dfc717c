"""Studies of learning: optimizer, resolution, amount of data, self-supervision."""

from __future__ import annotations

from typing import Any

from vitreous.studies.architecture_studies import EQUAL_COMPUTE, SMALL_IMAGES
from vitreous.studies.study import Effect, Part, Study, Trial, Variant
from vitreous.tasks.pretraining.config import ObjectiveName
from vitreous.training.config import RunConfig

# SGD needs larger learning rates: the paper's Table 4 (SGD) has 1 to 75 times those of Table 3 (Adam).
SGD_FACTOR = 30.0


def settings(kind: str, base: RunConfig, share: float = 1.0) -> dict[str, Any]:
    """An optimizer with a rate of its own; `share` of it for fine-tuning."""
    factor = SGD_FACTOR if kind == "sgd" else 1.0
    decay = base.training.optimizer.weight_decay if kind == "adamw" else 0.0
    rate = base.training.peak_lr * factor * share
    return {"training": {"peak_lr": rate, "optimizer": {"kind": kind, "weight_decay": decay}}}


def optimizer_variants(base: RunConfig) -> list[Variant]:
    names = {"adamw": "Adam", "sgd": "SGD"}
    return [
        Variant(
            f"{names[first]}, then {names[second]}",
            Trial(
                settings(second, base, share=0.3),
                part=Part("second half"),
                start=Trial(settings(first, base), part=Part("first half")),
            ),
        )
        for first in names
        for second in names
    ]


OPTIMIZER = Study(
    name="optimizer",
    title="Which optimizer pre-trains better, which fine-tunes better?",
    place="Table 7, appendix D.1; Tables 3 and 4",
    measure="accuracy after fine-tuning with SGD: pre-training with Adam is better than with SGD on most "
    "data",
    differs="a ViT instead of ResNets; pre-trained on the first half of the classes, fine-tuned with both "
    "optimizers and evaluated on the second half; the learning rate of SGD is 30 times Adam's, not tuned",
    variants=optimizer_variants,
    effects=(
        Effect("Adam pre-trains better than SGD", "Adam, then SGD", "SGD, then SGD"),
        Effect("SGD fine-tunes as well as Adam", "Adam, then SGD", "Adam, then Adam", alike=True),
    ),
)


def resolution_variants(base: RunConfig) -> list[Variant]:
    """Return the variants; all start from the same model, trained on images of half the size."""
    large, patch = base.model.image_size, base.model.model_dump()["patch_size"]
    small = tuple(max(side // 2, cell) for side, cell in zip(large, patch, strict=True))
    tuning: dict[str, Any] = {"training": {"peak_lr": base.training.peak_lr * 0.3}}
    start = Trial({"model": {"image_size": small}})
    higher = {**tuning, "model": {"image_size": large}}
    return [
        Variant("low, not fine-tuned", start),
        Variant("low, fine-tuned at low", Trial(tuning, start=start)),
        Variant("low, fine-tuned at high", Trial(higher, start=start)),
        Variant("low, at high, fresh positions", Trial(higher, start=start, fresh_positions=True)),
    ]


RESOLUTION = Study(
    name="resolution",
    title="Does fine-tuning at a higher resolution help, and must positions be resized for it?",
    place="section 3.2",
    measure="fine-tuning at 384 or 512 after 224, with resized positions; there is no table without",
    differs="fine-tuned for as long again, at 0.3 of the rate; of images as small as the digits a patch at "
    "twice the resolution shows half as much, which a short fine-tuning has to learn again",
    variants=resolution_variants,
    effects=(
        Effect("a higher resolution helps", "low, fine-tuned at high", "low, fine-tuned at low"),
        Effect(
            "resized positions are better than fresh ones",
            "low, fine-tuned at high",
            "low, at high, fresh positions",
        ),
    ),
)

FRACTIONS = (0.1, 0.3, 1.0)


def data_size_variants(base: RunConfig) -> list[Variant]:
    """Return a variant for each model and fraction; small parts have more epochs, for equal steps."""
    return [
        Variant(
            f"{name}, {100 * fraction:.0f} %",
            Trial(
                {**tree, "training": {"epochs": base.training.epochs / fraction}},
                part=Part(fraction=fraction),
            ),
            group=name,
            x=fraction,
        )
        for name, tree in EQUAL_COMPUTE.items()
        for fraction in FRACTIONS
    ]


DATA_SIZE = Study(
    name="data-size",
    title="How much does each architecture gain from more images?",
    place="Fig. 3 and 4, section 4.3",
    measure="accuracy after pre-training on more and more of JFT: ResNets lead on little, ViTs on much data",
    differs="held-out accuracy after training from scratch on parts of the training images, in equal steps",
    variants=data_size_variants,
    effects=(
        Effect("on little data a ResNet is better than a ViT", "ResNet, 10 %", "ViT, 10 %"),
        Effect("on little data a hybrid is better than a ViT", "hybrid, 10 %", "ViT, 10 %"),
        Effect("on all data a ViT is better than a ResNet", "ViT, 100 %", "ResNet, 100 %"),
    ),
    settings=SMALL_IMAGES,
    full=20,
    quick=3,
    axis="part of the training images",
)

PER_CLASS = 10
LABELED = 4  # passes over the few labeled images for each pass over all
OBJECTIVES: dict[str, ObjectiveName] = {"masked patches": "masked-patch", "MAE": "mae"}


def self_supervised_variants(base: RunConfig) -> list[Variant]:
    """The same encoder each time, which learns the same few labels for as long; pre-training sees all the
    images."""
    few = Part(per_class=PER_CLASS)
    tuning: dict[str, Any] = {"training": {"batch_size": 20, "epochs": LABELED * base.training.epochs}}
    shared: dict[str, Any] = {
        "model": base.model.model_dump(exclude={"num_classes"}),
        "preprocessing": base.preprocessing.model_dump(),
        "training": {"epochs": base.training.epochs},
    }
    return [
        Variant("from scratch", Trial(tuning, few), "77.9"),
        *(
            Variant(name, Trial(tuning, few, start=Trial(shared, objective=objective)), paper)
            for (name, objective), paper in zip(OBJECTIVES.items(), ("79.9", ""), strict=True)
        ),
    ]


SELF_SUPERVISED = Study(
    name="self-supervised",
    title="Does self-supervised pre-training help when there are few labels?",
    place="section 4.6 and appendix B.1.2",
    measure="ImageNet accuracy of ViT-B/16, %: masked patch prediction on JFT, and from scratch",
    differs=f"{PER_CLASS} labels of each class; pre-trained on the training images themselves; MAE is a "
    "later paper's (2111.06377)",
    variants=self_supervised_variants,
    effects=(
        Effect("masked patch prediction is better than nothing", "masked patches", "from scratch"),
        Effect("MAE is better than nothing", "MAE", "from scratch"),
    ),
    settings={"model": {"class_token": False, "pooling": "mean"}},
    full=150,
    quick=14,
)
