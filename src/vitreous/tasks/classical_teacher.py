"""A classical method as a teacher: on a few hundred images it is often ahead of every network, and a network
that learns its answers besides the labels passes it sooner (soft distillation, 1503.02531)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from vitreous.data.dataset import ImageDataset
from vitreous.data.image_samples import Batch
from vitreous.errors import InputError
from vitreous.evaluation.classical import COSTS, SIDE, distances, folds_of, shape_and_color, shown
from vitreous.models.preprocessing import Preprocessing
from vitreous.training.config import CLASSICAL

FOLDS = 5
MOST_TAUGHT = 3000  # images: of more, the machines would take longer than what they are for
SHARPNESS = np.geomspace(0.5, 16, 11)  # of probabilities, from which the held-out images choose
NEVER = -20.0  # the logit of a class that a machine has not seen


class Machine(NamedTuple):
    """An SVM, and what it was fitted on: numbers of images, and of mirror images after them."""

    fitted: Any
    learned: Int[np.ndarray, " n"]


class ClassicalTeacher:
    """SVMs on histograms of gradients and of color. Each image is answered by one that was fitted without it,
    so that what they say of training images is as reliable as what they would say of new ones.

    Args:
        images: that are learned from.
        student: how the images of a batch were prepared.
        mirrored: whether mirror images are fitted, too.

    Raises:
        InputError: there are too many images, or no class has two of them.
    """

    def __init__(self, images: ImageDataset, student: Preprocessing, *, classes: int, mirrored: bool) -> None:
        from sklearn.svm import SVC

        if len(images) > MOST_TAUGHT:
            raise InputError(
                f"training.distillation.teacher={CLASSICAL} is for {MOST_TAUGHT:,} images at most, and there "
                f"are {len(images):,}: leave it out"
            )
        self.student, self.classes = student, classes
        pixels, rows = shown(images, student.channels)
        targets = images.targets.strata(rows)
        values = shape_and_color(pixels)
        mirror_images = shape_and_color(pixels[:, :, ::-1]) if mirrored else values[:0]
        self.gamma = 1 / (values.shape[1] * max(float(values.var()), 1e-12))
        self.values = np.concatenate([values, mirror_images])
        answers = np.concatenate([targets, targets[: len(mirror_images)]])
        kernel = self.kernel(self.values)
        self.machine_of = np.zeros(len(images), dtype=np.int64)  # by the number of an image
        self.machines: list[Machine] = []
        scores = np.full((len(targets), classes), NEVER)
        for known, others in folds_of(targets, FOLDS):
            learned = np.concatenate([known, known + len(values)]) if mirrored else known
            near = kernel[np.ix_(learned, learned)]
            fitted = SVC(C=COSTS[-1], kernel="precomputed").fit(near, answers[learned])
            machine = Machine(fitted, learned)
            self.machine_of[rows[others]] = len(self.machines)
            self.machines.append(machine)
            scores[others] = self.scores(machine, kernel[others])
        truth = torch.from_numpy(targets)
        self.sharpness = min(
            SHARPNESS,
            key=lambda each: float(F.cross_entropy(torch.from_numpy(each * scores), truth)),
        )

    def kernel(self, values: Float[np.ndarray, "n D"]) -> Float[np.ndarray, "n N"]:
        """Return how near each is to all images that are learned from, and to their mirror images."""
        near: Float[np.ndarray, "n N"] = np.exp(-self.gamma * distances(values, self.values))
        return near

    def scores(self, machine: Machine, kernel: Float[np.ndarray, "n N"]) -> Float[np.ndarray, "n classes"]:
        """Return what a machine says of each class, the more the more probable; of two it says one number."""
        said = machine.fitted.decision_function(kernel[:, machine.learned])
        found = np.full((len(kernel), self.classes), NEVER)
        found[:, machine.fitted.classes_] = np.stack([-said, said], axis=1) if said.ndim == 1 else said
        return found

    def of(self, batch: Batch) -> Float[Tensor, "B classes"]:
        """Return the logits for the images of a batch as they were changed."""
        shown_as = F.interpolate(
            self.student.denormalize(batch.images).float(), (SIDE, SIDE), mode="bilinear", antialias=True
        )
        pixels = shown_as.round().clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1).cpu().numpy()
        kernel = self.kernel(shape_and_color(pixels))
        asked: Int[np.ndarray, " B"] = self.machine_of[batch.indices.cpu().numpy()]
        found = np.zeros((len(kernel), self.classes))
        for number in np.unique(asked):
            mine = asked == number
            found[mine] = self.scores(self.machines[number], kernel[mine])
        return torch.from_numpy(self.sharpness * found).to(batch.images)
