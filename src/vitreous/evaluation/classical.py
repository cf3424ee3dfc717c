"""Classical image classification, which every classifier is compared with: an SVM on histograms of oriented
gradients and of color, nearest neighbors, and the most frequent class. Seconds for thousands of images.

The gradients are those of Dalal and Triggs (2005), computed for many images at once: equal to scikit-image's
`hog`, which takes them one by one, to the last digits of float32 (a test compares them).
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from numpy.typing import NDArray

from vitreous.data.dataset import ImageDataset, Splits
from vitreous.data.image_samples import Batch
from vitreous.data.workers import worker_count
from vitreous.errors import InputError
from vitreous.evaluation.outputs import compute_outputs
from vitreous.evaluation.scores import Interval, wilson_interval
from vitreous.models.preprocessing import Preprocessing

SIDE, CELL, ORIENTATIONS = 64, 8, 9  # pixels of an image, of a cell; directions in half a turn
CLIPPED = 0.2  # of a block, before it is normalized again (L2-Hys)
LEVELS, GRAY_LEVELS = 4, 16  # of each channel in a histogram of color, and in one of gray or of bands
SMALL = 32  # pixels of the shorter side, up to which the pixels themselves are compared, too
SMALLEST = 16  # pixels, below which there are no gradients to speak of
TOGETHER = 256  # images whose gradients are in memory at once

SVM = "SVM on HOG and color"
COSTS = (1.0, 10.0)
GAMMAS = (1.0, 2.0, 4.0)  # times scikit-learn's own, 1 / (features * variance): of pixels
NEIGHBORS = (1, 3, 5)
FOLDS = 3
MOST_FITTED = 6000  # images: a kernel matrix of 288 MB
MOST_MIRRORED = 1000  # images: with their mirror images four times as many
MOST_ASKED = 20_000  # held-out images
MOST_CLASSES = 200  # which an SVM asks about pair by pair


class Baseline(NamedTuple):
    """What a classical method gets on the held-out part."""

    name: str
    accuracy: float
    interval: Interval
    settings: str
    seconds: float


Rows = Int[np.ndarray, " n"]
Distances = Float[np.ndarray, "N M"]  # squared
Pixels = UInt8[np.ndarray, "N 64 64 C"]


def shown(images: ImageDataset, channels: int) -> tuple[UInt8[np.ndarray, "N 64 64 C"], Rows]:
    """Return the images that can be read at 64 x 64 pixels, whatever their shape, and their numbers."""
    squashed = Preprocessing(size=(SIDE, SIDE), channels=channels, resize="squash", interpolation="bilinear")
    workers = worker_count(None)

    def pixels(batch: Batch) -> torch.Tensor:
        return squashed.denormalize(batch.images)

    found = compute_outputs(torch.nn.Identity(), images, pixels, preprocessing=squashed, workers=workers)
    return found.values.permute(0, 2, 3, 1).numpy(), found.indices


def oriented_gradients(pixels: UInt8[np.ndarray, "N H W C"]) -> Float[np.ndarray, "N features"]:
    """Return histograms of oriented gradients: 9 directions in cells of 8 x 8 pixels, each block of 2 x 2
    cells normalized; of several channels the one that changes most, pixel by pixel."""
    values = pixels.astype(np.float32)
    down, across = np.zeros_like(values), np.zeros_like(values)
    down[:, 1:-1] = values[:, 2:] - values[:, :-2]
    across[:, :, 1:-1] = values[:, :, 2:] - values[:, :, :-2]
    size = np.hypot(down, across)
    channel = size.argmax(axis=3)[..., None]
    down = np.take_along_axis(down, channel, 3)[..., 0]
    across = np.take_along_axis(across, channel, 3)[..., 0]
    size = np.take_along_axis(size, channel, 3)[..., 0]
    turn = np.rad2deg(np.arctan2(down, across)) % 180
    direction = np.minimum((turn * (ORIENTATIONS / 180)).astype(int), ORIENTATIONS - 1)
    count, rows, columns = len(size), size.shape[1] // CELL, size.shape[2] // CELL
    cells = np.zeros((count, rows, columns, ORIENTATIONS), np.float32)
    for each in range(ORIENTATIONS):
        chosen = np.where(direction == each, size, 0)[:, : rows * CELL, : columns * CELL]
        cells[..., each] = chosen.reshape(count, rows, CELL, columns, CELL).mean(axis=(2, 4))
    corners = (cells[:, :-1, :-1], cells[:, :-1, 1:], cells[:, 1:, :-1], cells[:, 1:, 1:])  # of each block
    blocks = np.stack(corners, axis=3).reshape(count, rows - 1, columns - 1, -1)
    blocks = np.minimum(unit(blocks), CLIPPED)
    return unit(blocks).reshape(count, -1)


def unit(values: Float[np.ndarray, "*N D"]) -> Float[np.ndarray, "*N D"]:
    """Return vectors of length 1."""
    return values / np.sqrt((values**2).sum(axis=-1, keepdims=True) + 1e-10)


def color_histogram(pixels: UInt8[np.ndarray, "N H W C"]) -> Float[np.ndarray, "N bins"]:
    """Return the root of the share of each of 64 colors; of gray and of other bands 16 levels each."""
    flat = pixels.reshape(len(pixels), -1, pixels.shape[-1]).astype(int)
    if flat.shape[-1] == 3:
        level = flat * LEVELS // 256
        codes, bins = (level @ [LEVELS**2, LEVELS, 1])[..., None], LEVELS**3
    else:
        codes, bins = flat * GRAY_LEVELS // 256, GRAY_LEVELS
    counts: list[NDArray[np.int64]] = []
    for image in codes:
        bands = [np.bincount(band, minlength=bins) for band in image.T]
        counts.append(np.concatenate(bands))
    return np.sqrt(np.stack(counts) / flat.shape[1]).astype(np.float32)


def shape_and_color(pixels: UInt8[np.ndarray, "N H W C"]) -> Float[np.ndarray, "N features"]:
    """Return gradients and colors, the gradients' 49 blocks together as long as one color histogram."""
    blocks = (SIDE // CELL - 1) ** 2
    found: list[NDArray[np.float32]] = []
    for first in range(0, len(pixels), TOGETHER):
        some = pixels[first : first + TOGETHER]
        found.append(np.hstack([oriented_gradients(some) / blocks**0.5, color_histogram(some)]))
    return np.concatenate(found)


def plain_pixels(pixels: UInt8[np.ndarray, "N H W C"]) -> Float[np.ndarray, "N features"]:
    """Return the numbers of small images at 32 x 32, in 0 ... 1."""
    return pixels[:, ::2, ::2].reshape(len(pixels), -1).astype(np.float32) / 255


def distances(a: Float[np.ndarray, "N D"], b: Float[np.ndarray, "M D"]) -> Distances:
    """Return the squared distance of each row of `a` to each of `b`."""
    found = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1) - 2 * (a @ b.T)
    return np.maximum(found, 0, out=found)


# From the distances of the images that are fitted (n, n), their classes, and the distances of other images to
# them (m, n): the classes of the others.
Answering = Callable[[Distances, Rows, Distances], Rows]
Describe = Callable[[Pixels], Float[np.ndarray, "N D"]]


def vector_machine(known: Distances, targets: Rows, asked: Distances, *, cost: float, gamma: float) -> Rows:
    """Answer by an SVM with a Gaussian kernel."""
    from sklearn.svm import SVC

    machine = SVC(C=cost, kernel="precomputed").fit(np.exp(-gamma * known), targets)
    answers: Rows = machine.predict(np.exp(-gamma * asked))
    return answers


def nearest(known: Distances, targets: Rows, asked: Distances, *, neighbors: int) -> Rows:
    """Answer by the most frequent class of the nearest images; the nearest decides between equals."""
    order = targets[np.argsort(asked, axis=1, kind="stable")[:, :neighbors]]
    votes = (order[:, :, None] == order[:, None, :]).sum(axis=2)
    answers: Rows = order[np.arange(len(order)), votes.argmax(axis=1)]
    return answers


class Candidate(NamedTuple):
    """A classical method with one of its settings, in words, too."""

    settings: str
    answer: Answering


def machines(values: Float[np.ndarray, "N D"], describe: Describe) -> list[Candidate]:
    """Return the SVMs to choose between, for images that are described so."""
    scale = 1 / (values.shape[1] * max(float(values.var()), 1e-12))
    found: list[Candidate] = []
    for cost in COSTS:
        for gamma in GAMMAS if describe is plain_pixels else GAMMAS[:1]:
            answer = partial(vector_machine, cost=cost, gamma=scale * gamma)
            found.append(Candidate(f"C {cost:g}, gamma {scale * gamma:.3g}", answer))
    return found


def neighborhoods(values: Float[np.ndarray, "N D"], describe: Describe) -> list[Candidate]:
    """Return the numbers of nearest neighbors to choose between."""
    return [Candidate(f"neighbors {count}", partial(nearest, neighbors=count)) for count in NEIGHBORS]


@dataclass
class Fitted:
    """A classical method with the setting that cross-fitting on the images to learn from has chosen.

    Attributes:
        answers: the classes that it gave to each of these images when it was fitted without it.
    """

    name: str
    answer: Answering
    describe: Describe
    values: Float[np.ndarray, "N D"]
    known: Distances
    targets: Rows
    answers: Rows
    settings: str
    seconds: float

    @property
    def accuracy(self) -> float:
        """Return the cross-fitted accuracy."""
        return float((self.answers == self.targets).mean())

    def ask(self, pixels: UInt8[np.ndarray, "N 64 64 C"]) -> Rows:
        """Return the classes of other images."""
        answers = []
        for first in range(0, len(pixels), 4 * TOGETHER):
            asked = distances(self.describe(pixels[first : first + 4 * TOGETHER]), self.values)
            answers.append(self.answer(self.known, self.targets, asked))
        return np.concatenate(answers)


class Classical(NamedTuple):
    """The classical methods, fitted on all images to learn from (of many, on some)."""

    methods: tuple[Fitted, ...]
    targets: Rows
    of: int  # images to learn from
    channels: int

    @property
    def best(self) -> Fitted | None:
        """Return the method of the highest cross-fitted accuracy."""
        return max(self.methods, key=lambda each: each.accuracy, default=None)

    @property
    def majority(self) -> float:
        """Return the share of the most frequent class."""
        return float(np.bincount(self.targets).max() / len(self.targets))

    def baselines(self, held_out: ImageDataset) -> tuple[Baseline, ...]:
        """Evaluate the methods on images that none of them was fitted on."""
        began = time.perf_counter()
        if len(held_out) > MOST_ASKED:
            held_out = held_out.subset(np.array(held_out.sample(MOST_ASKED)))
        pixels, rows = shown(held_out, self.channels)
        truth = held_out.targets.strata(rows)
        reading = time.perf_counter() - began
        results = []
        for each in self.methods:
            began = time.perf_counter()
            hits = int((each.ask(pixels) == truth).sum())
            spent = each.seconds + reading + time.perf_counter() - began
            results.append(baseline(each.name, hits, len(truth), each.settings, spent))
        hits = int((truth == np.bincount(self.targets).argmax()).sum())
        return (*results, baseline("majority class", hits, len(truth), "", 0.0))


def baseline(name: str, hits: int, count: int, settings: str, seconds: float) -> Baseline:
    """Return the accuracy of a method with its interval."""
    return Baseline(name, hits / count, wilson_interval(hits, count), settings, seconds)


def fit_classical(splits: Splits) -> Classical:
    """Fit the classical methods on the training part, and the validation part where there is one: they need
    none, as cross-fitting chooses their settings. Raises InputError: no image can be read."""
    channels = splits.summary.channels
    parts = [part for part in (splits.train, splits.validation) if part is not None and len(part)]
    count = sum(map(len, parts))
    pixels, targets = [], []
    for part in parts:
        some = part
        if count > MOST_FITTED:
            some = part.subset(np.array(part.sample(max(MOST_FITTED * len(part) // count, 1))))
        read, rows = shown(some, channels)
        pixels.append(read)
        targets.append(some.targets.strata(rows))
    return fit_pixels(np.concatenate(pixels), np.concatenate(targets), splits, count)


def fit_pixels(pixels: Pixels, targets: Rows, splits: Splits, count: int) -> Classical:
    """Fit what suits images of such a size, and so many classes."""
    counts = np.bincount(targets)
    methods: list[Fitted] = []
    if (counts > 0).sum() < 2 or counts.max() < 2:  # nothing to choose between, or to leave out
        return Classical((), targets, count, splits.summary.channels)

    shorter = min(splits.summary.height, splits.summary.width)
    few = (counts > 0).sum() <= MOST_CLASSES
    gradients = plain_pixels if shorter < SMALLEST else shape_and_color
    fit: list[tuple[str, Describe, Callable[..., list[Candidate]]]] = []
    if few and shorter >= SMALLEST:
        fit.append((SVM, shape_and_color, machines))
    fit.append(("k nearest neighbors", plain_pixels if shorter <= SMALL else gradients, neighborhoods))
    if few and shorter <= SMALL:
        fit.append(("SVM on pixels", plain_pixels, machines))

    of = f", on {len(targets):,} of {count:,} images" if len(targets) < count else ""
    described = dict[Describe, NDArray[np.float32]]()
    known = dict[Describe, Distances]()
    for name, describe, candidates in fit:
        if describe not in described:
            described[describe] = describe(pixels)
            known[describe] = distances(described[describe], described[describe])
        values = described[describe]
        found = cross_fit(name, candidates(values, describe), describe, values, known[describe], targets)
        found.settings += of
        methods.append(found)
    return Classical(tuple(methods), targets, count, splits.summary.channels)


def cross_fit(
    name: str,
    candidates: Sequence[Candidate],
    describe: Describe,
    values: Float[np.ndarray, "N D"],
    known: Distances,
    targets: Rows,
) -> Fitted:
    """Choose the setting of a method by what it answers to images that it was not fitted on."""
    began = time.perf_counter()
    folds = folds_of(targets)
    best, most, best_answers = candidates[0], -1, targets
    for candidate in candidates:
        answers = np.zeros_like(targets)
        for rows, others in folds:
            within, to = known[np.ix_(rows, rows)], known[np.ix_(others, rows)]
            answers[others] = candidate.answer(within, targets[rows], to)
        right = int((answers == targets).sum())
        if right > most:
            best, most, best_answers = candidate, right, answers
    return Fitted(
        name=name,
        answer=best.answer,
        describe=describe,
        values=values,
        known=known,
        targets=targets,
        answers=best_answers,
        settings=best.settings,
        seconds=time.perf_counter() - began,
    )


class Mirroring(NamedTuple):
    """How often images are classified correctly by an SVM that was fitted on other images: as they are, and
    with their mirror images, too.

    Attributes:
        plain: of each image, whether the answer was right.
        sideways: where images mirrored left and right were learned from as well.
        upside_down: where, besides those, images mirrored top and bottom were.
    """

    plain: NDArray[np.bool_]
    sideways: NDArray[np.bool_]
    upside_down: NDArray[np.bool_]

    def harms(self, other: NDArray[np.bool_], than: NDArray[np.bool_]) -> bool:
        """Return whether learning from more mirror images costs more right answers than chance explains: two
        standard errors of the difference (McNemar)."""
        lost, won = int((than & ~other).sum()), int((other & ~than).sum())
        return lost - won > 2 * (lost + won) ** 0.5


def try_mirroring(splits: Splits) -> Mirroring | None:
    """Learn from the training images, from them and their mirror images, and from those in both directions.
    None where no class has two images. Raises InputError: no image can be read."""
    some = splits.train.subset(np.array(splits.train.sample(MOST_MIRRORED)))
    pixels, rows = shown(some, splits.summary.channels)
    targets = some.targets.strata(rows)
    counts = np.bincount(targets)
    if (counts > 0).sum() < 2 or counts.max() < 2:
        return None
    views = [pixels, pixels[:, :, ::-1], pixels[:, ::-1], pixels[:, ::-1, ::-1]]
    values = [shape_and_color(each) for each in views]
    scale = 1 / (values[0].shape[1] * max(float(values[0].var()), 1e-12))
    folds = folds_of(targets)
    found = []
    for count in (1, 2, 4):
        right = np.zeros(len(targets), dtype=bool)
        for known, others in folds:
            learned = np.concatenate([each[known] for each in values[:count]])
            answers = vector_machine(
                distances(learned, learned),
                np.tile(targets[known], count),
                distances(values[0][others], learned),
                cost=COSTS[-1],
                gamma=scale,
            )
            right[others] = answers == targets[others]
        found.append(right)
    return Mirroring(*found)


def folds_of(targets: Rows, count: int = FOLDS) -> list[tuple[Rows, Rows]]:
    """Return (rows to fit on, rows to ask about) of each fold, of every class about as many. Raises
    InputError: no class has two images."""
    from sklearn.model_selection import StratifiedKFold

    most = int(np.bincount(targets).max())
    if most < 2:
        raise InputError("no class has two images to learn from: give more")
    splitter = StratifiedKFold(min(count, most), shuffle=True, random_state=0)
    with warnings.catch_warnings(action="ignore"):  # that a class has fewer images than there are folds
        found = list(splitter.split(targets, targets))
    return [pair for pair in found if len(np.unique(targets[pair[0]])) > 1]
