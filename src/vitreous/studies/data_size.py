"""How many images does a ViT need, compared with a hybrid and a ResNet? (section 4.3, Fig. 3 and 4)"""

from __future__ import annotations

from vitreous.studies.hybrid import MODELS, SETTINGS
from vitreous.studies.study import Effect, Part, Scale, Study, Trial, Variant
from vitreous.training.config import RunConfig

FRACTIONS = (0.1, 0.3, 1.0)


def variants(base: RunConfig) -> list[Variant]:
    """A small part is gone through as often as makes the same number of steps as for the whole."""
    return [
        Variant(
            f"{name}, {fraction:.0%}",
            Trial(
                {**tree, "training": {"epochs": base.training.epochs / fraction}},
                part=Part(fraction=fraction),
            ),
            group=name,
            x=fraction,
        )
        for name, tree in MODELS.items()
        for fraction in FRACTIONS
    ]


STUDY = Study(
    name="data-size",
    title="How much does each architecture gain from more images?",
    place="Fig. 3 and 4, section 4.3",
    measure="accuracy after pre-training on more and more of JFT: ResNets lead on little, ViTs on much data",
    differs="held-out accuracy after training from scratch on parts of the training images, in equal steps",
    variants=variants,
    effects=(
        Effect("on little data a ResNet is better than a ViT", "ResNet, 10%", "ViT, 10%"),
        Effect("on little data a hybrid is better than a ViT", "hybrid, 10%", "ViT, 10%"),
        Effect("on all data a ViT is better than a ResNet", "ViT, 100%", "ResNet, 100%"),
    ),
    settings=SETTINGS,
    full=Scale(epochs=20, seeds=3),
    quick=Scale(epochs=3, seeds=3),
    axis="part of the training images",
)
