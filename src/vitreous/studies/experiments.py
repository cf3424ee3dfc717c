"""The paper's experiments. Their words are in the catalog, by the same names."""

from __future__ import annotations

from typing import Any

from vitreous.errors import InputError, nearest
from vitreous.languages import words
from vitreous.models.config import ViTConfig
from vitreous.models.description import describe
from vitreous.models.names import change
from vitreous.studies.study import Effect, Part, Study, Trial, Variant
from vitreous.training.config import RunConfig

POSITION_ROWS = (  # name, kind, where, the paper's accuracy
    ("none", "none", "stem", "0.61382"),
    ("1-D, stem", "learned", "stem", "0.64206"),
    ("1-D, every layer", "learned", "every-layer", "0.63964"),
    ("1-D, every layer, shared", "learned", "every-layer-shared", "0.64292"),
    ("2-D, stem", "learned-2d", "stem", "0.64001"),
    ("2-D, every layer", "learned-2d", "every-layer", "0.64046"),
    ("2-D, every layer, shared", "learned-2d", "every-layer-shared", "0.64022"),
    ("relative", "relative", "every-layer", "0.64032"),
)
RATE_FACTORS = (0.3, 1.0, 3.0, 10.0)  # of the recipe's learning rate
POOLINGS = {"class": "class token", "mean": "mean"}
SIZE_FACTORS = {"half": 0.5, "double": 2.0}
DIMENSIONS = {
    "depth": ("depth",),
    "width": ("width", "mlp_dim"),
    "MLP width": ("mlp_dim",),
    "patch": ("patch_size",),
}
# Images of 32x32, since a ResNet starts by reducing them four times. Six million operations each.
SMALL_IMAGES: dict[str, Any] = {"model": {"image_size": (32, 32)}}
VIT = {"width": 64, "depth": 3, "heads": 4, "mlp_dim": 128}
STEM = {"kind": "resnet", "layers": (), "width_factor": 0.5}
EQUAL_COMPUTE: dict[str, dict[str, Any]] = {
    "ViT": {"model": {**VIT, "patch_size": (8, 8), "depth": 10}},
    "hybrid": {"model": {**VIT, "patch_size": (4, 4), "depth": 2, "stem": STEM}},
    "ResNet": {"model": {"layers": (2, 2), "width_factor": 0.5, "order": "post-activation"}},
}
FRACTIONS = (0.1, 0.3, 1.0)  # of the training images
# SGD needs larger learning rates: the paper's Table 4 (SGD) has 1 to 75 times those of Table 3 (Adam).
SGD_FACTOR = 30.0
TUNING_FACTOR = 0.3  # of the learning rate, in fine-tuning
PER_CLASS = 10  # labeled images
LABELED = 4  # passes over the few labeled images for each pass over all


def positions_variants(base: RunConfig) -> list[Variant]:
    """Return a variant for each row of Table 8; all tables start with the base's standard deviation."""
    assert isinstance(base.model, ViTConfig)
    std = base.model.position.init_std
    return [
        Variant(name, Trial({"model": {"position": {"kind": kind, "where": where, "init_std": std}}}), paper)
        for name, kind, where, paper in POSITION_ROWS
    ]


def head_variants(base: RunConfig) -> list[Variant]:
    variants = []
    for pooling, name in POOLINGS.items():
        model = {"pooling": pooling, "class_token": pooling == "class"}
        for factor in RATE_FACTORS:
            rate = base.training.peak_lr * factor
            trial = Trial({"model": model, "training": {"peak_lr": rate}})
            variants.append(Variant(f"{name}, rate x{factor:g}", trial, group=name, x=rate))
    return variants


def shape_variants(base: RunConfig) -> list[Variant]:
    """The base, and every dimension halved and doubled alone; patches of half the side are four times as
    many. The curves are drawn over the operations of one image."""
    model = base.model
    changes: dict[str, dict[str, Any]] = {"the base": {}}
    for dimension, names in DIMENSIONS.items():
        for size, factor in SIZE_FACTORS.items():
            changes[f"{dimension}, {size}"] = {name: scaled(getattr(model, name), factor) for name in names}
    return [
        Variant(
            name,
            Trial({"model": leaves}),
            group=name.partition(",")[0],
            x=describe(change(model, leaves)).macs / 1e6,
        )
        for name, leaves in changes.items()
    ]


def scaled(value: int | tuple[int, ...], factor: float) -> int | tuple[int, ...]:
    """Return one size, or several, times `factor`; at least 1."""
    if isinstance(value, tuple):
        return tuple(max(1, round(side * factor)) for side in value)
    return max(1, round(value * factor))


def hybrid_variants(base: RunConfig) -> list[Variant]:
    return [Variant(name, Trial(tree)) for name, tree in EQUAL_COMPUTE.items()]


def data_size_variants(base: RunConfig) -> list[Variant]:
    """Return a variant for each model and fraction; small parts have more epochs, for equal steps."""
    variants = []
    for name, tree in EQUAL_COMPUTE.items():
        for fraction in FRACTIONS:
            training = {"epochs": base.training.epochs / fraction}
            trial = Trial({**tree, "training": training}, Part(fraction=fraction))
            variants.append(Variant(f"{name}, {100 * fraction:.0f} %", trial, group=name, x=fraction))
    return variants


def optimizer_variants(base: RunConfig) -> list[Variant]:
    names = {"adamw": "Adam", "sgd": "SGD"}
    first_half, second_half = Part("first half"), Part("second half")
    return [
        Variant(
            f"{names[first]}, then {names[second]}",
            Trial(
                optimized(second, base, TUNING_FACTOR),
                second_half,
                start=Trial(optimized(first, base), first_half),
            ),
        )
        for first in names
        for second in names
    ]


def optimized(kind: str, base: RunConfig, share: float = 1.0) -> dict[str, Any]:
    """Return the settings of an optimizer with a rate of its own; `share` of it for fine-tuning."""
    factor = SGD_FACTOR if kind == "sgd" else 1.0
    decay = base.training.optimizer.weight_decay if kind == "adamw" else 0.0
    rate = base.training.peak_lr * factor * share
    return {"training": {"peak_lr": rate, "optimizer": {"kind": kind, "weight_decay": decay}}}


def resolution_variants(base: RunConfig) -> list[Variant]:
    """Return the variants; all start from the same model, trained on images of half the size."""
    large, patch = base.model.image_size, base.model.model_dump()["patch_size"]
    small = tuple(max(side // 2, cell) for side, cell in zip(large, patch, strict=True))
    tuning: dict[str, Any] = {"training": {"peak_lr": base.training.peak_lr * TUNING_FACTOR}}
    start = Trial({"model": {"image_size": small}})
    higher = {**tuning, "model": {"image_size": large}}
    return [
        Variant("low, not fine-tuned", start),
        Variant("low, fine-tuned at low", Trial(tuning, start=start)),
        Variant("low, fine-tuned at high", Trial(higher, start=start)),
        Variant("low, at high, fresh positions", Trial(higher, start=start, fresh_positions=True)),
    ]


def self_supervised_variants(base: RunConfig) -> list[Variant]:
    """The same encoder each time, which learns the same few labels for as long; pre-training sees all the
    images."""
    few, training = Part(per_class=PER_CLASS), {"epochs": base.training.epochs}
    tuning: dict[str, Any] = {"training": {"batch_size": 20, "epochs": LABELED * base.training.epochs}}
    shared: dict[str, Any] = {
        "model": base.model.model_dump(exclude={"num_classes"}),
        "preprocessing": base.preprocessing.model_dump(),
        "training": training,
    }
    masked, mae = Trial(shared, objective="masked-patch"), Trial(shared, objective="mae")
    return [
        Variant("from scratch", Trial(tuning, few), "77.9"),
        Variant("masked patches", Trial(tuning, few, start=masked), "79.9"),
        Variant("MAE", Trial(tuning, few, start=mae)),
    ]


STUDIES = {
    study.name: study
    for study in (
        Study(
            "positions",
            positions_variants,
            effects=(
                Effect("any", "1-D, stem", "none"),
                Effect("two-dimensional", "2-D, stem", "1-D, stem", alike=True),
                Effect("once", "1-D, every layer", "1-D, stem", alike=True),
            ),
        ),
        Study("head", head_variants, effects=(Effect("mean", "class token, rate x1", "mean, rate x1"),)),
        Study(
            "optimizer",
            optimizer_variants,
            effects=(
                Effect("pre-training", "Adam, then SGD", "SGD, then SGD"),
                Effect("fine-tuning", "Adam, then SGD", "Adam, then Adam", alike=True),
            ),
        ),
        Study(
            "shape",
            shape_variants,
            effects=(
                Effect("depth", "depth, double", "depth, half"),
                Effect("patches", "patch, half", "patch, double"),
                Effect("width", "depth, double", "width, double"),
            ),
            quick=4,
        ),
        Study(
            "resolution",
            resolution_variants,
            effects=(
                Effect("higher", "low, fine-tuned at high", "low, fine-tuned at low"),
                Effect("resized", "low, fine-tuned at high", "low, at high, fresh positions"),
            ),
        ),
        Study(
            "hybrid",
            hybrid_variants,
            effects=(Effect("hybrid", "hybrid", "ViT"), Effect("vit", "ViT", "ResNet")),
            settings=SMALL_IMAGES,
        ),
        Study(
            "data-size",
            data_size_variants,
            effects=(
                Effect("resnet", "ResNet, 10 %", "ViT, 10 %"),
                Effect("hybrid", "hybrid, 10 %", "ViT, 10 %"),
                Effect("vit", "ViT, 100 %", "ResNet, 100 %"),
            ),
            settings=SMALL_IMAGES,
            full=20,
            quick=3,
        ),
        Study(
            "self-supervised",
            self_supervised_variants,
            effects=(
                Effect("masked-patch", "masked patches", "from scratch"),
                Effect("mae", "MAE", "from scratch"),
            ),
            settings={"model": {"class_token": False, "pooling": "mean"}},
            full=150,
            quick=14,
        ),
    )
}


def study_named(name: str) -> Study:
    """Return the study called `name`. Raises InputError with the nearest name if there is none."""
    if name not in STUDIES:
        raise InputError(f"unknown study {name!r}: {nearest(name, list(words('studies')))}")
    return STUDIES[name]
