"""Studies of the architecture: positions, head, shape, and convolutional stems."""

from __future__ import annotations

from typing import Any

from vitreous.models.config import ViTConfig
from vitreous.models.description import describe
from vitreous.models.names import change
from vitreous.studies.study import Effect, Study, Trial, Variant
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


def positions_variants(base: RunConfig) -> list[Variant]:
    """Return a variant for each row of Table 8; all tables start with the base's standard deviation."""
    assert isinstance(base.model, ViTConfig)
    std = base.model.position.init_std
    return [
        Variant(name, Trial({"model": {"position": {"kind": kind, "where": where, "init_std": std}}}), paper)
        for name, kind, where, paper in POSITION_ROWS
    ]


POSITIONS = Study(
    name="positions",
    title="Does a ViT need position embeddings, and of which kind?",
    place="Table 8, appendix D.4",
    measure="5-shot linear accuracy on ImageNet, ViT-B/16 pre-trained on JFT",
    differs="held-out accuracy after training from scratch; a small ViT on a small grid of patches",
    variants=positions_variants,
    effects=(
        Effect("any positions are better than none", "1-D, stem", "none"),
        Effect("2-D positions are as good as 1-D", "2-D, stem", "1-D, stem", alike=True),
        Effect("it is enough to add them once, at the stem", "1-D, every layer", "1-D, stem", alike=True),
    ),
)

RATE_FACTORS = (0.3, 1.0, 3.0, 10.0)  # of the recipe's learning rate
POOLINGS = {"class": "class token", "mean": "mean"}


def head_variants(base: RunConfig) -> list[Variant]:
    return [
        Variant(
            f"{name}, rate x{factor:g}",
            Trial(
                {
                    "model": {"pooling": pooling, "class_token": pooling == "class"},
                    "training": {"peak_lr": base.training.peak_lr * factor},
                }
            ),
            group=name,
            x=base.training.peak_lr * factor,
        )
        for pooling, name in POOLINGS.items()
        for factor in RATE_FACTORS
    ]


HEAD = Study(
    name="head",
    title="Is the class token needed, or does the mean of the patches do as well?",
    place="Fig. 9, appendix D.3",
    measure="5-shot linear accuracy on ImageNet: class token at 8e-4 and mean at 3e-4 end alike, mean at "
    "8e-4 is clearly worse",
    differs="held-out accuracy after training from scratch; learning rates around the recipe's own",
    variants=head_variants,
    effects=(
        Effect(
            "at the recipe's rate, chosen with a class token, the mean of the patches is worse",
            "class token, rate x1",
            "mean, rate x1",
        ),
    ),
    axis="peak learning rate",
)

SIZE_FACTORS = {"half": 0.5, "double": 2.0}
DIMENSIONS = {
    "depth": ("depth",),
    "width": ("width", "mlp_dim"),
    "MLP width": ("mlp_dim",),
    "patch": ("patch_size",),
}


def scaled(value: int | tuple[int, ...], factor: float) -> int | tuple[int, ...]:
    """Return one size, or several, times `factor`; at least 1."""
    if isinstance(value, tuple):
        return tuple(max(1, round(side * factor)) for side in value)
    return max(1, round(value * factor))


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


SHAPE = Study(
    name="shape",
    title="Which dimension of a ViT is worth its compute?",
    place="Fig. 8, appendix D.2",
    measure="5-shot linear accuracy on ImageNet against compute: depth helps most, smaller patches help "
    "without a parameter more, width helps least",
    differs="held-out accuracy after training from scratch; each dimension halved and doubled",
    variants=shape_variants,
    effects=(
        Effect("more layers help", "depth, double", "depth, half"),
        Effect("smaller patches help", "patch, half", "patch, double"),
        Effect("doubling the depth helps more than doubling the width", "depth, double", "width, double"),
    ),
    quick=4,
    axis="million operations for one image",
)

# Images of 32x32, since a ResNet starts by reducing them four times. Six million operations each.
SMALL_IMAGES: dict[str, Any] = {"model": {"image_size": (32, 32)}}
VIT = {"width": 64, "depth": 3, "heads": 4, "mlp_dim": 128}
EQUAL_COMPUTE: dict[str, dict[str, Any]] = {
    "ViT": {"model": {**VIT, "patch_size": (8, 8), "depth": 10}},
    "hybrid": {
        "model": {
            **VIT,
            "patch_size": (4, 4),
            "depth": 2,
            "stem": {"kind": "resnet", "layers": (), "width_factor": 0.5},
        }
    },
    "ResNet": {"model": {"layers": (2, 2), "width_factor": 0.5, "order": "post-activation"}},
}


def hybrid_variants(base: RunConfig) -> list[Variant]:
    return [Variant(name, Trial(tree)) for name, tree in EQUAL_COMPUTE.items()]


HYBRID = Study(
    name="hybrid",
    title="Do convolutions before a ViT pay off at equal compute?",
    place="Fig. 5, section 4.4",
    measure="accuracy against pre-training compute on JFT: ViTs beat ResNets, hybrids beat ViTs when small",
    differs="held-out accuracy after training from scratch on few images, where ResNets lead in the paper",
    variants=hybrid_variants,
    effects=(
        Effect("a small hybrid is better than a ViT of the same compute", "hybrid", "ViT"),
        Effect("a ViT is better than a ResNet of the same compute", "ViT", "ResNet"),
    ),
    settings=SMALL_IMAGES,
)
