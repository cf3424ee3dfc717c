"""Self-supervised pre-training before a few labels (section 4.6, appendix B.1.2)."""

from __future__ import annotations

from typing import Any

from vitreous.pretraining.config import ObjectiveName
from vitreous.studies.study import Effect, Part, Scale, Study, Trial, Variant
from vitreous.training.config import RunConfig

PER_CLASS = 10
LABELED = 4  # passes over the few labeled images for each pass over all
OBJECTIVES: dict[str, ObjectiveName] = {"masked patches": "masked-patch", "MAE": "mae"}


def variants(base: RunConfig) -> list[Variant]:
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


STUDY = Study(
    name="self-supervised",
    title="Is it worth looking at images without labels first?",
    place="section 4.6 and appendix B.1.2",
    measure="ImageNet accuracy of ViT-B/16, %: masked patch prediction on JFT, and from scratch",
    differs=f"{PER_CLASS} labels of each class; pre-trained on the training images themselves; MAE is a "
    "later paper's (2111.06377)",
    variants=variants,
    effects=(
        Effect("masked patch prediction is better than nothing", "masked patches", "from scratch"),
        Effect("MAE is better than nothing", "MAE", "from scratch"),
    ),
    settings={"model": {"class_token": False, "pooling": "mean"}},
    full=Scale(epochs=150, seeds=3),
    quick=Scale(epochs=14, seeds=3),
)
