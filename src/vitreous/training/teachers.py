"""A classifier that teaches another (DeiT, 2012.12877): its outputs for what the student sees."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from vitreous.errors import InputError
from vitreous.models.model import Model
from vitreous.models.preprocessing import Preprocessing
from vitreous.outside import same_name
from vitreous.training.objectives import BatchLogits


class Teacher(nn.Module):
    """Any classifier, with outputs for the student's classes and images (section 4). Raises InputError: the
    teacher does not know a class."""

    columns: Tensor

    def __init__(self, model: Model, student: Preprocessing, classes: Sequence[str]) -> None:
        super().__init__()
        self.model = model.eval().requires_grad_(False)
        self.images = TeachersImages(model, student)
        self.register_buffer("columns", matching_columns(model, classes))

    @torch.no_grad()
    def forward(self, images: Float[Tensor, "B C H W"]) -> BatchLogits:
        self.to(images.device)
        logits: Tensor = self.model(self.images(images)).float()
        return logits[:, self.columns]


class TeachersImages(nn.Module):
    """The student's images in a teacher's colors, normalization and size."""

    mean: Tensor
    std: Tensor
    teacher_mean: Tensor
    teacher_std: Tensor

    def __init__(self, teacher: Model, student: Preprocessing) -> None:
        super().__init__()
        self.student, self.theirs = student, teacher.preprocessing
        for name, values in (
            ("mean", student.mean),
            ("std", student.std),
            ("teacher_mean", self.theirs.mean),
            ("teacher_std", self.theirs.std),
        ):
            self.register_buffer(name, torch.tensor(values).view(-1, 1, 1))

    def forward(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B C2 H2 W2"]:
        values = images * self.std + self.mean
        if self.theirs.channels != self.student.channels:
            values = values.mean(dim=1, keepdim=True).expand(-1, self.theirs.channels, -1, -1)
        if self.theirs.size != self.student.size:
            values = F.interpolate(values, self.theirs.size, mode="bicubic", antialias=True)
        return (values - self.teacher_mean) / self.teacher_std


def matching_columns(teacher: Model, classes: Sequence[str]) -> Int[Tensor, " classes"]:
    """Return the index of each of the student's classes among the teacher's."""
    labels = teacher.labels
    if labels is None:
        if teacher.config.num_classes != len(classes):
            raise InputError(
                f"the teacher has {teacher.config.num_classes} unnamed classes, but the data has "
                f"{len(classes)}: a teacher must know the classes of the data"
            )
        return torch.arange(len(classes))
    known = [same_name(label) for label in labels]
    if unknown := [label for label in classes if same_name(label) not in known]:
        raise InputError(f"the teacher does not know the class {unknown[0]!r}: its labels are {labels[:10]}")
    return torch.tensor([known.index(same_name(label)) for label in classes])
