"""DeiT with a distillation token (arXiv 2012.12877, section 4): a teacher's choice beside the label.

    vitreous train imagenet/ --recipe deit-distilled --set training.distillation.teacher=MODEL

MODEL is any classifier that knows the classes: a run, a checkpoint. The paper's is a RegNetY-16GF (82.9 %); a
convolutional network teaches more than a transformer of the same accuracy.
Hardware: as `deit`. Time: 3 hours for S/16, as there, and the teacher's forward passes: of a RegNetY-16GF
(16 GMACs) 3.4 hours more, computed, not measured.
To expect: Ti 74.5 %, S 81.2 %, B 83.4 % on ImageNet at 224.

Choices on which frameworks disagree: those of `deit`; the teacher sees the very images that the student
sees, mixed ones too.
"""

from __future__ import annotations

from vitreous.training.config import DistillationConfig, RunConfig
from vitreous.training.recipes import deit


def config() -> RunConfig:
    plain = deit.config()
    model = {**plain.model.model_dump(), "distillation_token": True, "pooling": "class+distillation"}
    training = plain.training.model_copy(update={"distillation": DistillationConfig(form="hard", weight=0.5)})
    return plain.model_copy(update={"model": type(plain.model)(**model), "training": training})
