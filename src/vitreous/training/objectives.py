"""What a classifier is trained to do: a loss on labels, or also on the outputs of a classifier that teaches
it, for what the student sees (DeiT, 2012.12877)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from vitreous.data.image_samples import Batch
from vitreous.errors import InputError
from vitreous.layers.pooling import DistilledHead
from vitreous.models.model import Model
from vitreous.models.preprocessing import Preprocessing
from vitreous.outside import same_name
from vitreous.training.config import AnyDistillation, TrainingConfig
from vitreous.training.step import Measured as Measured
from vitreous.training.step import Objective as Objective

BatchLogits = Float[Tensor, "B classes"]
BatchTargets = Float[Tensor, "B classes"] | Int[Tensor, " B"]


class Illustration(NamedTuple):
    """What a report shows of a self-supervised objective."""

    exhibit: str  # "views", "view-pairs" or "reconstruction", whose caption it has
    # batches of normalized images (B, C, H, W) by their kind, to be shown side by side
    columns: Mapping[str, Tensor]
    target: str | None = None  # what is predicted, if the caption says it


def classification(
    config: TrainingConfig,
    teacher: Callable[[Tensor], BatchLogits] | None = None,
    measure: Callable[[Tensor, Tensor], Tensor] | None = None,
    *,
    several_labels: bool = False,
    counts: Sequence[int] = (),
) -> Objective:
    """Return the loss on hard or soft targets: cross-entropy, or one binary cross-entropy for each class; and
    `accuracy`, or another measure.

    With a teacher it is (1 - weight) * that loss + weight * the loss on the teacher's outputs, for which a
    model with a distillation token has a second head.

    Args:
        teacher: returns its outputs for images.
        several_labels: each class is a question of its own, whose yes or no is smoothed towards 1/2 (as timm
            does it); otherwise one label is smoothed towards all classes.
        counts: training images of each class, for the losses of rare classes.
    """
    if config.loss in RareClassLoss.NAMES:
        loss_of: Callable[..., Tensor] = RareClassLoss(config, counts)
    else:
        loss_of = LOSSES["several-labels" if several_labels else config.loss]

    def objective(model: nn.Module, batch: Batch, generator: torch.Generator) -> Measured:
        if teacher and isinstance(model.head, DistilledHead):
            tokens = model.features(batch.images)  # type: ignore[operator]
            logits, distilled = (each.float() for each in model.head.both(tokens))
        else:
            logits = distilled = model(batch.images).float()
        loss = loss_of(logits, batch.targets, config.label_smoothing)
        measured = {"accuracy": (measure or batch_accuracy)(logits, batch.targets)}
        if teacher and config.distillation:
            weight = config.distillation.weight
            learned = teacher_loss(distilled, teacher(batch.images), config.distillation)
            loss = (1 - weight) * loss + weight * learned
            measured["distillation_loss"] = learned.detach()
        return loss, measured

    return objective


def softmax_loss(
    logits: Float[Tensor, "B classes"], targets: BatchTargets, smoothing: float
) -> Float[Tensor, ""]:
    """Return -sum_c t_c log softmax(y)_c, mean over the batch; t is smoothed to (1 - s) t + s / classes."""
    return F.cross_entropy(logits, targets, label_smoothing=smoothing)


def sigmoid_loss(
    logits: Float[Tensor, "B classes"], targets: BatchTargets, smoothing: float
) -> Float[Tensor, ""]:
    """Return one binary cross-entropy for each class, summed over the classes as in big_vision, mean over the
    batch. timm and DeiT-III take the mean over the classes: the learning rate of an Adam is blind to the
    difference."""
    if targets.ndim == 1:
        targets = F.one_hot(targets, logits.shape[1]).to(logits.dtype)
    targets = targets * (1 - smoothing) + smoothing / logits.shape[1]
    return F.binary_cross_entropy_with_logits(logits, targets, reduction="none").sum(dim=1).mean()


def several_labels_loss(
    logits: Float[Tensor, "B classes"], targets: Float[Tensor, "B classes"], smoothing: float
) -> Float[Tensor, ""]:
    """Return the sigmoid loss of images with any number of labels: each yes or no t is smoothed to (1 - s) t
    + s / 2, since the answers of different classes do not share a sum."""
    return sigmoid_loss(logits, targets * (1 - smoothing) + smoothing / 2, 0.0)


class RareClassLoss:
    """Cross-entropy that heeds how many images a class has.

    focal: times (1 - p)^2, p the probability of the target (Lin et al., 1708.02002, Eq. 4 without alpha).
    logit-adjusted: of the logits plus the log of the frequencies (Menon et al., 2007.07314, Eq. 10): the
    trained model, which leaves them out, then answers as if all classes were as frequent. balanced: times
    N / (K n_c), as in scikit-learn.

    Args:
        counts: training images of each class; one of none counts as one.
    """

    NAMES = ("balanced", "focal", "logit-adjusted")

    def __init__(self, config: TrainingConfig, counts: Sequence[int]) -> None:
        known = torch.tensor(counts, dtype=torch.float32).clamp(min=1)
        self.focal = config.loss == "focal"
        self.shift = (known / known.sum()).log() if config.loss == "logit-adjusted" else None
        self.weights = known.sum() / (len(known) * known) if config.loss == "balanced" else None

    def __call__(self, logits: BatchLogits, targets: BatchTargets, smoothing: float) -> Float[Tensor, ""]:
        classes = logits.shape[1]
        if targets.ndim == 1:
            targets = F.one_hot(targets, classes).to(logits.dtype)
        weights = None if self.weights is None else targets @ self.weights.to(logits)
        targets = targets * (1 - smoothing) + smoothing / classes
        if self.shift is not None:
            logits = logits + self.shift.to(logits)
        logs = logits.log_softmax(dim=1)
        loss = -targets * logs
        if self.focal:
            loss = loss * (1 - logs.exp()) ** FOCUS
        each = loss.sum(dim=1)
        return each.mean() if weights is None else (each * weights).sum() / weights.sum()


FOCUS = 2.0  # gamma of the focal loss


LOSSES = {"softmax": softmax_loss, "sigmoid": sigmoid_loss, "several-labels": several_labels_loss}


@torch.no_grad()
def batch_accuracy(logits: Float[Tensor, "B classes"], targets: BatchTargets) -> Float[Tensor, ""]:
    """Return the share of images whose argmax is that of the target."""
    hard = targets if targets.ndim == 1 else targets.argmax(dim=1)
    return (logits.argmax(dim=1) == hard).float().mean()


@torch.no_grad()
def label_accuracy(
    logits: Float[Tensor, "B classes"], targets: Float[Tensor, "B classes"]
) -> Float[Tensor, ""]:
    """Return the R-precision, mean over images with any number of labels: of one with k labels, the share of
    its k highest outputs that are among them. One without labels counts where no output is positive."""
    # Mixed images have the labels of the one of which more is seen.
    wanted = targets >= 0.5
    ranks = logits.argsort(dim=1, descending=True).argsort(dim=1)
    count = wanted.sum(dim=1, keepdim=True)
    hits = (wanted & (ranks < count)).sum(dim=1) / count.squeeze(1).clamp(min=1)
    return torch.where(count.squeeze(1) > 0, hits, (logits <= 0).all(dim=1).float()).mean()


ACCURACY = {"classification": batch_accuracy, "multilabel": label_accuracy}  # by task


def teacher_loss(logits: BatchLogits, teacher: BatchLogits, config: AnyDistillation) -> Float[Tensor, ""]:
    """Return the loss of a teacher's answers. Hard: cross-entropy with the teacher's argmax (Eq. 3). Soft:
    the Kullback-Leibler divergence from its softened outputs, times temperature squared (Eq. 2; 1503.02531).
    """
    if config.kind == "hard":
        return F.cross_entropy(logits, teacher.argmax(dim=1))
    t = config.temperature
    return F.kl_div(
        F.log_softmax(logits / t, dim=1),
        F.log_softmax(teacher / t, dim=1),
        reduction="batchmean",
        log_target=True,
    ) * (t * t)


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
