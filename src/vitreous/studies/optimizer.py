"""Adam against SGD (appendix D.1, Table 7): pre-training with one, fine-tuning with the other."""

from __future__ import annotations

from typing import Any

from vitreous.studies.study import Effect, Part, Study, Trial, Variant
from vitreous.training.config import RunConfig

# SGD takes larger steps: the rates of the paper's Table 4 lie between 10 and 60 times Adam's of Table 3.
SGD_FACTOR = 30.0


def settings(kind: str, base: RunConfig, share: float = 1.0) -> dict[str, Any]:
    """An optimizer with a rate of its own; `share` of it for fine-tuning."""
    factor = SGD_FACTOR if kind == "sgd" else 1.0
    decay = base.training.optimizer.weight_decay if kind == "adamw" else 0.0
    rate = base.training.peak_lr * factor * share
    return {"training": {"peak_lr": rate, "optimizer": {"kind": kind, "weight_decay": decay}}}


def variants(base: RunConfig) -> list[Variant]:
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


STUDY = Study(
    name="optimizer",
    title="Which optimizer pre-trains better, which fine-tunes better?",
    place="Table 7, appendix D.1; Tables 3 and 4",
    measure="accuracy after fine-tuning with SGD: pre-training with Adam is better than with SGD on most "
    "data",
    differs="a ViT instead of ResNets; pre-trained on the first half of the classes, fine-tuned and judged "
    "on the second half; fine-tuned with both",
    variants=variants,
    effects=(
        Effect("Adam pre-trains better than SGD", "Adam, then SGD", "SGD, then SGD"),
        Effect("SGD fine-tunes as well as Adam", "Adam, then SGD", "Adam, then Adam", alike=True),
    ),
)
