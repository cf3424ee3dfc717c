"""The classical methods on the very split that a run is evaluated on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.kernel_ridge import KernelRidge
from sklearn.svm import SVC

from vitreous.data.config import DataConfig, SplitByName
from vitreous.data.dataset import ArrayImages, DataSummary, Splits
from vitreous.data.held_out import folds_of
from vitreous.data.sources import open_data
from vitreous.evaluation import classical
from vitreous.evaluation.classical import (
    MOST_MIRRORED,
    ImageFeatures,
    Problem,
    constant,
    described,
    fit_classical,
    kernel_ridge,
    linear,
    most_mirrored,
    nearest_neighbors,
    seen_by_classical,
    support_vectors,
    without_images,
)
from vitreous.extensions import TASKS, TaskRow
from vitreous.models.descriptors import color_histogram, oriented_gradients, shape_and_color
from vitreous.models.ensemble import Neighbors, NeighborsConfig


@pytest.fixture(autouse=True)
def _quick_baselines() -> None:
    """All settings are fitted here."""


def splits(images: ArrayImages, *, test: int) -> Splits:
    height, width = images.pixels.shape[1:3]
    channels = 3 if images.pixels.ndim == 4 else 1
    rows = np.random.default_rng(0).permutation(len(images))
    summary = DataSummary(len(images) - test, len(images.classes), height, width, channels, False)
    return Splits(images.subset(rows[test:]), None, images.subset(rows[:test]), "made", summary)


def test_digits_baselines_are_strong() -> None:
    data = open_data("digits", DataConfig(split=SplitByName(seed=3)))
    found = {each.name: each for each in fit_classical(data).baselines(data.test)}
    assert found["SVM on pixels"].accuracy > 0.98
    assert found["k nearest neighbors"].accuracy > 0.97
    assert found["majority class"].accuracy == pytest.approx(0.1, abs=0.03)
    low, high = found["SVM on pixels"].interval
    assert low < found["SVM on pixels"].accuracy < high
    assert "gamma" in found["SVM on pixels"].settings


def test_an_svm_that_had_no_mirror_images_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """A baseline that gets less than the model does is not read as its equal."""
    rng = np.random.default_rng(0)
    targets = np.arange(40) % 2
    pixels = rng.integers(0, 80, (40, 64, 64), np.uint8) + (120 * targets[:, None, None]).astype(np.uint8)
    data = splits(ArrayImages(pixels, targets, ("dark", "light"), name="made"), test=10)
    told: dict[int, str] = {}
    for most in (30, 29):
        monkeypatch.setattr("vitreous.evaluation.classical.MOST_MIRRORED", most)  # not 2,000
        svm, *_ = fit_classical(data, flip=(0.5, 0.0)).baselines(data.test)
        told[most] = svm.settings
    reason = "without mirror images, as there are more than 29 images"
    assert [reason in told[most] for most in (30, 29)] == [False, True]
    svm, *_ = fit_classical(data).baselines(data.test)
    assert "mirror" not in svm.settings  # the model gets none either


@pytest.mark.parametrize(
    ("flip", "images", "expected"),
    [
        ((True, False), MOST_MIRRORED, [(-1,)]),
        ((False, True), MOST_MIRRORED, [(-2,)]),
        ((True, True), MOST_MIRRORED // 2, [(-1,), (-2,), (-1, -2)]),
        ((True, True), MOST_MIRRORED, [(-1,)]),
        ((True, True), MOST_MIRRORED + 1, []),
        ((False, False), 80, []),
    ],
)
def test_mirror_images_are_those_that_the_network_learns_from(
    flip: tuple[bool, bool], images: int, expected: list[tuple[int, ...]]
) -> None:
    """Each of the directions, and both together where there are few enough images."""
    gray = torch.randint(0, 255, (5, 1, 64, 64), dtype=torch.uint8)
    mirrored = described(gray, "gradients", most_mirrored(flip, images)).mirrored
    assert len(mirrored) == len(expected)
    for mine, axes in zip(mirrored, expected, strict=True):
        torch.testing.assert_close(mine, seen_by_classical(gray.flip(axes), "gradients"))


@pytest.mark.parametrize("turned", [False, True])
def test_an_svm_learns_from_mirror_images_where_they_help(turned: bool) -> None:
    """Of wedges that point up or down at any place, those of left and right do: those of top and bottom are
    of the other class."""
    rng, targets = np.random.default_rng(0), np.arange(50) % 2
    pixels = rng.integers(0, 60, (50, 64, 64)).astype(np.uint8)
    rows, columns = np.mgrid[-16:48, :64]
    for image, label in zip(pixels, targets, strict=True):
        width = (rows if label else 32 - rows) / 3
        wedge = (abs(columns - rng.integers(12, 52)) < width) & (rows >= 0) & (rows < 32)
        image += (120 * (wedge.T if turned else wedge)).astype(np.uint8)
    data = splits(ArrayImages(pixels, targets, ("down", "up"), name="made"), test=10)
    helpful, harmful = ((0.0, 0.5), (0.5, 0.0)) if turned else ((0.5, 0.0), (0.0, 0.5))
    assert fit_classical(data, flip=helpful).methods[0].method.flip == (not turned, turned)
    assert fit_classical(data, flip=harmful).methods[0].method.flip == (False, False)


def test_shape_and_color_tell_classes_apart_and_noise_does_not() -> None:
    """Stripes of two directions in two colors; then the same images with classes at random, as a null."""
    rng = np.random.default_rng(1)
    targets = rng.integers(4, size=240)
    wave = (np.arange(64) // 8 % 2 * 120 + 60)[None, :, None]
    pixels = np.zeros((240, 64, 64, 3), np.uint8)
    for row, target in enumerate(targets):
        stripes = np.broadcast_to(wave if target % 2 else wave.transpose(1, 0, 2), (64, 64, 1))
        tint = np.array([1.0, 0.4, 0.4]) if target // 2 else np.array([0.4, 0.4, 1.0])
        noisy = np.roll(stripes, rng.integers(16), (0, 1)) * tint + rng.normal(0, 30, (64, 64, 3))
        pixels[row] = noisy.clip(0, 255)
    classes = ("a", "b", "c", "d")
    data = splits(ArrayImages(pixels, targets, classes, name="made"), test=80)
    fitted = fit_classical(data)
    assert fitted.methods[0].method.name == "SVM on HOG and color"
    assert fitted.problem.measures.of(fitted.methods[0].answers, fitted.learned.truth) > 0.95
    assert fitted.baselines(data.test)[0].accuracy > 0.95
    null = splits(ArrayImages(pixels, rng.permutation(targets), classes, name="made"), test=80)
    assert fit_classical(null).baselines(null.test)[0].accuracy < 0.5


def test_of_gray_images_and_of_bands_there_are_levels() -> None:
    assert color_histogram(torch.zeros(2, 1, 8, 8)).shape == (2, 16)
    assert color_histogram(torch.zeros(2, 3, 8, 8)).shape == (2, 64)
    assert color_histogram(torch.zeros(2, 5, 8, 8)).shape == (2, 80)
    assert shape_and_color(torch.zeros(2, 1, 64, 64)).isfinite().all()


@pytest.mark.slow
@pytest.mark.parametrize("channels", [1, 3])
def test_gradients_are_those_of_scikit_image(channels: int) -> None:
    feature = pytest.importorskip("skimage.feature")
    pixels = np.random.default_rng(0).integers(256, size=(4, 64, 64, channels), dtype=np.uint8)
    theirs = [
        feature.hog(image.astype(float), 9, (8, 8), (2, 2), block_norm="L2-Hys", channel_axis=2)
        for image in pixels
    ]
    ours = oriented_gradients(torch.from_numpy(pixels).permute(0, 3, 1, 2).float())
    np.testing.assert_allclose(ours.numpy(), theirs, atol=2e-5)


def test_the_nearest_decides_between_equal_votes() -> None:
    head = Neighbors(NeighborsConfig(neighbors=3, examples=3), 1, 3, "classification")
    asked = torch.tensor([[0.1, 0.2, 0.3]])
    for classes, expected in (([2, 0, 1], 2), ([2, 0, 0], 0)):
        head.labels.copy_(torch.eye(3)[classes])
        assert head.answers(asked).argmax(dim=1).tolist() == [expected]


@pytest.mark.parametrize("seen", [(0, 1), (0, 1, 2, 3), (0, 2, 3)])
def test_a_machine_answers_as_scikit_learn_s(seen: tuple[int, ...]) -> None:
    """Of two classes, of several, and where a class has no image."""
    rng = np.random.default_rng(0)
    targets = np.array(seen)[rng.integers(len(seen), size=150)]
    values = (rng.normal(size=(150, 7)) + 0.5 * targets[:, None]).astype(np.float32)
    fitted: Any = support_vectors(
        "",
        "",
        ImageFeatures(torch.from_numpy(values)),
        torch.from_numpy(targets),
        Problem("classification", 4),
    )
    cost, gamma = fitted.method.setting.cost, fitted.method.setting.gamma
    machine = fitted.head
    theirs = SVC(C=cost, gamma=machine.config.gamma).fit(values, targets)
    assert gamma == pytest.approx(machine.config.gamma, rel=1e-2)
    asked = rng.normal(size=(200, 7)).astype(np.float32)
    scores = fitted.ask(torch.from_numpy(asked))
    if len(seen) == 2:
        assert (scores.argmax(dim=1).numpy() == theirs.predict(asked)).all()
    else:
        decisions = torch.from_numpy(theirs.decision_function(asked)).float()
        assert torch.allclose(scores[:, list(seen)], machine.sharpness * decisions, atol=1e-3)


def test_ridge_finds_what_is_linear_and_neighbors_what_is_near() -> None:
    rng = torch.Generator().manual_seed(0)
    values = torch.rand(120, 60, generator=rng)
    truth = 3 * values[:, :5].sum(dim=1) + 7
    problem = Problem("regression", 1)
    ridge = linear("", "", ImageFeatures(values), truth, problem)
    assert problem.measures.of(ridge.answers, truth) > 0.5
    assert problem.measures.of(ridge.ask(values), truth) > 0.99
    near = nearest_neighbors("", "", ImageFeatures(values), truth, problem)
    assert problem.measures.of(near.ask(values), truth) > problem.measures.of(near.answers, truth)


@pytest.mark.parametrize("task", ["classification", "multilabel", "regression"])
def test_kernel_ridge_regression_answers_as_scikit_learn_s(task: str) -> None:
    """Also to images of a fold, by what was fitted on the others; of classes and labels these are logits."""
    rng = torch.Generator().manual_seed(0)
    values = torch.randn(150, 7, generator=rng)
    around = values[:, :3].square()  # of which a linear map sees nothing
    truth = {
        "classification": around.argmax(dim=1),
        "multilabel": (around > 0.5).float(),
        "regression": around.sum(dim=1),
    }[task]
    outputs = 1 if task == "regression" else 3
    problem = Problem(task, outputs)
    fitted: Any = kernel_ridge("", "", ImageFeatures(values), truth, problem)
    setting = fitted.method.setting
    wanted = torch.eye(3)[truth] if task == "classification" else truth.reshape(-1, outputs).float()

    def theirs(known: Any, asked: torch.Tensor) -> torch.Tensor:
        theirs = KernelRidge(kernel="rbf", gamma=setting.gamma, alpha=setting.penalty * len(known))
        mean = wanted[known].mean(dim=0)
        theirs.fit(values[known].numpy(), (wanted[known] - mean).numpy())
        answers = torch.from_numpy(theirs.predict(asked.numpy())).float() + mean
        return setting.slope * answers + setting.shift

    asked = torch.randn(50, 7, generator=rng)
    torch.testing.assert_close(fitted.ask(asked), theirs(np.arange(150), asked), atol=2e-3, rtol=1e-3)
    for known, others in problem.folds(truth):
        answers = theirs(known, values[others])
        torch.testing.assert_close(fitted.answers[others], answers, atol=2e-3, rtol=1e-3)
    straight = linear("", "", ImageFeatures(values), truth, problem)
    measures = problem.measures
    assert measures.of(fitted.answers, truth) > measures.of(straight.answers, truth) + 0.1
    assert measures.loss(fitted.answers, truth) < measures.loss(straight.answers, truth)


@pytest.mark.parametrize("offset", [0.0, 1e2, 1e4])
@pytest.mark.parametrize("spread", [0.0, 1e-2, 1.0])
def test_kernel_ridge_regression_keeps_its_digits(offset: float, spread: float) -> None:
    """Where the numbers of all images are nearly the same: an image alone has the answer that it has in a
    batch, and none is a failure."""
    rng = torch.Generator().manual_seed(0)
    values = offset + spread * torch.randn(80, 200, generator=rng)
    truth = torch.arange(80) % 2
    values[:, 0] += spread * truth
    fitted = kernel_ridge("", "", ImageFeatures(values), truth, Problem("classification", 2))
    together = fitted.ask(values)
    assert together.isfinite().all()
    alone = torch.cat([fitted.ask(values[row : row + 1]) for row in range(80)])
    torch.testing.assert_close(alone, together, atol=1e-2, rtol=1e-2)


def test_kernel_ridge_regression_keeps_some_of_very_many_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a large validation set, which is learned from at the end as well, costs no memory without an
    end; they are of all classes."""
    monkeypatch.setattr(classical, "MOST_FITTED", 40)
    values = torch.randn(200, 5, generator=torch.Generator().manual_seed(0))
    truth = torch.arange(200) // 100
    values[:, 0] += 10 * truth
    head: Any = kernel_ridge("", "", ImageFeatures(values), truth, Problem("classification", 2)).head
    assert head.examples.shape == (40, 5)
    assert (head(values).argmax(dim=1) == truth).all()


@pytest.mark.parametrize(("side", "channels"), [(28, 1), (32, 3), (33, 1)])
def test_classes_of_small_images_are_told_by_ridge_regression_too(side: int, channels: int) -> None:
    """By a sum of the pixels of which no single one tells much; what it answers are logits, of which a mean
    with those of other methods makes sense."""
    rng = np.random.default_rng(0)
    pattern = rng.normal(size=(4, 4)).repeat(-(-side // 4), 0).repeat(-(-side // 4), 1)[:side, :side]
    labels = np.arange(200) % 2
    pixels = 128 + 30 * rng.normal(size=(200, side, side)) + 2 * pattern * (2 * labels - 1)[:, None, None]
    pixels = pixels.clip(0, 255).astype(np.uint8)
    if channels == 3:
        pixels = np.repeat(pixels[..., None], 3, axis=-1)
    data = splits(ArrayImages(pixels, labels, ("a", "b"), name="made"), test=50)
    fitted = fit_classical(data)
    found = {each.method.name: each for each in fitted.methods}
    assert ("ridge on pixels" in found) == (side <= 32)
    if side > 32:
        return
    tested = {each.name: each for each in fitted.baselines(data.test)}["ridge on pixels"]
    assert tested.accuracy > 0.75
    assert tested.settings.startswith("penalty ")
    answers, truth, measures = found["ridge on pixels"].answers, fitted.learned.truth, fitted.problem.measures
    assert measures.of(answers, truth) > 0.75
    losses = [measures.loss(factor * answers, truth) for factor in (0.5, 1.0, 2.0)]
    assert losses[1] == min(losses) < 0.5, "they are logits"


def test_a_number_that_hardly_varies_is_not_enlarged() -> None:
    """Where an image has many numbers; of other images such a one may be any."""
    rng = torch.Generator().manual_seed(0)
    truth = torch.arange(60) % 2
    values = torch.rand(60, 500, generator=rng) + 0.5 * truth[:, None]
    values[:, 0] = 1e-5 * torch.rand(60, generator=rng)
    head: Any = linear("", "", ImageFeatures(values), truth, Problem("classification", 2)).head
    other = values.clone()
    other[:, 0] += 0.01
    assert float(head.weight[:, 0].abs().max()) < 5 * float(head.weight.abs().mean())
    assert (head(other).argmax(dim=1) == head(values).argmax(dim=1)).all()


def test_labels_are_ranked_by_a_linear_map() -> None:
    rng = torch.Generator().manual_seed(0)
    values = torch.rand(150, 20, generator=rng)
    truth = (values[:, :3] > 0.6).float()
    problem = Problem("multilabel", 3)
    fitted = linear("", "", ImageFeatures(values), truth, problem)
    assert problem.measures.of(fitted.answers, truth) > 0.9
    frequencies = without_images(truth, problem).expand(len(truth), -1)
    assert problem.measures.loss(fitted.answers, truth) < problem.measures.loss(frequencies, truth)


@pytest.mark.parametrize(
    ("outputs", "known"), [("softmax", "classification"), ("sigmoid", "multilabel"), ("number", "regression")]
)
def test_a_task_of_a_program_is_answered_by_what_its_outputs_are(
    outputs: Any, known: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(TASKS, "mine", TaskRow(__name__, outputs=outputs))
    values = torch.rand(60, 20, generator=torch.Generator().manual_seed(0))
    truth = values[:, :3].argmax(dim=1) if outputs == "softmax" else values[:, :3]
    truth = {"softmax": truth, "sigmoid": (truth > 0.6).float(), "number": values[:, 0]}[outputs]
    problems = [Problem(task, 1 if outputs == "number" else 3) for task in ("mine", known)]
    for fit in (linear, kernel_ridge, nearest_neighbors, constant):
        mine, theirs = (fit("", "", ImageFeatures(values), truth, problem).answers for problem in problems)
        torch.testing.assert_close(mine, theirs)


def test_folds_of_few_images() -> None:
    """A class of one image is no reason to stop; with none of two there is nothing to cross-fit."""
    assert len(folds_of(np.array([0, 0, 0, 0, 1]))) >= 2
    assert folds_of(np.array([0, 1, 2])) == []
    assert folds_of(np.array([0, 0, 1, 1]), np.array([0, 0, 1, 2])) != []
    assert folds_of(np.array([0, 0, 1, 1]), np.array([0, 0, 1, 1])) == []  # two images, four times


def test_folds_that_one_caller_changes_are_new_for_the_next() -> None:
    targets, groups = np.arange(20) % 2, np.arange(20) // 2 * 2
    groups[0] = 1
    first = folds_of(targets, groups)
    kept = [rows.copy() for rows, _ in first]
    for rows, _ in first:
        rows[:] = 0
    assert [rows.tolist() for rows, _ in folds_of(targets, groups)] == [rows.tolist() for rows in kept]
