"""Class token or mean of the patches, each with the learning rate that it needs (appendix D.3, Fig. 9)."""

from __future__ import annotations

from vitreous.studies.study import Effect, Study, Trial, Variant
from vitreous.training.config import RunConfig

FACTORS = (0.3, 1.0, 3.0, 10.0)  # of the recipe's learning rate
POOLINGS = {"class": "class token", "mean": "mean"}


def variants(base: RunConfig) -> list[Variant]:
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
        for factor in FACTORS
    ]


STUDY = Study(
    name="head",
    title="Is the class token needed, or does the mean of the patches do as well?",
    place="Fig. 9, appendix D.3",
    measure="5-shot linear accuracy on ImageNet: class token at 8e-4 and mean at 3e-4 end alike, mean at "
    "8e-4 is clearly worse",
    differs="held-out accuracy after training from scratch; learning rates around the recipe's own",
    variants=variants,
    effects=(
        Effect(
            "at the recipe's rate, chosen with a class token, the mean of the patches is worse",
            "class token, rate x1",
            "mean, rate x1",
        ),
    ),
    axis="peak learning rate",
)
