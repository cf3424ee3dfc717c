"""Learning from a teacher's answers beside the labels (DeiT, arXiv 2012.12877, section 4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from vitreous.data.image_samples import Batch
from vitreous.errors import InputError
from vitreous.layers.pooling import DistilledHead
from vitreous.models.names import Model
from vitreous.models.preprocessing import Preprocessing
from vitreous.training.config import DistillationConfig, TrainingConfig
from vitreous.training.objectives import LOSSES, Objective, accuracy

Logits = Float[Tensor, "B classes"]


def distillation(config: TrainingConfig, teacher: Teacher) -> Objective:
    """(1 - weight) * the loss on labels + weight * the loss on the teacher's answers.

    A model with a distillation token answers the teacher with that token's head, and the labels with the
    class token's; any other model answers both with its only head.
    """
    label_loss, weight = LOSSES[config.loss], config.distillation.weight

    def objective(
        model: nn.Module, batch: Batch, generator: torch.Generator
    ) -> tuple[Tensor, Mapping[str, Tensor]]:
        to_labels, to_teacher = both_answers(model, batch.images)
        taught = teacher_loss(to_teacher, teacher(batch.images), config.distillation)
        loss = (1 - weight) * label_loss(to_labels, batch.targets, config.label_smoothing) + weight * taught
        return loss, {"accuracy": accuracy(to_labels, batch.targets), "distillation_loss": taught.detach()}

    return objective


def both_answers(model: nn.Module, images: Float[Tensor, "B C H W"]) -> tuple[Logits, Logits]:
    """Logits for the labels, logits for the teacher."""
    head = model.head
    if isinstance(head, DistilledHead):
        classes, taught = head.both(model.features(images))  # type: ignore[operator]
        return classes.float(), taught.float()
    logits = model(images).float()
    return logits, logits


def teacher_loss(logits: Logits, teacher: Logits, config: DistillationConfig) -> Float[Tensor, ""]:
    """Hard: cross-entropy with the teacher's choice (Eq. 3). Soft: the divergence from its softened answer,
    times temperature squared (Eq. 2; 1503.02531)."""
    if config.form == "hard":
        return F.cross_entropy(logits, teacher.argmax(dim=1))
    t = config.temperature
    return F.kl_div(
        F.log_softmax(logits / t, dim=1),
        F.log_softmax(teacher / t, dim=1),
        reduction="batchmean",
        log_target=True,
    ) * (t * t)


class Teacher:
    """Any classifier, answering in the student's classes about the student's images."""

    def __init__(self, model: Model, student: Preprocessing, classes: Sequence[str]) -> None:
        """Raises InputError where the teacher does not know a class."""
        self.model = model.eval().requires_grad_(False)
        self.theirs, self.ours = model.preprocessing, student
        self.columns = matching_columns(model, classes)

    @torch.no_grad()
    def __call__(self, images: Float[Tensor, "B C H W"]) -> Logits:
        self.model.to(images.device)
        logits: Tensor = self.model(self.as_it_was_taught(images)).float()
        return logits[:, self.columns.to(logits.device)]

    def as_it_was_taught(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B C2 H2 W2"]:
        """The student's images in the teacher's colors, normalization and size."""
        ours, theirs = (
            [torch.tensor(values, device=images.device).view(-1, 1, 1) for values in (p.mean, p.std)]
            for p in (self.ours, self.theirs)
        )
        values = images * ours[1] + ours[0]
        if self.theirs.channels != self.ours.channels:
            values = values.mean(dim=1, keepdim=True).expand(-1, self.theirs.channels, -1, -1)
        if self.theirs.size != self.ours.size:
            values = F.interpolate(values, self.theirs.size, mode="bicubic", antialias=True)
        return (values - theirs[0]) / theirs[1]


def matching_columns(teacher: Model, classes: Sequence[str]) -> Int[Tensor, " classes"]:
    """Where each of the student's classes stands among the teacher's."""
    labels = teacher.labels
    if labels is None:
        if teacher.config.num_classes != len(classes):
            raise InputError(
                f"the teacher has {teacher.config.num_classes} classes without names, the data has "
                f"{len(classes)}: a teacher must know the classes of the data"
            )
        return torch.arange(len(classes))
    strange = [label for label in classes if label not in labels]
    if strange:
        raise InputError(f"the teacher does not know the class {strange[0]!r}: its labels are {labels[:10]}")
    return torch.tensor([labels.index(label) for label in classes])
