"""Position embeddings: which kind, and where they are added (appendix D.4, Table 8)."""

from __future__ import annotations

from vitreous.models.config import ViTConfig
from vitreous.studies.study import Effect, Study, Trial, Variant
from vitreous.training.config import RunConfig

PAPER = {
    ("none", "stem"): "0.61382",
    ("learned", "stem"): "0.64206",
    ("learned", "every-layer"): "0.63964",
    ("learned", "every-layer-shared"): "0.64292",
    ("learned-2d", "stem"): "0.64001",
    ("learned-2d", "every-layer"): "0.64046",
    ("learned-2d", "every-layer-shared"): "0.64022",
    ("relative", "every-layer"): "0.64032",
}
KINDS = {"none": "none", "learned": "1-D", "learned-2d": "2-D", "relative": "relative"}
PLACES = {"stem": "stem", "every-layer": "every layer", "every-layer-shared": "every layer, shared"}


def variants(base: RunConfig) -> list[Variant]:
    """All tables begin as large as those of the base, whatever their kind."""
    assert isinstance(base.model, ViTConfig)
    std = base.model.position.init_std
    return [
        Variant(
            KINDS[kind] if kind in ("none", "relative") else f"{KINDS[kind]}, {PLACES[where]}",
            Trial({"model": {"position": {"kind": kind, "where": where, "init_std": std}}}),
            paper,
        )
        for (kind, where), paper in PAPER.items()
    ]


STUDY = Study(
    name="positions",
    title="Does a ViT need to be told where its patches are, and in which form?",
    place="Table 8, appendix D.4",
    measure="5-shot linear accuracy on ImageNet, ViT-B/16 pre-trained on JFT",
    differs="held-out accuracy after training from scratch; a small ViT on a small grid of patches",
    variants=variants,
    effects=(
        Effect("any positions are better than none", "1-D, stem", "none"),
        Effect("2-D positions are as good as 1-D", "2-D, stem", "1-D, stem", alike=True),
        Effect("it is enough to add them once, at the stem", "1-D, every layer", "1-D, stem", alike=True),
    ),
)
