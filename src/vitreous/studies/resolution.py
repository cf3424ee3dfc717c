"""Fine-tuning at a higher resolution than in pre-training, with resized positions or not (section 3.2)."""

from __future__ import annotations

from typing import Any

from vitreous.studies.study import Effect, Study, Trial, Variant
from vitreous.training.config import RunConfig


def variants(base: RunConfig) -> list[Variant]:
    """Everything begins with the same model, trained on images of half the side."""
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


STUDY = Study(
    name="resolution",
    title="Does fine-tuning at a higher resolution help, and must positions be resized for it?",
    place="section 3.2",
    measure="fine-tuning at 384 or 512 after 224, with resized positions; there is no table without",
    differs="fine-tuned for as long again, at 0.3 of the rate; of images as small as the digits a patch at "
    "twice the resolution shows half as much, which a short fine-tuning has to learn anew",
    variants=variants,
    effects=(
        Effect("a higher resolution helps", "low, fine-tuned at high", "low, fine-tuned at low"),
        Effect(
            "resized positions are better than fresh ones",
            "low, fine-tuned at high",
            "low, at high, fresh positions",
        ),
    ),
)
