"""Runs side by side: which examples are compared, and what is said about them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from answered import answered
from vitreous.evaluation.classification import ClassificationEvaluation, MultiLabelEvaluation
from vitreous.evaluation.comparison import ComparedRun, Comparison, compare_runs
from vitreous.evaluation.result import Evaluation
from vitreous.tasks.regression import RegressionEvaluation

CLASSES = ("cat", "dog", "owl")


def classified(names: list[str], said: list[int], classes: tuple[str, ...] = CLASSES) -> Evaluation:
    """What is true follows from the name."""
    targets = np.array([classes.index(CLASSES[int(name) % 3]) for name in names])
    return ClassificationEvaluation(
        names=names,
        indices=np.arange(len(names)),
        classes=classes,
        **answered(0.1 + 0.7 * np.eye(3)[said], targets),
        failed={},
        seconds=1.0,
    )


def run(name: str, evaluation: Evaluation | None, **settings: object) -> ComparedRun:
    rows = [{"step": 5, "epoch": 1.0, "loss": 2.0, "seconds": 3.0}]
    return ComparedRun(name, Path(name), 1000, rows, {"seed": 0, **settings}, evaluation)


def numbers(count: int, start: int = 0) -> list[str]:
    return [str(number) for number in range(start, start + count)]


def test_the_same_examples() -> None:
    right = [number % 3 for number in range(30)]
    worse = [(number + (number < 9)) % 3 for number in range(30)]
    found = compare_runs(
        "classification",
        [run("a", classified(numbers(30), right)), run("b", classified(numbers(30), worse), seed=1)],
    )
    assert found.count == 30
    assert found.notes() == ["All runs are compared on the same 30 held-out examples."]
    assert found.differences[0].difference == -0.3
    assert found.verdicts()[0].startswith("b is worse than a: accuracy −30.0 points")
    assert "0 examples are right only in b, 9 only in a" in found.verdicts()[0]
    assert found.settings == {"seed": [0, 1]}
    assert sorted(found.differing.tolist()) == list(range(9))
    assert {label: row[1] for label, row in found.by_class.items()} == {"cat": 0.7, "dog": 0.7, "owl": 0.7}
    written = found.to_json()
    assert written["differing"][0] == {"name": "0", "true": "cat", "answers": ["cat", "dog"]}
    assert written["differences"][0]["worse"] == 9
    assert written["runs"][1]["held_out"]["accuracy"]["value"] == 0.7


def test_only_what_all_have_held_out_is_compared() -> None:
    first, second = numbers(20), numbers(20, start=12)
    found = compare_runs(
        "classification",
        [
            run("a", classified(first, [int(name) % 3 for name in first])),
            run("b", classified(second, [0] * 20)),
        ],
    )
    assert found.count == 8
    assert found.common[0].names == found.common[1].names == first[12:]
    assert "The held-out sets differ (a: 20, b: 20)" in found.notes()[0]
    assert "on the 8 examples" in found.notes()[0]
    # b is right on the class of number 0 alone: 3 of 12 ... 19.
    assert found.table()[1]["accuracy"] == 3 / 8


def test_nothing_in_common_is_not_compared() -> None:
    found = compare_runs(
        "classification",
        [run("a", classified(["0"], [0])), run("b", classified(["1"], [1]))],
    )
    assert "no held-out examples in common" in found.notes()[0]
    assert (found.count, found.differences, found.verdicts()) == (0, [], [])
    assert found.to_json()["differing"] == []


def test_classes_are_matched_by_name_and_other_labels_left_out() -> None:
    turned = ("owl", "dog", "cat")
    names = numbers(9)
    same = [turned.index(CLASSES[int(name) % 3]) for name in names]
    first, second = classified(names, [int(name) % 3 for name in names]), classified(names, same, turned)
    found = compare_runs("classification", [run("a", first), run("b", second)])
    assert (found.count, len(found.differing)) == (9, 0)
    assert found.verdicts()[0].startswith("b and a do not differ significantly on these examples")
    second.targets[4] = (second.targets[4] + 1) % 3
    relabeled = compare_runs("classification", [run("a", first), run("b", second)])
    assert (relabeled.count, relabeled.relabeled) == (8, 1)
    assert "1 examples are left out" in relabeled.notes()[1]


def test_a_number_that_one_run_does_not_have_is_a_dash() -> None:
    """A calibrated model beside one that is not."""
    names, said = numbers(9), [number % 3 for number in range(9)]
    calibrated = replace(classified(names, said), uncalibrated_error=0.25)
    plain = classified(names, said)
    for first, second in ((calibrated, plain), (plain, calibrated)):
        found = compare_runs("classification", [run("a", first), run("b", second)])
        line = next(line for line in found.lines() if line[0].startswith("calibration error before"))
        assert sorted(line[1:]) == ["25.0%", "–"]


def test_several_runs_have_adjusted_p_values() -> None:
    right = [number % 3 for number in range(30)]
    worse = [(number + (number < 6)) % 3 for number in range(30)]
    runs = [
        run(name, classified(numbers(30), said))
        for name, said in zip("abc", (right, worse, right), strict=True)
    ]
    found = compare_runs("classification", runs)
    assert found.p_values == [2 * found.differences[0].p_value, 1.0]
    assert len(found.lines()[0]) == 4
    assert [row["difference"] for row in found.table()] == [0.0, pytest.approx(-0.2), 0.0]


def test_lower_errors_are_better() -> None:
    truth = np.linspace(0, 1, 40)

    def off(by: float) -> Evaluation:
        noise = by * np.random.default_rng(0).random(40)
        return RegressionEvaluation(
            names=numbers(40),
            indices=np.arange(40),
            targets=truth,
            predictions=truth + noise,
            failed={},
            seconds=1.0,
        )

    found = compare_runs("regression", [run("a", off(0.5)), run("b", off(0.1))])
    assert found.verdicts()[0].startswith("b is better than a: absolute error -0.")
    assert found.by_class == {}


def test_several_labels() -> None:
    targets = np.eye(3, dtype=np.float32)[np.arange(12) % 3]

    def ranked(probabilities: np.ndarray) -> Evaluation:
        return MultiLabelEvaluation(
            names=numbers(12),
            indices=np.arange(12),
            classes=CLASSES,
            targets=targets,
            probabilities=probabilities,
            failed={},
            seconds=1.0,
        )

    found = compare_runs("multilabel", [run("a", ranked(targets * 0.8 + 0.1)), run("b", ranked(1 - targets))])
    assert found.differences[0].difference < -0.5
    assert found.example(0) == {"name": "0", "true": "cat", "answers": ["cat", "dog, owl"]}
    assert found.common[0].without_learning == ("prevalence", {"chance": 1 / 3})


def test_runs_without_answers_have_curves_and_settings_alone() -> None:
    found = compare_runs("mae", [run("a", None), run("b", None, depth=2)])
    assert isinstance(found, Comparison)
    assert "without labels" in found.notes()[0]
    assert found.settings == {"depth": [None, 2]}
    assert found.to_json()["runs"][0]["loss"] == 2.0
