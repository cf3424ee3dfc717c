"""Methods that are fitted in seconds and without steps: a support vector machine on histograms of oriented
gradients and of color, ridge regression, nearest neighbors, and the most frequent answer. Every model is
compared with them, and where one of them is best, it answers.

What they see of an image are values of a descriptor, or of a network without its head; what is fitted is a
head of `vitreous.models.ensemble`. Which setting a method has is decided by cross-fitting: each image is
answered by a head that was fitted without it.
"""

from __future__ import annotations

import hashlib
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, ClassVar, Literal, NamedTuple
from zipfile import BadZipFile

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from vitreous.data.dataset import DataSummary, ImageDataset, Splits
from vitreous.data.held_out import Folds, folds_of, folds_without_classes
from vitreous.data.image_samples import Batch
from vitreous.data.workers import worker_count
from vitreous.errors import cache_folder
from vitreous.evaluation.features import image_bytes
from vitreous.evaluation.outputs import compute_outputs
from vitreous.evaluation.scores import CONSTANT_NAMES, MEASURES, Interval, Measures, Outputs, Truth
from vitreous.extensions import OutputKind, outputs_of_task
from vitreous.models.config_parts import Config, Positive
from vitreous.models.descriptors import DESCRIPTORS
from vitreous.models.ensemble import (
    KernelConfig,
    KernelMachine,
    KernelRidge,
    KernelRidgeConfig,
    LinearConfig,
    Neighbors,
    NeighborsConfig,
    as_bytes,
    gaussian_kernel,
    squared_distances,
    stored_values,
)
from vitreous.models.preprocessing import Preprocessing
from vitreous.whole_files import whole

SIDE = 64  # pixels at the side, at which images are described
SMALL = 32  # pixels of the shorter side, up to which the pixels themselves are compared, too
SMALLEST = 16  # pixels, below which there are no gradients to speak of
TOGETHER = 64  # images that are described at once: as many as stay in the cache of a processor

SVM = "SVM on HOG and color"
COSTS = (10.0, 1.0)
GAMMAS = (1.0, 2.0, 4.0)  # times scikit-learn's own, 1 / (features * variance): of pixels
NEIGHBORS = (1, 3, 5, 10)
PENALTIES = (1e-4, 1e-3, 1e-2, 1e-1)  # of logistic regression: of the mean loss, on standardized features
RIDGES = tuple(10.0**power for power in range(-7, 3))  # of ridge regression: of the mean square of a feature
KERNEL_RIDGES = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1)  # of ridge regression with a Gaussian kernel: of an image
WIDTH = 0.5  # the kernel's gamma, times the inverse of the mean squared distance of images from their mean
MOST_LOGISTIC = 400  # numbers of an image, up to which logistic regression is fitted
SLOPES = np.geomspace(1, 100, 17)  # of the answers of ridge regression as logits
LEAST_SPREAD = 0.1  # of the mean spread of all numbers, to which one that varies less is standardized
ITERATIONS = 200
SHARPNESS = np.geomspace(0.25, 16, 13)  # of a machine's scores as logits
MOST_FITTED = 6000  # images: a kernel matrix of 144 MB
MOST_MIRRORED = 2000  # images: with their mirror images twice as many
MOST_ASKED = 20_000  # held-out images
MOST_CLASSES = 200  # which an SVM asks about pair by pair
UNSEEN = -20.0  # the bias of a class without an image

RowNumbers = Int[np.ndarray, " n"]
FeatureMatrix = Float[Tensor, "N D"]
MirrorDirections = tuple[bool, bool]  # left and right, top and bottom
NOT_MIRRORED: MirrorDirections = (False, False)
ValueRange = tuple[tuple[float, float], ...] | None  # of stored values, as in a preprocessing


# ---- What is seen of images


class ImageFeatures(NamedTuple):
    """What a descriptor or a network gives of images, and of their mirror images where they are learned from,
    too."""

    values: FeatureMatrix
    mirrored: tuple[FeatureMatrix, ...] = ()

    def at(self, rows: RowNumbers) -> ImageFeatures:
        """Return what is seen of some of them."""
        return ImageFeatures(self.values[rows], tuple(each[rows] for each in self.mirrored))

    def and_mirrored(self, truth: Truth) -> tuple[FeatureMatrix, Truth]:
        """Return all values, with the truth of each."""
        views = (self.values, *self.mirrored)
        return torch.cat(views), torch.cat([truth] * len(views))


def mirrored_axes(flip: MirrorDirections) -> list[tuple[int, ...]]:
    """Return the axes along which images are mirrored, for each kind of mirror images."""
    sideways, upside_down = flip
    axes: list[tuple[int, ...]] = []
    if sideways:
        axes.append((-1,))
    if upside_down:
        axes.append((-2,))
    return [*axes, (-1, -2)] if all(flip) else axes


def squashed(channels: int, value_range: ValueRange = None) -> Preprocessing:
    """Return how images are prepared for classical methods alone: all of them, at 64 x 64 pixels."""
    return Preprocessing(
        size=(SIDE, SIDE),
        channels=channels,
        resize="squash",
        interpolation="bilinear",
        value_range=value_range,
    )


def classical_images(images: ImageDataset, prepared: Preprocessing) -> tuple[Tensor, RowNumbers]:
    """Return the images that can be read as classical methods see them, uint8 (N, C, 64, 64), and their
    numbers in the dataset: from images that are prepared for these methods, or for a model."""

    def pixels(batch: Batch) -> Tensor:
        return as_bytes(stored_values(batch.images, prepared), SIDE).to(torch.uint8)

    workers = worker_count(None)
    found = compute_outputs(nn.Identity(), images, pixels, preprocessing=prepared, workers=workers)
    return found.values, found.indices


@torch.inference_mode()
def seen_by_classical(pixels: Tensor, kind: str) -> FeatureMatrix:
    """Return uint8 images (N, C, 64, 64) as a descriptor has them."""
    return torch.cat([DESCRIPTORS[kind].describe(some.float()) for some in torch.split(pixels, TOGETHER)])


def described(pixels: Tensor, kind: str, flip: MirrorDirections = NOT_MIRRORED) -> ImageFeatures:
    """Return uint8 images (N, C, 64, 64), and their mirror images, as a descriptor has them."""
    return ImageFeatures(
        seen_by_classical(pixels, kind),
        tuple(seen_by_classical(pixels.flip(axes), kind) for axes in mirrored_axes(flip)),
    )


# ---- Methods


class Problem(NamedTuple):
    """What is asked of images.

    Attributes:
        outputs: of an answer.
        groups: of the images to learn from, which folds keep together (`ImageDataset.together`); None: each
            is alone.
    """

    task: str
    outputs: int
    groups: RowNumbers | None = None

    @property
    def meaning(self) -> OutputKind:
        """What an answer is: logits of one class or of several labels, or a number."""
        return outputs_of_task(self.task)

    @property
    def measures(self) -> Measures:
        """How answers are measured."""
        return MEASURES[self.meaning]

    def folds(self, truth: Truth) -> Folds:
        """Return folds of images: of every class about as many."""
        if self.meaning == "softmax":
            return folds_of(truth.numpy(), self.groups)
        return folds_without_classes(np.arange(len(truth)) if self.groups is None else self.groups)


class MachineSetting(Config):
    """A support vector machine with a Gaussian kernel.

    Attributes:
        mirrored: whether it learns from mirror images as well.
        flip: in which directions these are mirrored.
        too_many_to_mirror: whether it does not since there are too many images, and not by a comparison.
        sharpness: of its scores as logits.
    """

    kind: Literal["machine"] = "machine"
    cost: float
    gamma: float
    classes: Positive
    mirrored: bool = False
    flip: MirrorDirections = (True, False)
    too_many_to_mirror: bool = False
    sharpness: float = 1.0

    @property
    def words(self) -> str:
        """It in words."""
        more = ", with mirror images" if self.mirrored else ""
        if self.too_many_to_mirror:
            more = f", without mirror images, as there are more than {MOST_MIRRORED:,} images"
        return f"C {self.cost:g}, gamma {self.gamma:.3g}{more}"

    def fit(self, seen: ImageFeatures, truth: Truth) -> tuple[KernelConfig, KernelMachine]:
        """Fit a machine on images."""
        values, of = seen.and_mirrored(truth) if self.mirrored else (seen.values, truth)
        near = torch.exp(-self.gamma * squared_distances(values, values))
        machine, _ = self.machine(near, of.numpy(), values)
        return machine.config, machine

    def machine(
        self, near: Tensor, targets: RowNumbers, values: FeatureMatrix
    ) -> tuple[KernelMachine, RowNumbers]:
        """Fit a machine on how near images are to each other. Return it, and the rows of its vectors."""
        from sklearn.svm import SVC

        fitted = SVC(C=self.cost, kernel="precomputed").fit(near.numpy(), targets)
        support: RowNumbers = fitted.support_
        known: list[int] = fitted.classes_.tolist()
        counts = [0] * self.classes
        for number, count in zip(known, fitted.n_support_.tolist(), strict=True):
            counts[number] = count
        config = KernelConfig(gamma=self.gamma, vectors=tuple(counts))
        machine = KernelMachine(config, values.shape[1], self.classes)

        # scikit-learn has a row of coefficients for each *other* class, and turns the sign of two classes.
        sign = -1.0 if len(known) == 2 else 1.0
        own = np.repeat(np.arange(len(known)), fitted.n_support_)
        coefficients = np.zeros((len(support), self.classes), np.float32)
        for place, other in enumerate(known):
            row = np.where(place > own, place - 1, place).clip(max=len(known) - 2)
            column = sign * fitted.dual_coef_[row, np.arange(len(support))]
            coefficients[:, other] = np.where(own == place, 0.0, column)
        pairs = np.triu_indices(len(known), 1)
        bias = np.zeros((self.classes, self.classes), np.float32)
        bias[np.array(known)[pairs[0]], np.array(known)[pairs[1]]] = sign * fitted.intercept_
        with torch.no_grad():
            machine.vectors.copy_(values[support])
            machine.coefficients.copy_(torch.from_numpy(coefficients))
            machine.bias.copy_(torch.from_numpy(bias))
            machine.sharpness.fill_(self.sharpness)
        return machine, support


class NeighborsSetting(Config):
    """The mean of the labels of the nearest images, of so many."""

    kind: Literal["neighbors"] = "neighbors"
    neighbors: Positive
    task: str
    outputs: Positive

    @property
    def words(self) -> str:
        """It in words."""
        return f"neighbors {self.neighbors}"

    def fit(self, seen: ImageFeatures, truth: Truth) -> tuple[NeighborsConfig, Neighbors]:
        """Keep the images."""
        labels = truth.float().reshape(len(truth), -1)
        if outputs_of_task(self.task) == "softmax":
            labels = F.one_hot(truth, self.outputs).float()
        config = NeighborsConfig(neighbors=min(self.neighbors, len(truth)), examples=len(truth))
        head = Neighbors(config, seen.values.shape[1], self.outputs, self.task)
        with torch.no_grad():
            head.examples.copy_(seen.values)
            head.labels.copy_(labels)
        return config, head


class LogisticSetting(Config):
    """Logistic regression with an l2 penalty, on standardized numbers."""

    kind: Literal["logistic"] = "logistic"
    penalty: float
    classes: Positive

    @property
    def words(self) -> str:
        """It in words."""
        return f"penalty {self.penalty:g}"

    def fit(self, seen: ImageFeatures, truth: Truth) -> tuple[LinearConfig, nn.Module]:
        """Fit a linear map on images."""
        from sklearn.linear_model import LogisticRegression

        values = seen.values.numpy()
        mean, std = values.mean(axis=0), values.std(axis=0) + 1e-6
        weight = np.zeros((self.classes, values.shape[1]), values.dtype)
        bias = np.full(self.classes, UNSEEN, values.dtype)
        penalized = LogisticRegression(C=1 / (self.penalty * len(values)), max_iter=ITERATIONS)
        # scikit-learn warns where the last digits have not settled.
        with warnings.catch_warnings(action="ignore"):
            fitted = penalized.fit((values - mean) / std, truth.numpy())
        rows, shifts = fitted.coef_, fitted.intercept_
        # Of two classes each gets half of the difference.
        if len(fitted.classes_) == 2:
            rows, shifts = np.concatenate([-rows, rows]) / 2, np.concatenate([-shifts, shifts]) / 2
        weight[fitted.classes_], bias[fitted.classes_] = rows, shifts
        weight = weight / std
        return LinearConfig(), linear_head(torch.from_numpy(weight), torch.from_numpy(bias - weight @ mean))


class RidgeSetting(Config):
    """Ridge regression.

    Attributes:
        slope, shift: make its answers logits.
        gamma: of a Gaussian kernel; None: it is linear.
    """

    kind: Literal["ridge"] = "ridge"
    penalty: float
    task: str
    outputs: Positive
    slope: float = 1.0
    shift: float = 0.0
    gamma: float | None = None

    @property
    def words(self) -> str:
        """It in words."""
        return f"penalty {self.penalty:g}"

    def fit(self, seen: ImageFeatures, truth: Truth) -> tuple[LinearConfig | KernelRidgeConfig, nn.Module]:
        """Fit a linear map on images, or a sum of kernels."""
        meaning = outputs_of_task(self.task)
        wanted = wanted_of(truth, meaning, self.outputs)
        if self.gamma is None:
            std = spread_of(seen.values, meaning)
            [(weight, bias)] = ridges(seen.values.double() / std, wanted, (self.penalty,))
            return LinearConfig(), linear_head(self.slope * weight / std, self.slope * bias + self.shift)
        examples = seen.values
        # The images are evenly spread, since those of a class are often next to each other.
        if len(examples) > MOST_FITTED:
            some = torch.linspace(0, len(examples) - 1, MOST_FITTED).long()
            examples, wanted = examples[some], wanted[some]
        near = gaussian_kernel(examples, examples, self.gamma)
        [(coefficients, bias)] = kernel_ridges(near, wanted, (self.penalty,))
        config = KernelRidgeConfig(gamma=self.gamma, examples=len(examples))
        head = KernelRidge(config, examples.shape[1], self.outputs)
        with torch.no_grad():
            head.examples.copy_(examples)
            head.coefficients.copy_(self.slope * coefficients)
            head.bias.copy_(self.slope * bias + self.shift)
        return config, head


class ConstantSetting(Config):
    """The same answer for every image: the frequencies of the classes or of the labels, or the mean of the
    numbers."""

    kind: Literal["constant"] = "constant"
    task: str
    outputs: Positive
    words: ClassVar = ""

    def fit(self, seen: ImageFeatures, truth: Truth) -> tuple[LinearConfig, nn.Module]:
        """Return a linear map whose weights are zeros."""
        answer = without_images(truth, Problem(self.task, self.outputs))
        return LinearConfig(), linear_head(torch.zeros(len(answer), seen.values.shape[1]), answer)


Setting = MachineSetting | NeighborsSetting | LogisticSetting | RidgeSetting | ConstantSetting


class Method(Config):
    """A method with the setting that cross-fitting has chosen: all that is needed to fit it again.

    Attributes:
        name: in the catalog `methods` of the pages.
        sees: a descriptor, or the name of an encoder.
        seconds: that the choice took.
    """

    name: str
    sees: str
    setting: Annotated[Setting, Field(discriminator="kind")]
    seconds: float = 0.0

    @property
    def flip(self) -> MirrorDirections:
        """In which directions the mirror images are mirrored that it learns from, too."""
        setting = self.setting
        return setting.flip if isinstance(setting, MachineSetting) and setting.mirrored else NOT_MIRRORED

    @property
    def is_constant(self) -> bool:
        """Whether it gives every image the same answer."""
        return isinstance(self.setting, ConstantSetting)


@dataclass(frozen=True)
class Fitted:
    """A method that is fitted on images.

    Attributes:
        head: a part of `vitreous.models.ensemble`.
        answers: to these images, each by a head that was fitted without it.
    """

    method: Method
    head: nn.Module
    answers: Outputs

    @torch.inference_mode()
    def ask(self, values: FeatureMatrix) -> Outputs:
        """Return the answers to other images."""
        return torch.cat([self.head(some) for some in torch.split(values, 4 * TOGETHER)])


def best_setting(
    name: str, sees: str, settings: Sequence[Setting], seen: ImageFeatures, truth: Truth, problem: Problem
) -> Fitted:
    """Choose the setting of a method by what it answers to images that it was not fitted on: by the score,
    and by the loss where that is equal. Fit it on all of them."""
    began = time.perf_counter()
    measures, folds = problem.measures, problem.folds(truth)
    best: tuple[float, float] | None = None
    for setting in settings:
        answers = torch.zeros(len(truth), problem.outputs)
        for known, others in folds:
            _, head = setting.fit(seen.at(known), truth[known])
            with torch.inference_mode():
                answers[others] = head(seen.values[others])
        merit = measures.of(answers, truth), -measures.loss(answers, truth)
        if best is None or merit > best:
            best, chosen, best_answers = merit, setting, answers
    _, head = chosen.fit(seen, truth)
    method = Method(name=name, sees=sees, setting=chosen, seconds=time.perf_counter() - began)
    return Fitted(method, head, best_answers)


def support_vectors(
    name: str,
    sees: str,
    seen: ImageFeatures,
    truth: Truth,
    problem: Problem,
    gammas: Sequence[float] = GAMMAS[:1],
) -> Fitted:
    """Fit a support vector machine with a Gaussian kernel, on mirror images as well where that is better. All
    distances are computed once."""
    began = time.perf_counter()
    scale = 1 / (seen.values.shape[1] * max(float(seen.values.var(correction=0)), 1e-12))
    folds = problem.folds(truth)
    views = [ImageFeatures(seen.values), seen] if seen.mirrored else [ImageFeatures(seen.values)]
    best: tuple[float, float] | None = None
    for view in views:
        values, of = view.and_mirrored(truth)
        distance = squared_distances(values, values)
        for cost in COSTS:
            for gamma in gammas:
                how = MachineSetting(
                    cost=cost,
                    gamma=scale * gamma,
                    classes=problem.outputs,
                    mirrored=bool(view.mirrored),
                )
                scores = torch.zeros(len(truth), problem.outputs)
                for known, others in folds:
                    copies = range(1 + len(view.mirrored))
                    learned = np.concatenate([known + copy * len(truth) for copy in copies])
                    near = torch.exp(-how.gamma * distance[learned][:, learned])
                    machine, support = how.machine(near, of.numpy()[learned], values[learned])
                    asked = torch.exp(-how.gamma * distance[others][:, learned[support]])
                    with torch.inference_mode():
                        scores[others] = machine.scores(asked)
                sharpness = min(
                    SHARPNESS, key=lambda each: problem.measures.loss(float(each) * scores, truth)
                )
                answers = float(sharpness) * scores
                merit = problem.measures.of(answers, truth), -problem.measures.loss(answers, truth)
                if best is None or merit > best:
                    chosen = how.model_copy(update={"sharpness": float(sharpness)})
                    best, best_answers = merit, answers
    _, head = chosen.fit(seen, truth)
    method = Method(name=name, sees=sees, setting=chosen, seconds=time.perf_counter() - began)
    return Fitted(method, head, best_answers)


def nearest_neighbors(name: str, sees: str, seen: ImageFeatures, truth: Truth, problem: Problem) -> Fitted:
    """Choose how many of the nearest images answer."""
    task, outputs = problem.task, problem.outputs
    settings = [NeighborsSetting(neighbors=count, task=task, outputs=outputs) for count in NEIGHBORS]
    return best_setting(name, sees, settings, seen, truth, problem)


def linear(name: str, sees: str, seen: ImageFeatures, truth: Truth, problem: Problem) -> Fitted:
    """Fit a linear map: ridge regression for numbers and several labels; for classes logistic regression, or
    where an image has many numbers ridge regression, which is as accurate within a point at a hundredth of
    the time."""
    if problem.meaning != "softmax" or seen.values.shape[1] > MOST_LOGISTIC:
        return ridge_regression(name, sees, seen, truth, problem)
    settings = [LogisticSetting(penalty=each, classes=problem.outputs) for each in PENALTIES]
    return best_setting(name, sees, settings, seen, truth, problem)


def ridge_regression(name: str, sees: str, seen: ImageFeatures, truth: Truth, problem: Problem) -> Fitted:
    """Fit ridge regression, to numbers, to the shares of labels, or to 1 for the class of an image and 0 for
    the others: of every penalty in closed form."""
    began = time.perf_counter()
    values = seen.values.double() / spread_of(seen.values, problem.meaning)
    targets = wanted_of(truth, problem.meaning, problem.outputs)
    answers = torch.zeros(len(RIDGES), len(truth), problem.outputs, dtype=torch.float64)
    for known, others in problem.folds(truth):
        for place, (weight, bias) in enumerate(ridges(values[known], targets[known], RIDGES)):
            answers[place, others] = values[others] @ weight.T + bias
    setting, chosen = best_ridge(RIDGES, answers, truth, problem)
    _, head = setting.fit(seen, truth)
    method = Method(name=name, sees=sees, setting=setting, seconds=time.perf_counter() - began)
    return Fitted(method, head, chosen)


def kernel_ridge(name: str, sees: str, seen: ImageFeatures, truth: Truth, problem: Problem) -> Fitted:
    """Fit ridge regression with a Gaussian kernel (Saunders, Gammerman and Vovk, 1998), as `ridge_regression`
    fits the linear one."""
    began = time.perf_counter()
    spread = float(seen.values.var(dim=0, correction=0).sum())
    gamma = WIDTH / max(spread, 1e-12)
    near = gaussian_kernel(seen.values, seen.values, gamma)
    targets = wanted_of(truth, problem.meaning, problem.outputs)
    answers = torch.zeros(len(KERNEL_RIDGES), len(truth), problem.outputs, dtype=torch.float64)
    for known, others in problem.folds(truth):
        fitted = kernel_ridges(near[known][:, known], targets[known], KERNEL_RIDGES)
        for place, (coefficients, bias) in enumerate(fitted):
            answers[place, others] = (near[others][:, known] @ coefficients + bias).double()
    setting, chosen = best_ridge(KERNEL_RIDGES, answers, truth, problem)
    setting = setting.model_copy(update={"gamma": gamma})
    _, head = setting.fit(seen, truth)
    method = Method(name=name, sees=sees, setting=setting, seconds=time.perf_counter() - began)
    return Fitted(method, head, chosen)


def best_ridge(
    penalties: Sequence[float], answers: Float[Tensor, "P N K"], truth: Truth, problem: Problem
) -> tuple[RidgeSetting, Outputs]:
    """Choose a penalty of ridge regression, and what makes its answers logits, by the answers with each
    penalty to images that it was not fitted on. Return the setting, and the chosen answers."""
    targets = wanted_of(truth, problem.meaning, problem.outputs)
    classes = problem.meaning == "softmax"
    errors = [float((each - targets).square().mean()) for each in answers]
    best = int(np.argmin(errors))
    # Of equally many right answers, those that are nearer to the truth are better.
    if classes:
        scores = [problem.measures.of(each, truth) for each in answers]
        best = max(range(len(penalties)), key=lambda at: (scores[at], -errors[at]))
    chosen, slope, shift = answers[best], 1.0, 0.0
    if problem.meaning == "sigmoid":
        slope, shift = fit_platt(chosen, targets)
    if classes:
        slope = float(min(SLOPES, key=lambda each: problem.measures.loss(float(each) * chosen, truth)))
    setting = RidgeSetting(
        penalty=penalties[best], task=problem.task, outputs=problem.outputs, slope=slope, shift=shift
    )
    return setting, (slope * chosen + shift).float()


def constant(name: str, sees: str, seen: ImageFeatures, truth: Truth, problem: Problem) -> Fitted:
    """Fit the answer that is best without looking at an image.

    It is not cross-fitted, but the same for all images: without those that are asked about, a frequency is
    lower just for them, so that of two equally frequent classes the wrong one would be the answer.
    """
    began = time.perf_counter()
    setting = ConstantSetting(task=problem.task, outputs=problem.outputs)
    _, head = setting.fit(seen, truth)
    method = Method(name=name, sees=sees, setting=setting, seconds=time.perf_counter() - began)
    return Fitted(method, head, without_images(truth, problem).expand(len(truth), -1))


def without_images(truth: Truth, problem: Problem) -> Float[Tensor, " outputs"]:
    """Return the answer that is best without looking at an image: the frequency of each class or label, as
    logits, or the mean of the numbers."""
    if problem.meaning == "softmax":
        counts = torch.bincount(truth, minlength=problem.outputs).double()
        answer = ((counts + 1 / len(counts)) / (counts.sum() + 1)).log()
    elif problem.meaning == "sigmoid":
        answer = truth.double().mean(dim=0).clamp(1e-3, 1 - 1e-3).logit()
    else:
        answer = truth.double().mean()
    return answer.float().reshape(-1)


def spread_of(values: FeatureMatrix, meaning: OutputKind) -> Float[Tensor, " D"]:
    """Return what ridge regression divides numbers by: for classes the spread of each; one that hardly varies
    is not enlarged, as it may be any of other images."""
    if meaning != "softmax":
        return torch.ones(values.shape[1])
    spread = values.double().std(dim=0, correction=0)
    return spread.clamp_min(max(LEAST_SPREAD * float(spread.mean()), 1e-6))


def wanted_of(truth: Truth, meaning: OutputKind, outputs: int) -> Float[Tensor, "N outputs"]:
    """Return what ridge regression learns: numbers, shares of labels, or 1 for the class of an image."""
    if meaning == "softmax":
        return F.one_hot(truth, outputs).double()
    return truth.double().reshape(len(truth), -1)


def linear_head(weight: Tensor, bias: Tensor) -> nn.Linear:
    """Return a linear layer with these weights."""
    head = nn.Linear(weight.shape[1], weight.shape[0])
    with torch.no_grad():
        head.weight.copy_(weight)
        head.bias.copy_(bias)
    return head.requires_grad_(False)


def ridges(
    values: Float[Tensor, "N D"], targets: Float[Tensor, "N K"], penalties: Sequence[float]
) -> Iterator[tuple[Float[Tensor, "K D"], Float[Tensor, " K"]]]:
    """Yield the weight and the bias of ridge regression for each penalty, in float64. The smaller of the two
    Gram matrices is decomposed once."""
    mean, center = values.mean(dim=0), targets.mean(dim=0)
    x, y = values - mean, targets - center
    size = max(float(x.square().mean()), 1e-12) * len(x)  # what the penalties are a part of
    wide = x.shape[1] > x.shape[0]
    spectrum, basis = torch.linalg.eigh(x @ x.T if wide else x.T @ x)
    spectrum = spectrum.clamp_min(0)
    right = basis.T @ (y if wide else x.T @ y)
    for penalty in penalties:
        solved = basis @ (right / (spectrum + penalty * size)[:, None])
        weight = (x.T @ solved if wide else solved).T
        yield weight, center - weight @ mean


def kernel_ridges(
    near: Float[Tensor, "N N"], targets: Float[Tensor, "N K"], penalties: Sequence[float]
) -> Iterator[tuple[Float[Tensor, "N K"], Float[Tensor, " K"]]]:
    """Yield the coefficients of the kernels and the bias of ridge regression for each penalty, in float32:
    the matrix of many images is large."""
    bias = targets.mean(dim=0)
    y = (targets - bias).float()
    for penalty in penalties:
        penalized = near.clone()
        penalized.diagonal().add_(penalty * len(near))
        factor, failed = torch.linalg.cholesky_ex(penalized)
        # Where float32 has too few digits for so small a penalty, the answer is the mean.
        coefficients = torch.zeros_like(y) if failed else torch.cholesky_solve(y, factor)
        yield coefficients, bias.float()


def fit_platt(scores: Tensor, targets: Tensor) -> tuple[float, float]:
    """Return the slope and the shift that make scores of labels logits (Platt, 1999)."""
    from sklearn.linear_model import LogisticRegression

    known = targets.flatten().numpy() > 0.5
    if known.all() or not known.any():
        return 1.0, 0.0
    fitted = LogisticRegression(C=1e6).fit(scores.reshape(-1, 1).numpy(), known)
    return max(float(fitted.coef_[0, 0]), 1e-3), float(fitted.intercept_[0])


# ---- Which methods suit the images


Suited = tuple[str, str, Callable[..., Fitted]]  # its name, what it sees, and what fits it


def methods_for(data: DataSummary, problem: Problem, counts: RowNumbers) -> list[Suited]:
    """Return which methods suit images of such a size, and so many classes, the most promising ones first;
    the last one knows no image.

    Args:
        counts: images of each class.
    """
    shorter = min(data.height, data.width)
    unseeing = (CONSTANT_NAMES[problem.meaning], "thumbnail", constant)
    gradients = "gradients" if shorter >= SMALLEST else "pixels"
    nearest = ("k nearest neighbors", "pixels" if shorter <= SMALL else gradients, nearest_neighbors)
    if problem.meaning != "softmax":
        kind = "linear" if problem.meaning == "sigmoid" else "ridge"
        found = [(f"{kind} on pixels", "thumbnail", ridge_regression), nearest]
        if shorter >= SMALLEST:
            found.insert(0, (f"{kind} on HOG and color", "gradients", ridge_regression))
        return [*found, unseeing]
    # There is nothing to choose between, or no image to leave out.
    if (counts > 0).sum() < 2 or counts.max() < 2:
        return [unseeing]
    few = (counts > 0).sum() <= MOST_CLASSES
    methods: list[Suited] = []
    if few and shorter >= SMALLEST:
        methods.append((SVM, "gradients", support_vectors))
    methods.append(nearest)
    if few and shorter <= SMALL:
        methods.append(("SVM on pixels", "pixels", partial(support_vectors, gammas=GAMMAS)))
        methods.append(("ridge on pixels", "thumbnail", ridge_regression))
    return [*methods, unseeing]


# ---- Baselines


class Baseline(NamedTuple):
    """What a method without a network gets on the held-out part.

    Attributes:
        accuracy: or R2, or the mean average precision.
    """

    name: str
    accuracy: float
    interval: Interval
    settings: str
    seconds: float


class Learned(NamedTuple):
    """Images to learn from as classical methods see them (of many, some), with what is known of each.

    Attributes:
        groups: which of them are equal or look alike.
        of: so many images.
    """

    pixels: Tensor  # uint8 (N, C, 64, 64)
    rows: RowNumbers
    truth: Truth
    groups: RowNumbers
    prepared: Preprocessing
    of: int

    def and_others(self, others: Learned) -> Learned:
        """Return these images and others."""
        return self._replace(
            pixels=torch.cat([self.pixels, others.pixels]),
            rows=np.concatenate([self.rows, others.rows]),
            truth=torch.cat([self.truth, others.truth]),
            groups=np.concatenate([self.groups, others.groups]),
            of=self.of + others.of,
        )


class Classical(NamedTuple):
    """The methods that suit some images, fitted on all images to learn from (of many, on some)."""

    methods: tuple[Fitted, ...]
    learned: Learned
    problem: Problem

    def baselines(self, held_out: ImageDataset) -> tuple[Baseline, ...]:
        """Evaluate the methods on images that none of them was fitted on."""
        fitted = [(each.method, each.head) for each in self.methods]
        return baselines_on(held_out, fitted, self.learned, self.problem)


def baselines_on(
    held_out: ImageDataset, fitted: Sequence[tuple[Method, nn.Module]], learned: Learned, problem: Problem
) -> tuple[Baseline, ...]:
    """Evaluate methods with their heads on images that none of them was fitted on."""
    began = time.perf_counter()
    if len(held_out) > MOST_ASKED:
        held_out = held_out.subset(np.array(held_out.sample(MOST_ASKED)))
    pixels, rows = classical_images(held_out, learned.prepared)
    truth = held_out.targets.tensor(rows)
    reading = time.perf_counter() - began
    of = f", on {len(learned.truth):,} of {learned.of:,} images" if len(learned.truth) < learned.of else ""
    values: dict[str, FeatureMatrix] = {}
    results: list[Baseline] = []
    for method, head in fitted:
        began = time.perf_counter()
        if method.sees not in values:
            values[method.sees] = seen_by_classical(pixels, method.sees)
        answers = Fitted(method, head, values[method.sees]).ask(values[method.sees])
        spent = method.seconds + reading + time.perf_counter() - began
        words = "" if method.is_constant else method.setting.words + of
        score, interval = problem.measures.of(answers, truth), problem.measures.interval(answers, truth)
        results.append(Baseline(method.name, score, interval, words, spent))
    return tuple(results)


def images_to_learn(parts: Sequence[ImageDataset], prepared: Preprocessing, most: int) -> Learned:
    """Read images to learn from; of more than `most` some of each part. Raises InputError: none can be
    read."""
    count = sum(map(len, parts))
    found: Learned | None = None
    for part in parts:
        chosen = np.arange(len(part))
        if count > most:
            chosen = np.array(part.sample(max(most * len(part) // count, 1)))
        pixels, read = classical_images(part.subset(chosen) if count > most else part, prepared)
        rows = chosen[read]
        one = Learned(pixels, rows, part.targets.tensor(rows), part.together(rows), prepared, len(part))
        found = one if found is None else found.and_others(one)
    assert found is not None
    return found


def most_mirrored(flip: MirrorDirections, images: int) -> MirrorDirections:
    """Return in which directions so many images are mirrored for a machine, which learns from twice as many
    with each of two directions."""
    if all(flip) and 2 * images > MOST_MIRRORED:
        flip = (True, False)
    return flip if images <= MOST_MIRRORED else NOT_MIRRORED


def fit_classical(
    splits: Splits,
    problem: Problem | None = None,
    *,
    flip: tuple[float, float] = (0.0, 0.0),
    everything: bool = True,
    most: int = MOST_FITTED,
) -> Classical:
    """Fit the methods that suit the images of the training set, and of the validation set where there is
    one: they need none, as cross-fitting chooses their settings. Raises InputError: no image can be read.

    Args:
        flip: how often the network's images are mirrored left and right, and top and bottom: where they are,
            mirror images may be learned from, too.
        everything: whether the validation set is learned from.
        most: images that are learned from.
    """
    problem = problem or Problem("classification", len(splits.train.classes))
    parts = [splits.train]
    if everything and splits.validation is not None and len(splits.validation):
        parts.append(splits.validation)
    prepared = squashed(splits.summary.channels, splits.summary.value_range)
    learned = images_to_learn(parts, prepared, most)
    problem = problem._replace(groups=learned.groups)
    counts = np.zeros(1, int)
    if problem.meaning == "softmax":
        counts = np.bincount(learned.truth.numpy(), minlength=1)
    mirrored, too_many = NOT_MIRRORED, False
    if problem.meaning == "softmax":
        mirrored = most_mirrored((flip[0] > 0, flip[1] > 0), len(learned.truth))
        too_many = any(flip) and not any(mirrored)
    values: dict[str, ImageFeatures] = {}
    methods: list[Fitted] = []
    for name, sees, fit in methods_for(splits.summary, problem, counts):
        if sees not in values:
            values[sees] = described(learned.pixels, sees, mirrored if sees == "gradients" else NOT_MIRRORED)
        fitted = fit(name, sees, values[sees], learned.truth, problem)
        setting = fitted.method.setting
        if sees == "gradients" and isinstance(setting, MachineSetting):
            more = {"too_many_to_mirror": too_many} | ({"flip": mirrored} if setting.mirrored else {})
            setting = setting.model_copy(update=more)
            fitted = replace(fitted, method=fitted.method.model_copy(update={"setting": setting}))
        methods.append(fitted)
    return Classical(tuple(methods), learned, problem)


# ---- Whether mirror images help


class Mirroring(NamedTuple):
    """How often images are classified correctly by an SVM that was fitted on other images: as they are, and
    with their mirror images, too.

    Attributes:
        plain: of each image, whether the answer was right.
        sideways: where images mirrored left and right were learned from as well.
        upside_down: where, besides those, images mirrored top and bottom were; of images in color they are
            not.
    """

    plain: NDArray[np.bool_]
    sideways: NDArray[np.bool_]
    upside_down: NDArray[np.bool_]


def mirroring_of(splits: Splits) -> Mirroring | None:
    """Return what `try_mirroring` finds, which is cached by the content of the images."""
    images = splits.train.subset(np.array(splits.train.sample(MOST_TRIED)))
    digest = hashlib.blake2b(images.targets.strata().tobytes(), digest_size=20)
    for index in range(len(images)):
        digest.update(image_bytes(images, index))
    path = cache_folder() / "mirrored" / f"{digest.hexdigest()}.npz"
    # Suppressed: nothing is there, or it is damaged.
    with suppress(OSError, ValueError, KeyError, EOFError, BadZipFile), np.load(path) as cached:
        return Mirroring(*(cached[name] for name in Mirroring._fields)) if cached.files else None
    found = try_mirroring(splits)
    # A cache that cannot be written stops nothing.
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole(path, ".npz") as partial:
            np.savez(partial, **(found._asdict() if found else {}))
    return found


MOST_TRIED = 1000  # images, of which mirror images are tried: with them four times as many


def try_mirroring(splits: Splits) -> Mirroring | None:
    """Learn from the training images, from them and their mirror images, and from those in both directions.
    None where no class has two images. Raises InputError: no image can be read."""
    some = splits.train.subset(np.array(splits.train.sample(MOST_TRIED)))
    pixels, rows = classical_images(some, squashed(splits.summary.channels, splits.summary.value_range))
    targets = some.targets.strata(rows)
    counts = np.bincount(targets)
    if (counts > 0).sum() < 2 or counts.max() < 2:
        return None
    views = [pixels, pixels.flip(-1)]
    # In color images, top and bottom are seldom alike.
    if splits.summary.channels != 3:
        views += [pixels.flip(-2), pixels.flip(-1, -2)]
    values = [seen_by_classical(each, "gradients") for each in views]
    scale = 1 / (values[0].shape[1] * max(float(values[0].var(correction=0)), 1e-12))
    folds, classes = folds_of(targets, some.together(rows)), len(some.classes)
    found = []
    for count in (1, 2, 4)[: len(views) // 2 + 1]:
        how = MachineSetting(cost=COSTS[0], gamma=scale, classes=classes)
        right = np.zeros(len(targets), dtype=bool)
        for known, others in folds:
            learned = ImageFeatures(torch.cat([each[known] for each in values[:count]]))
            _, machine = how.fit(learned, torch.from_numpy(np.tile(targets[known], count)))
            with torch.inference_mode():
                answers = machine(values[0][others]).argmax(dim=1).numpy()
            right[others] = answers == targets[others]
        found.append(right)
    return Mirroring(found[0], found[1], found[-1])
