"""Paired comparisons: against scipy, against exact counts, and on data whose answer is known."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import binomtest

from vitreous.evaluation.comparison import (
    common_examples,
    holm,
    mcnemar,
    paired_difference,
    sign_test,
)
from vitreous.evaluation.scores import ExampleScores


def scores(values: list[float], **more: bool) -> ExampleScores:
    return ExampleScores("accuracy", np.array(values, dtype=float), **more)


@pytest.mark.parametrize(
    ("better", "worse"), [(0, 0), (1, 0), (5, 5), (12, 3), (3, 12), (0, 20), (900, 1000)]
)
def test_mcnemar_is_the_exact_binomial_test(better: int, worse: int) -> None:
    count = better + worse
    tail = sum(math.comb(count, fewer) for fewer in range(min(better, worse) + 1))
    expected = min(float(Fraction(2 * tail, 2**count)), 1.0)
    assert mcnemar(better, worse) == pytest.approx(expected, rel=1e-9)


def test_many_images_do_not_overflow() -> None:
    assert mcnemar(5_000, 45_000) == pytest.approx(0, abs=1e-300)
    assert 0.6 < mcnemar(25_050, 24_950) < 0.7


def test_a_difference_with_its_interval() -> None:
    first = scores([1] * 80 + [0] * 20)
    second = scores([1] * 70 + [0] * 10 + [1] * 5 + [0] * 15)
    found = paired_difference(second, first)
    assert found.difference == pytest.approx(-0.05)
    assert (found.better, found.worse) == (5, 10)
    assert found.p_value == pytest.approx(binomtest(5, 15).pvalue)
    error = math.sqrt((15 - 25 / 100) / 100 / 100)
    assert found.interval.low == pytest.approx(-0.05 - 1.96 * error, abs=0.012)
    assert found.interval.high == pytest.approx(-0.05 + 1.96 * error, abs=0.012)


def test_numbers_are_compared_by_their_signs() -> None:
    rng = np.random.default_rng(1)
    errors = rng.random(200)
    same = paired_difference(scores(list(errors)), scores(list(rng.permutation(errors))))
    assert same.p_value > 0.05
    worse = paired_difference(scores(list(errors + rng.random(200))), scores(list(errors)))
    assert worse.p_value < 1e-3
    assert worse.interval.low < worse.difference < worse.interval.high
    assert worse.interval.low > 0.4
    # Three differences have 8 patterns of signs, 2 of which are as extreme.
    assert sign_test(np.array([1.0, 1.0, 1.0])) == pytest.approx(0.25, abs=0.02)
    assert sign_test(np.zeros(4)) == 1


def test_what_has_no_score_is_left_out() -> None:
    found = paired_difference(scores([1, math.nan, 0.5]), scores([0.5, 1, math.nan]))
    assert found.difference == 0.5


def test_adjusted_p_values() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.9]) == [0.9]
    assert holm([0.9, 0.6]) == [1.0, 1.0]


def test_examples_are_matched_by_name_and_occurrence() -> None:
    places = common_examples([["b", "a", "a", "c"], ["a", "x", "b", "a", "a"]])
    assert [each.tolist() for each in places] == [[0, 1, 2], [2, 0, 3]]
    assert [len(each) for each in common_examples([["a"], ["b"]])] == [0, 0]
