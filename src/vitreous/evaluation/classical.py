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
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn

from vitreous.data.dataset import DataSummary, ImageDataset, Splits
from vitreous.data.held_out import Folds, folds_of, folds_without_classes
from vitreous.data.image_samples import Batch
from vitreous.data.workers import worker_count
from vitreous.evaluation.features import image_bytes
from vitreous.evaluation.measures import MEASURES, Measures, Outputs, Truth
from vitreous.evaluation.outputs import compute_outputs
from vitreous.evaluation.scores import Interval
from vitreous.models.descriptors import DESCRIPTORS
from vitreous.models.ensemble import (
    KernelConfig,
    KernelMachine,
    LinearConfig,
    Neighbors,
    NeighborsConfig,
    as_bytes,
    squared_distances,
    stored_values,
)
from vitreous.models.preprocessing import Preprocessing

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

Rows = Int[np.ndarray, " n"]
Values = Float[Tensor, "N D"]
ValueRange = tuple[tuple[float, float], ...] | None  # of stored values, as in a preprocessing
HeadConfig = LinearConfig | KernelConfig | NeighborsConfig


# ---- What is seen of images


class Seen(NamedTuple):
    """What a descriptor or a network gives of images, and of their mirror images where they are learned from,
    too."""

    values: Values
    mirrored: Values | None = None

    def columns(self, some: tuple[int, int] | None) -> Seen:
        """Return some of the numbers of each image; None: all of them."""
        if some is None:
            return self
        first, end = some
        mirrored = None if self.mirrored is None else self.mirrored[:, first:end]
        return Seen(self.values[:, first:end].contiguous(), mirrored)

    def at(self, rows: Rows) -> Seen:
        """Return what is seen of some of them."""
        return Seen(self.values[rows], None if self.mirrored is None else self.mirrored[rows])

    def and_mirrored(self, truth: Truth) -> tuple[Values, Truth]:
        """Return all values, with the truth of each."""
        if self.mirrored is None:
            return self.values, truth
        return torch.cat([self.values, self.mirrored]), torch.cat([truth, truth])


class Shown(NamedTuple):
    """Images at 64 x 64 pixels, whatever their shape, of those that can be read."""

    pixels: Tensor  # uint8 (N, C, 64, 64)
    rows: Rows  # their numbers in the dataset

    def described(self, kind: str, *, mirrored: bool = False) -> Seen:
        """Return them as a descriptor has them."""
        values = seen_by_classical(self.pixels, kind)
        return Seen(values, seen_by_classical(self.pixels.flip(-1), kind) if mirrored else None)


def squashed(channels: int, value_range: ValueRange = None) -> Preprocessing:
    """Return how images are prepared for classical methods alone: all of them, at 64 x 64 pixels."""
    return Preprocessing(
        size=(SIDE, SIDE),
        channels=channels,
        resize="squash",
        interpolation="bilinear",
        value_range=value_range,
    )


def shown(images: ImageDataset, prepared: Preprocessing) -> Shown:
    """Return the images that can be read as classical methods see them, from images that are prepared: for
    these methods, or for a model."""

    def pixels(batch: Batch) -> Tensor:
        return as_bytes(stored_values(batch.images, prepared), SIDE).to(torch.uint8)

    workers = worker_count(None)
    found = compute_outputs(nn.Identity(), images, pixels, preprocessing=prepared, workers=workers)
    return Shown(found.values, found.indices)


@torch.inference_mode()
def seen_by_classical(pixels: Tensor, kind: str) -> Values:
    """Return uint8 images (N, C, 64, 64) as a descriptor has them."""
    return torch.cat([DESCRIPTORS[kind].describe(some.float()) for some in torch.split(pixels, TOGETHER)])


# ---- Methods


@dataclass(frozen=True)
class Fitted:
    """A method with the setting that cross-fitting has chosen.

    Attributes:
        name: in the catalog `methods` of the pages.
        sees: a descriptor, or the name of an encoder.
        config, head: a part of `vitreous.models.ensemble`.
        answers: to the images that it was fitted on, each by a head that was fitted without it.
        again: fits a head of this setting on other images.
        settings: in words.
        mirrored: whether it learns from mirror images, too.
    """

    name: str
    sees: str
    config: HeadConfig
    head: nn.Module
    answers: Outputs
    again: Callable[[Seen, Truth], tuple[HeadConfig, nn.Module]]
    settings: str
    seconds: float
    mirrored: bool = False

    @torch.inference_mode()
    def ask(self, values: Values) -> Outputs:
        """Return the answers to other images."""
        return torch.cat([self.head(some) for some in torch.split(values, 4 * TOGETHER)])

    def refitted(self, seen: Seen, truth: Truth) -> Fitted:
        """Return the method with the same setting, fitted on other images."""
        config, head = self.again(seen, truth)
        return replace(self, config=config, head=head)


class Problem(NamedTuple):
    """What is asked of images.

    Attributes:
        outputs: of an answer.
        groups: of the images to learn from, which folds keep together (`ImageDataset.together`); None: each
            is alone.
    """

    task: str
    outputs: int
    groups: Rows | None = None

    @property
    def measures(self) -> Measures:
        """How answers are measured."""
        return MEASURES[self.task]

    def folds(self, truth: Truth) -> Folds:
        """Return folds of images: of every class about as many."""
        if self.task == "classification":
            return folds_of(truth.numpy(), self.groups)
        return folds_without_classes(np.arange(len(truth)) if self.groups is None else self.groups)


class Setting(NamedTuple):
    """One setting of a method, in words; and how a head is fitted with it."""

    words: str
    fit: Callable[[Seen, Truth], tuple[HeadConfig, nn.Module]]


def best_setting(
    name: str, sees: str, settings: Sequence[Setting], seen: Seen, truth: Truth, problem: Problem
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
    config, head = chosen.fit(seen, truth)
    spent = time.perf_counter() - began
    return Fitted(name, sees, config, head, best_answers, chosen.fit, chosen.words, spent)


def support_vectors(
    name: str,
    sees: str,
    seen: Seen,
    truth: Truth,
    problem: Problem,
    gammas: Sequence[float] = GAMMAS[:1],
) -> Fitted:
    """Fit a support vector machine with a Gaussian kernel, on mirror images as well where that is better. All
    distances are computed once."""
    began = time.perf_counter()
    scale = 1 / (seen.values.shape[1] * max(float(seen.values.var(correction=0)), 1e-12))
    folds = problem.folds(truth)
    views = [Seen(seen.values)] if seen.mirrored is None else [Seen(seen.values), seen]
    best: tuple[float, float] | None = None
    for view in views:
        values, of = view.and_mirrored(truth)
        distance = squared_distances(values, values)
        for cost in COSTS:
            for gamma in gammas:
                how = MachineSetting(cost, scale * gamma, problem.outputs, mirrored=view.mirrored is not None)
                scores = torch.zeros(len(truth), problem.outputs)
                for known, others in folds:
                    learned = known if view.mirrored is None else np.concatenate([known, known + len(truth)])
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
                    best, chosen, best_answers = merit, how._replace(sharpness=float(sharpness)), answers
    config, head = chosen.fit(seen, truth)
    spent = time.perf_counter() - began
    return Fitted(
        name, sees, config, head, best_answers, chosen.fit, chosen.words, spent, mirrored=chosen.mirrored
    )


class MachineSetting(NamedTuple):
    """A setting of a support vector machine.

    Attributes:
        mirrored: whether it learns from mirror images as well.
        sharpness: of its scores as logits.
    """

    cost: float
    gamma: float
    classes: int
    mirrored: bool
    sharpness: float = 1.0

    @property
    def words(self) -> str:
        """It in words."""
        more = ", with mirror images" if self.mirrored else ""
        return f"C {self.cost:g}, gamma {self.gamma:.3g}{more}"

    def fit(self, seen: Seen, truth: Truth) -> tuple[KernelConfig, KernelMachine]:
        """Fit a machine on images."""
        values, of = seen.and_mirrored(truth) if self.mirrored else (seen.values, truth)
        near = torch.exp(-self.gamma * squared_distances(values, values))
        machine, _ = self.machine(near, of.numpy(), values)
        return machine.config, machine

    def machine(self, near: Tensor, targets: Rows, values: Values) -> tuple[KernelMachine, Rows]:
        """Fit a machine on how near images are to each other. Return it, and the rows of its vectors."""
        from sklearn.svm import SVC

        fitted = SVC(C=self.cost, kernel="precomputed").fit(near.numpy(), targets)
        support: Rows = fitted.support_
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


def nearest_neighbors(name: str, sees: str, seen: Seen, truth: Truth, problem: Problem) -> Fitted:
    """Choose how many of the nearest images answer."""

    def setting(count: int) -> Setting:
        def fit(some: Seen, of: Truth) -> tuple[NeighborsConfig, Neighbors]:
            labels = of.float().reshape(len(of), -1)
            if problem.task == "classification":
                labels = F.one_hot(of, problem.outputs).float()
            config = NeighborsConfig(neighbors=min(count, len(of)), examples=len(of))
            head = Neighbors(config, some.values.shape[1], problem.outputs, problem.task)
            with torch.no_grad():
                head.examples.copy_(some.values)
                head.labels.copy_(labels)
            return config, head

        return Setting(f"neighbors {count}", fit)

    return best_setting(name, sees, [setting(count) for count in NEIGHBORS], seen, truth, problem)


def linear(name: str, sees: str, seen: Seen, truth: Truth, problem: Problem) -> Fitted:
    """Fit a linear map: ridge regression for numbers and several labels; for classes logistic regression, or
    where an image has many numbers ridge regression, which is as accurate within a point at a hundredth of
    the time."""
    if problem.task == "classification" and seen.values.shape[1] <= MOST_LOGISTIC:
        settings = [logistic_setting(penalty, problem.outputs) for penalty in PENALTIES]
        return best_setting(name, sees, settings, seen, truth, problem)
    began = time.perf_counter()
    classes = problem.task == "classification"
    known_values = seen.values.double()
    std = torch.ones(known_values.shape[1])
    if classes:  # a number that hardly varies is not enlarged: of other images it may be any
        spread = known_values.std(dim=0, correction=0)
        std = spread.clamp_min(max(LEAST_SPREAD * float(spread.mean()), 1e-6))
    values, targets = known_values / std, wanted_of(truth, problem)
    answers = torch.zeros(len(RIDGES), len(truth), problem.outputs, dtype=torch.float64)
    for known, others in problem.folds(truth):
        for place, (weight, bias) in enumerate(ridges(values[known], targets[known], RIDGES)):
            answers[place, others] = values[others] @ weight.T + bias
    errors = [float((each - targets).square().mean()) for each in answers]
    best = int(np.argmin(errors))
    if classes:  # of equally many right answers those that are nearer to the truth
        best = max(range(len(RIDGES)), key=lambda at: (problem.measures.of(answers[at], truth), -errors[at]))
    penalty, chosen = RIDGES[best], answers[best]
    slope, shift = 1.0, 0.0
    if problem.task == "multilabel":
        slope, shift = as_probabilities(chosen, targets)
    if classes:
        slope = float(min(SLOPES, key=lambda each: problem.measures.loss(float(each) * chosen, truth)))

    def fit(some: Seen, of: Truth) -> tuple[LinearConfig, nn.Module]:
        [(weight, bias)] = ridges(some.values.double() / std, wanted_of(of, problem), (penalty,))
        return LinearConfig(), linear_head(slope * weight / std, slope * bias + shift)

    config, head = fit(seen, truth)
    spent = time.perf_counter() - began
    words = f"penalty {penalty:g}"
    return Fitted(name, sees, config, head, (slope * chosen + shift).float(), fit, words, spent)


def wanted_of(truth: Truth, problem: Problem) -> Float[Tensor, "N outputs"]:
    """Return what ridge regression learns: numbers, shares of labels, or 1 for the class of an image."""
    if problem.task == "classification":
        return F.one_hot(truth, problem.outputs).double()
    return truth.double().reshape(len(truth), -1)


def logistic_setting(penalty: float, classes: int) -> Setting:
    """Return logistic regression with a penalty."""

    def fit(seen: Seen, truth: Truth) -> tuple[LinearConfig, nn.Module]:
        values = seen.values.numpy()
        mean, std = values.mean(axis=0), values.std(axis=0) + 1e-6
        weight, bias = fit_penalized(penalty, (values - mean) / std, truth.numpy(), classes)
        weight = weight / std
        return LinearConfig(), linear_head(torch.from_numpy(weight), torch.from_numpy(bias - weight @ mean))

    return Setting(f"penalty {penalty:g}", fit)


def fit_penalized(
    penalty: float, values: Float[np.ndarray, "N D"], targets: Rows, classes: int
) -> tuple[Float[np.ndarray, "classes D"], Float[np.ndarray, " classes"]]:
    """Fit logistic regression with an l2 penalty; of two classes each gets half of the difference."""
    from sklearn.linear_model import LogisticRegression

    weight = np.zeros((classes, values.shape[1]), values.dtype)
    bias = np.full(classes, UNSEEN, values.dtype)
    with warnings.catch_warnings(action="ignore"):  # that the last digits have not settled
        fitted = LogisticRegression(C=1 / (penalty * len(values)), max_iter=ITERATIONS).fit(values, targets)
    rows, shifts = fitted.coef_, fitted.intercept_
    if len(fitted.classes_) == 2:
        rows, shifts = np.concatenate([-rows, rows]) / 2, np.concatenate([-shifts, shifts]) / 2
    weight[fitted.classes_], bias[fitted.classes_] = rows, shifts
    return weight, bias


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


def as_probabilities(scores: Tensor, targets: Tensor) -> tuple[float, float]:
    """Return the slope and the shift that make scores of labels logits (Platt, 1999)."""
    from sklearn.linear_model import LogisticRegression

    known = targets.flatten().numpy() > 0.5
    if known.all() or not known.any():
        return 1.0, 0.0
    fitted = LogisticRegression(C=1e6).fit(scores.reshape(-1, 1).numpy(), known)
    return max(float(fitted.coef_[0, 0]), 1e-3), float(fitted.intercept_[0])


# ---- Which methods suit the images


Method = tuple[str, str, Callable[..., Fitted]]  # its name, what it sees, and what fits it


def methods_for(data: DataSummary, problem: Problem, counts: Rows) -> list[Method]:
    """Return which methods suit images of such a size, and so many classes, the most promising ones first.

    Args:
        counts: images of each class.
    """
    shorter = min(data.height, data.width)
    gradients = "gradients" if shorter >= SMALLEST else "pixels"
    nearest = ("k nearest neighbors", "pixels" if shorter <= SMALL else gradients, nearest_neighbors)
    if problem.task != "classification":
        ridge = "linear" if problem.task == "multilabel" else "ridge"
        found = [(f"{ridge} on pixels", "thumbnail", linear), nearest]
        if shorter >= SMALLEST:
            found.insert(0, (f"{ridge} on HOG and color", "gradients", linear))
        return found
    if (counts > 0).sum() < 2 or counts.max() < 2:  # nothing to choose between, or to leave out
        return []
    few = (counts > 0).sum() <= MOST_CLASSES
    methods: list[Method] = []
    if few and shorter >= SMALLEST:
        methods.append((SVM, "gradients", support_vectors))
    methods.append(nearest)
    if few and shorter <= SMALL:
        methods.append(("SVM on pixels", "pixels", pixel_machine))
    return methods


def pixel_machine(name: str, sees: str, seen: Seen, truth: Truth, problem: Problem) -> Fitted:
    """Fit a support vector machine on pixels, whose width is chosen, too."""
    return support_vectors(name, sees, Seen(seen.values), truth, problem, GAMMAS)


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


class Classical(NamedTuple):
    """The methods that suit some images, fitted on all images to learn from (of many, on some)."""

    methods: tuple[Fitted, ...]
    shown: Shown
    truth: Truth
    problem: Problem
    of: int  # images to learn from
    prepared: Preprocessing

    @property
    def best(self) -> Fitted | None:
        """Return the method of the highest cross-fitted score."""
        measures = self.problem.measures
        return max(self.methods, key=lambda each: measures.of(each.answers, self.truth), default=None)

    def baselines(self, held_out: ImageDataset) -> tuple[Baseline, ...]:
        """Evaluate the methods, and the answer that knows no image, on images that none of them was fitted
        on."""
        began = time.perf_counter()
        if len(held_out) > MOST_ASKED:
            held_out = held_out.subset(np.array(held_out.sample(MOST_ASKED)))
        images = shown(held_out, self.prepared)
        truth = held_out.targets.tensor(images.rows)
        reading = time.perf_counter() - began
        values: dict[str, Values] = {}
        results = []
        for each in self.methods:
            began = time.perf_counter()
            if each.sees not in values:
                values[each.sees] = seen_by_classical(images.pixels, each.sees)
            answers = each.ask(values[each.sees])
            spent = each.seconds + reading + time.perf_counter() - began
            results.append(self.baseline(each.name, answers, truth, each.settings, spent))
        name, answers = without_images(self.truth, self.problem, len(truth))
        return (*results, self.baseline(name, answers, truth, "", 0.0))

    def baseline(self, name: str, answers: Outputs, truth: Truth, settings: str, seconds: float) -> Baseline:
        """Return the score of answers with its interval."""
        measures = self.problem.measures
        return Baseline(
            name, measures.of(answers, truth), measures.interval(answers, truth), settings, seconds
        )


def without_images(truth: Truth, problem: Problem, count: int) -> tuple[str, Outputs]:
    """Return the answer that is best without looking at an image, and what it is called: the most frequent
    class, the frequency of each label, the mean of the numbers."""
    if problem.task == "regression":
        return "mean of the training numbers", truth.float().mean().reshape(1, 1).expand(count, 1)
    if problem.task == "multilabel":
        shares = truth.double().mean(dim=0).clamp(1e-3, 1 - 1e-3)
        return "label frequencies", shares.logit().float().expand(count, -1)
    counts = torch.bincount(truth, minlength=problem.outputs).double()
    shares = (counts + 1 / len(counts)) / (counts.sum() + 1)
    return "majority class", shares.log().float().expand(count, -1)


def fit_classical(
    splits: Splits, problem: Problem | None = None, *, mirrored: bool = False, everything: bool = True
) -> Classical:
    """Fit the methods that suit the images of the training part, and of the validation part where there is
    one: they need none, as cross-fitting chooses their settings. Raises InputError: no image can be read.

    Args:
        mirrored: whether mirror images may be learned from, too.
        everything: whether the validation part is learned from.
    """
    problem = problem or Problem("classification", len(splits.train.classes))
    prepared = squashed(splits.summary.channels, splits.summary.value_range)
    parts = [splits.train]
    if everything and splits.validation is not None and len(splits.validation):
        parts.append(splits.validation)
    count = sum(map(len, parts))
    pixels, truth = [], []
    rows: list[NDArray[np.int64]] = []
    groups: list[NDArray[np.int64]] = []
    for part in parts:
        some = part
        if count > MOST_FITTED:
            some = part.subset(np.array(part.sample(max(MOST_FITTED * len(part) // count, 1))))
        read = shown(some, prepared)
        groups.append(some.together(read.rows))
        pixels.append(read.pixels)
        truth.append(some.targets.tensor(read.rows))
        rows.append(read.rows)
    images = Shown(torch.cat(pixels), np.concatenate(rows))
    known = torch.cat(truth)
    problem = problem._replace(groups=np.concatenate(groups))
    counts = np.bincount(known.numpy(), minlength=1) if problem.task == "classification" else np.zeros(1, int)
    of = f", on {len(known):,} of {count:,} images" if len(known) < count else ""
    values: dict[str, Seen] = {}
    methods: list[Fitted] = []
    for name, sees, fit in methods_for(splits.summary, problem, counts):
        if sees not in values:
            both = mirrored and problem.task == "classification" and len(known) <= MOST_MIRRORED
            values[sees] = images.described(sees, mirrored=both and sees == "gradients")
        fitted = fit(name, sees, values[sees], known, problem)
        methods.append(replace(fitted, settings=fitted.settings + of))
    return Classical(tuple(methods), images, known, problem, count, prepared)


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

    def harms(self, other: NDArray[np.bool_], than: NDArray[np.bool_]) -> bool:
        """Return whether learning from more mirror images costs more right answers than chance explains: two
        standard errors of the difference (McNemar)."""
        lost, won = int((than & ~other).sum()), int((other & ~than).sum())
        return lost - won > 2 * (lost + won) ** 0.5


def mirroring_of(splits: Splits) -> Mirroring | None:
    """Return what `try_mirroring` finds, which is remembered by the content of the images."""
    images = splits.train.subset(np.array(splits.train.sample(MOST_TRIED)))
    digest = hashlib.blake2b(images.targets.strata().tobytes(), digest_size=20)
    for index in range(len(images)):
        digest.update(image_bytes(images, index))
    if digest.digest() not in FOUND:
        FOUND[digest.digest()] = try_mirroring(splits)
    return FOUND[digest.digest()]


FOUND: dict[bytes, Mirroring | None] = {}  # by the content of images
MOST_TRIED = 1000  # images, of which mirror images are tried: with them four times as many


def try_mirroring(splits: Splits) -> Mirroring | None:
    """Learn from the training images, from them and their mirror images, and from those in both directions.
    None where no class has two images. Raises InputError: no image can be read."""
    some = splits.train.subset(np.array(splits.train.sample(MOST_TRIED)))
    images = shown(some, squashed(splits.summary.channels, splits.summary.value_range))
    targets = some.targets.strata(images.rows)
    counts = np.bincount(targets)
    if (counts > 0).sum() < 2 or counts.max() < 2:
        return None
    pixels = images.pixels
    views = [pixels, pixels.flip(-1)]
    if splits.summary.channels != 3:  # of others, top and bottom are seldom alike
        views += [pixels.flip(-2), pixels.flip(-1, -2)]
    values = [seen_by_classical(each, "gradients") for each in views]
    scale = 1 / (values[0].shape[1] * max(float(values[0].var(correction=0)), 1e-12))
    folds, classes = folds_of(targets, some.together(images.rows)), len(some.classes)
    found = []
    for count in (1, 2, 4)[: len(views) // 2 + 1]:
        how = MachineSetting(COSTS[0], scale, classes, mirrored=False)
        right = np.zeros(len(targets), dtype=bool)
        for known, others in folds:
            learned = Seen(torch.cat([each[known] for each in values[:count]]))
            _, machine = how.fit(learned, torch.from_numpy(np.tile(targets[known], count)))
            with torch.inference_mode():
                answers = machine(values[0][others]).argmax(dim=1).numpy()
            right[others] = answers == targets[others]
        found.append(right)
    return Mirroring(found[0], found[1], found[-1])
