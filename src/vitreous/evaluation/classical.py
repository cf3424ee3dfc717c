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
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8

from vitreous.data.dataset import ImageDataset, Splits
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


def shown(images: ImageDataset, channels: int) -> tuple[UInt8[np.ndarray, "N 64 64 C"], Rows]:
    """Return the images that can be read at 64 x 64 pixels, whatever their shape, and their numbers."""
    squashed = Preprocessing(size=(SIDE, SIDE), channels=channels, resize="squash", interpolation="bilinear")
    workers = worker_count(None)

    def pixels(batch: Any) -> torch.Tensor:
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
    down, across, size = (np.take_along_axis(each, channel, 3)[..., 0] for each in (down, across, size))
    turn = np.rad2deg(np.arctan2(down, across)) % 180
    direction = np.minimum((turn * (ORIENTATIONS / 180)).astype(int), ORIENTATIONS - 1)
    count, rows, columns = len(size), size.shape[1] // CELL, size.shape[2] // CELL
    cells = np.zeros((count, rows, columns, ORIENTATIONS), np.float32)
    for each in range(ORIENTATIONS):
        chosen = np.where(direction == each, size, 0)[:, : rows * CELL, : columns * CELL]
        cells[..., each] = chosen.reshape(count, rows, CELL, columns, CELL).mean(axis=(2, 4))
    corners = (cells[:, i : rows - 1 + i, j : columns - 1 + j] for i in range(2) for j in range(2))
    blocks = np.stack(list(corners), axis=3).reshape(count, rows - 1, columns - 1, -1)
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
    counts = [np.concatenate([np.bincount(band, minlength=bins) for band in image.T]) for image in codes]
    return np.sqrt(np.stack(counts) / flat.shape[1]).astype(np.float32)


def shape_and_color(pixels: UInt8[np.ndarray, "N H W C"]) -> Float[np.ndarray, "N features"]:
    """Return gradients and colors, the gradients' 49 blocks together as long as one color histogram."""
    parts = [pixels[first : first + TOGETHER] for first in range(0, len(pixels), TOGETHER)]
    blocks = (SIDE // CELL - 1) ** 2
    return np.concatenate(
        [np.hstack([oriented_gradients(each) / blocks**0.5, color_histogram(each)]) for each in parts]
    )


def plain_pixels(pixels: UInt8[np.ndarray, "N H W C"]) -> Float[np.ndarray, "N features"]:
    """Return the numbers of small images at 32 x 32, in 0 ... 1."""
    return pixels[:, ::2, ::2].reshape(len(pixels), -1).astype(np.float32) / 255


def distances(a: Float[np.ndarray, "N D"], b: Float[np.ndarray, "M D"]) -> Distances:
    """Return the squared distance of each row of `a` to each of `b`."""
    found = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1) - 2 * (a @ b.T)
    return np.maximum(found, 0, out=found)


# A setting, the distances of the images that are fitted (n, n) and their classes, and those of other images
# to them (m, n): the classes of the others.
Method = Callable[[Any, Distances, Rows, Distances], Rows]


def vector_machine(setting: tuple[float, float], known: Distances, targets: Rows, asked: Distances) -> Rows:
    """Answer by an SVM with a Gaussian kernel. setting: C and gamma."""
    from sklearn.svm import SVC

    cost, gamma = setting
    machine = SVC(C=cost, kernel="precomputed").fit(np.exp(-gamma * known), targets)
    answers: Rows = machine.predict(np.exp(-gamma * asked))
    return answers


def nearest(neighbors: int, known: Distances, targets: Rows, asked: Distances) -> Rows:
    """Answer by the most frequent class of the nearest images; the nearest decides between equals."""
    order = targets[np.argsort(asked, axis=1, kind="stable")[:, :neighbors]]
    votes = (order[:, :, None] == order[:, None, :]).sum(axis=2)
    answers: Rows = order[np.arange(len(order)), votes.argmax(axis=1)]
    return answers


@dataclass
class Fitted:
    """A classical method with the setting that cross-fitting on the images to learn from has chosen.

    Attributes:
        answers: the classes that it gave to each of these images when it was fitted without it.
    """

    name: str
    method: Method
    describe: Callable[[UInt8[np.ndarray, "N 64 64 C"]], Float[np.ndarray, "N D"]]
    values: Float[np.ndarray, "N D"]
    known: Distances
    targets: Rows
    setting: Any
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
            answers.append(self.method(self.setting, self.known, self.targets, asked))
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
    parts = [each for each in (splits.train, splits.validation) if each is not None and len(each)]
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


def fit_pixels(pixels: Any, targets: Rows, splits: Splits, count: int) -> Classical:
    """Fit what suits images of such a size, and so many classes."""
    shorter = min(splits.summary.height, splits.summary.width)
    few = len(np.unique(targets)) <= MOST_CLASSES
    gradients = plain_pixels if shorter < SMALLEST else shape_and_color
    fit: list[tuple[str, Method, Callable[[Any], Any]]] = [
        ("k nearest neighbors", nearest, plain_pixels if shorter <= SMALL else gradients)
    ]
    if few and shorter <= SMALL:
        fit.append(("SVM on pixels", vector_machine, plain_pixels))
    if few and shorter >= SMALLEST:
        fit.insert(0, (SVM, vector_machine, shape_and_color))
    described = {each: each(pixels) for each in {describe for _, _, describe in fit}}
    known = {each: distances(values, values) for each, values in described.items()}
    of = f", on {len(targets):,} of {count:,} images" if len(targets) < count else ""
    methods = []
    counts = np.bincount(targets)
    if (counts > 0).sum() > 1 and counts.max() > 1:  # there is something to choose between, and to leave out
        for name, method, describe in fit:
            found = cross_fit(name, method, describe, described[describe], known[describe], targets)
            found.settings += of
            methods.append(found)
    return Classical(tuple(methods), targets, count, splits.summary.channels)


def cross_fit(
    name: str,
    method: Method,
    describe: Callable[[Any], Any],
    values: Float[np.ndarray, "N D"],
    known: Distances,
    targets: Rows,
) -> Fitted:
    """Choose the setting of a method by what it answers to images that it was not fitted on."""
    began = time.perf_counter()
    settings: Sequence[Any] = NEIGHBORS
    if method is vector_machine:
        scale = 1 / (values.shape[1] * max(float(values.var()), 1e-12))
        gammas = GAMMAS if describe is plain_pixels else GAMMAS[:1]
        settings = [(cost, scale * gamma) for cost in COSTS for gamma in gammas]
    folds = folds_of(targets)

    def answers(setting: Any, asked: Distances) -> Rows:
        found = np.zeros_like(targets)
        for rows, others in folds:
            within, to = known[np.ix_(rows, rows)], asked[np.ix_(others, rows)]
            found[others] = method(setting, within, targets[rows], to)
        return found

    given = {each: answers(each, known) for each in settings}
    best = max(settings, key=lambda each: int((given[each] == targets).sum()))
    words = f"neighbors {best}" if method is nearest else f"C {best[0]:g}, gamma {best[1]:.3g}"
    return Fitted(
        name, method, describe, values, known, targets, best, given[best], words,
        time.perf_counter() - began,
    )  # fmt: skip


class Mirroring(NamedTuple):
    """How often images are classified correctly by an SVM that was fitted on other images: as they are, and
    with their mirror images, too.

    Attributes:
        plain: of each image, whether the answer was right.
        sideways: where images mirrored left and right were learned from as well.
        upside_down: where, besides those, images mirrored top and bottom were.
    """

    plain: Any
    sideways: Any
    upside_down: Any

    def harms(self, other: Any, than: Any) -> bool:
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
                (COSTS[-1], scale),
                distances(learned, learned),
                np.tile(targets[known], count),
                distances(values[0][others], learned),
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
