"""Depth, width, MLP width and patch size, one at a time (appendix D.2, Fig. 8)."""

from __future__ import annotations

from typing import Any

from vitreous.models.config import ViTConfig
from vitreous.models.description import describe
from vitreous.models.names import change
from vitreous.studies.study import Effect, Scale, Study, Trial, Variant
from vitreous.training.config import RunConfig

FACTORS = {"half": 0.5, "double": 2.0}
DIMENSIONS = {"depth": ("depth",), "width": ("width", "mlp_dim"), "MLP width": ("mlp_dim",)}


def variants(base: RunConfig) -> list[Variant]:
    """The base, and every dimension halved and doubled alone; patches of half the side are four times as
    many. The curves are drawn over the operations of one image."""
    assert isinstance(base.model, ViTConfig)
    model = base.model
    changes: dict[tuple[str, str], dict[str, Any]] = {
        (dimension, size): {name: max(1, round(getattr(model, name) * factor)) for name in names}
        for dimension, names in DIMENSIONS.items()
        for size, factor in FACTORS.items()
    }
    changes |= {
        ("patch", size): {"patch_size": tuple(max(1, round(side * factor)) for side in model.patch_size)}
        for size, factor in FACTORS.items()
    }
    rows: list[tuple[str, dict[str, Any]]] = [
        ("the base", {}),
        *((f"{dimension}, {size}", leaves) for (dimension, size), leaves in changes.items()),
    ]
    return [
        Variant(
            name,
            Trial({"model": leaves}),
            group=name.partition(",")[0],
            x=describe(change(model, leaves)).macs / 1e6,
        )
        for name, leaves in rows
    ]


STUDY = Study(
    name="shape",
    title="Which dimension of a ViT is worth its compute?",
    place="Fig. 8, appendix D.2",
    measure="5-shot linear accuracy on ImageNet against compute: depth helps most, smaller patches help "
    "without a parameter more, width helps least",
    differs="held-out accuracy after training from scratch; each dimension halved and doubled",
    variants=variants,
    effects=(
        Effect("more layers help", "depth, double", "depth, half"),
        Effect("smaller patches help", "patch, half", "patch, double"),
        Effect("doubling the depth helps more than doubling the width", "depth, double", "width, double"),
    ),
    quick=Scale(epochs=4, seeds=3),
    axis="million operations for one image",
)
