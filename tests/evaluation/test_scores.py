"""Rates, intervals and calibration against values worked out by hand or by scikit-learn."""

from __future__ import annotations

import math
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vitreous.evaluation.classification import ClassificationEvaluation
from vitreous.evaluation.scores import (
    average_precision,
    best_threshold,
    calibration_of,
    class_scores,
    confusion_matrix,
    precision_interval,
    quantile_interval,
    save_confusion,
    wilson_interval,
)


def test_wilson_interval_is_scipys() -> None:
    from scipy.stats import binomtest

    for successes, trials in ((90, 100), (355, 360), (0, 7), (1, 3)):
        expected = binomtest(successes, trials).proportion_ci(method="wilson")
        assert wilson_interval(successes, trials) == pytest.approx((expected.low, expected.high))
    assert wilson_interval(0, 0) == (0, 1)
    perfect = wilson_interval(360, 360)
    assert perfect.high == 1
    assert perfect.low == pytest.approx(360 / (360 + 1.959964**2), abs=1e-9)


def test_the_interval_of_average_precision_is_that_of_images_sampled_again() -> None:
    generator = np.random.default_rng(5)
    relevant, scores = generator.integers(0, 2, (40, 2)), generator.random((40, 2))
    counts = np.random.default_rng(0).multinomial(40, np.full(40, 1 / 40), size=200)
    rows = [np.repeat(np.arange(40), each) for each in counts]
    again = [np.mean([average_precision(relevant[r, k], scores[r, k]) for k in (0, 1)]) for r in rows]
    assert precision_interval(relevant, scores) == pytest.approx(quantile_interval(again))


@pytest.mark.parametrize("digits", [0, 1])
def test_the_interval_of_average_precision_takes_equal_scores_as_one_step(digits: int) -> None:
    generator = np.random.default_rng(5)
    relevant = np.sort(generator.integers(0, 2, (40, 2)), axis=0)[::-1]  # as of a manifest sorted by label
    scores = generator.random((40, 2)).round(digits) if digits else np.full((40, 2), 0.5)
    counts = np.random.default_rng(0).multinomial(40, np.full(40, 1 / 40), size=200)
    rows = [np.repeat(np.arange(40), each) for each in counts]
    again = [np.mean([average_precision(relevant[r, k], scores[r, k]) for k in (0, 1)]) for r in rows]
    assert precision_interval(relevant, scores) == pytest.approx(quantile_interval(again))


def test_no_other_threshold_has_a_larger_f1() -> None:
    from sklearn.metrics import f1_score

    generator = np.random.default_rng(4)
    for _ in range(20):
        relevant, scores = generator.integers(0, 2, 30), generator.random(30).round(1)
        found = f1_score(relevant, scores >= best_threshold(relevant, scores))
        tried = [f1_score(relevant, scores >= each) for each in np.unique(scores)]
        assert found == pytest.approx(max(tried))
    assert best_threshold(np.array([0, 1, 0, 1]), np.array([0.2, 0.8, 0.1, 0.9])) == 0.5
    assert best_threshold(np.zeros(4), np.array([0.2, 0.8, 0.1, 0.9])) == 0.5
    assert best_threshold(np.ones(2), np.array([0.4, 0.8])) == 0.2


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_an_interval_holds_its_rate(counts: tuple[int, int]) -> None:
    successes, trials = counts
    low, high = wilson_interval(successes, trials)
    assert 0 <= low <= successes / trials <= high <= 1


def test_class_scores_are_scikit_learns() -> None:
    from sklearn.metrics import precision_recall_fscore_support

    generator = np.random.default_rng(3)
    targets, predictions = generator.integers(0, 4, 200), generator.integers(0, 4, 200)
    confusion = confusion_matrix(targets, predictions, 4)
    assert confusion[2, 1] == ((targets == 2) & (predictions == 1)).sum()
    scores = class_scores(targets, predictions, ("a", "b", "c", "d"))
    expected = precision_recall_fscore_support(targets, predictions)
    found = np.array([(s.precision, s.recall, s.f1, s.support) for s in scores]).T
    np.testing.assert_allclose(found, expected)


def test_nothing_is_said_of_a_class_that_nobody_saw() -> None:
    seen, unseen = class_scores(*np.zeros((2, 5), int), ("seen", "unseen"))
    assert seen.f1 == 1
    assert math.isnan(unseen.precision)
    assert math.isnan(unseen.recall)


def test_calibration_by_hand() -> None:
    confidence = np.array([0.95, 0.95, 0.95, 0.95, 0.55, 0.55], dtype=np.float32)
    correct = np.array([True, True, True, False, True, False])
    calibration = calibration_of(confidence, correct)
    assert calibration.ece == pytest.approx(4 / 6 * (0.95 - 0.75) + 2 / 6 * (0.55 - 0.5), abs=1e-6)
    assert len(calibration.bins) == 15
    assert sum(each.count for each in calibration.bins) == 6
    assert [each.count for each in calibration.bins if each.count] == [2, 4]


def test_certainty_falls_into_the_last_bin() -> None:
    calibration = calibration_of(np.array([1.0, 1.0], dtype=np.float32), np.array([True, True]))
    assert calibration.bins[-1].count == 2
    assert calibration.ece == 0


def test_average_precision_is_scikit_learns_with_ties() -> None:
    from sklearn.metrics import average_precision_score

    generator = np.random.default_rng(5)
    for _ in range(20):
        relevant = generator.integers(0, 2, 30)
        scores = generator.integers(0, 6, 30) / 6  # many equal
        assert average_precision(relevant, scores) == pytest.approx(average_precision_score(relevant, scores))
    assert math.isnan(average_precision(np.zeros(3), np.arange(3.0)))


def test_many_classes_have_no_matrix(tmp_path: Path) -> None:
    """Of 21,841 classes it would have 3.8 GB: the pairs that occur are counted alone."""
    rng, classes = np.random.default_rng(0), 21_841
    targets = rng.integers(classes, size=2000)
    predictions = np.where(rng.random(2000) < 0.5, targets, (targets + 7) % classes)
    predictions[:30] = targets[:30] = 5
    predictions[:9] = 6
    found = ClassificationEvaluation(
        classes=tuple(map(str, range(classes))),
        indices=np.arange(2000),
        names=tuple(map(str, range(2000))),
        targets=targets,
        predictions=predictions,
        confidence=np.full(2000, 0.5),
        true_probability=np.full(2000, 0.5),
        in_top5=predictions == targets,
        failed={},
        seconds=1.0,
    )
    result = found.to_json()
    assert "confusion" not in result
    assert result["top_confusions"][0] == {"actual": "5", "predicted": "6", "count": 9}
    assert len(result["top_confusions"]) == 50
    assert "confusion" not in vars(found)
    save_confusion(tmp_path / "confusion.npz", found.targets, found.predictions, found.classes)
    with np.load(tmp_path / "confusion.npz") as arrays:
        assert arrays["count"].sum() == 2000
        same = arrays["actual"] == arrays["predicted"]
        assert arrays["count"][same].sum() == found.correct.sum()


def test_probabilities_that_are_not_numbers_give_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = calibration_of(np.array([np.nan, 0.5]), np.array([0, 1]))
        assert math.isnan(found.ece)
        never = precision_interval(np.zeros((3, 1)), np.array([[0.1], [0.2], [0.3]]))
        assert math.isnan(never.low)
        seldom = precision_interval(np.array([[0], [0], [1]]), np.array([[0.1], [0.2], [0.3]]))
        assert 0 < seldom.low <= seldom.high == 1
