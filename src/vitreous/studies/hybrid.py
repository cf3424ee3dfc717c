"""A pure ViT, a hybrid and a ResNet at about equal compute (section 4.4, Fig. 5)."""

from __future__ import annotations

from typing import Any

from vitreous.studies.study import Effect, Scale, Study, Trial, Variant
from vitreous.training.config import RunConfig

# Images of 32x32, since a ResNet begins by shrinking them four times. Six million operations each.
SETTINGS: dict[str, Any] = {"model": {"image_size": (32, 32)}}
VIT = {"width": 64, "depth": 3, "heads": 4, "mlp_dim": 128}
MODELS: dict[str, dict[str, Any]] = {
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


def variants(base: RunConfig) -> list[Variant]:
    return [Variant(name, Trial(tree)) for name, tree in MODELS.items()]


STUDY = Study(
    name="hybrid",
    title="Do convolutions in front of a ViT pay at equal compute?",
    place="Fig. 5, section 4.4",
    measure="accuracy against pre-training compute on JFT: ViTs beat ResNets, hybrids beat ViTs when small",
    differs="held-out accuracy after training from scratch on few images, where ResNets lead in the paper",
    variants=variants,
    effects=(
        Effect("a small hybrid is better than a ViT of the same compute", "hybrid", "ViT"),
        Effect("a ViT is better than a ResNet of the same compute", "ViT", "ResNet"),
    ),
    settings=SETTINGS,
    full=Scale(epochs=40, seeds=3),
    quick=Scale(epochs=6, seeds=3),
)
