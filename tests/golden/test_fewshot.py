"""The closed-form few-shot probe is big_vision's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from vitreous.evaluation.features import Features
from vitreous.evaluation.probes import draw_order, fewshot, ridge_scores

CLASSES = 5
SHOTS = (1, 2, 5, 10)
PENALTIES = (1.0, 1024.0, 0.03125)
SEEDS = (0, 1, 2)


@pytest.fixture(scope="module")
def case(golden: Any) -> Any:
    return golden("bigvision_fewshot_lsr")


@pytest.fixture(scope="module")
def parts(case: Any) -> tuple[Features, Features]:
    train, test = (
        Features(case.array(f"{part}_x").numpy(), case.array(f"{part}_y").numpy().astype(np.int64))
        for part in ("train", "test")
    )
    return train, test


@pytest.mark.parametrize("shots", SHOTS)
def test_the_same_images_are_drawn(case: Any, parts: tuple[Features, Features], shots: int) -> None:
    train, _ = parts
    rows = np.concatenate([indices[:shots] for indices in draw_order(train.targets, CLASSES, seed=0)])
    assert rows.tolist() == case.expected[f"idx_shots{shots}"].tolist()


@pytest.mark.parametrize("shots", SHOTS)
@pytest.mark.parametrize("penalty", PENALTIES)
def test_scores_are_those_of_an_exact_solution(
    case: Any, parts: tuple[Features, Features], shots: int, penalty: float
) -> None:
    train, test = parts
    rows = np.concatenate([indices[:shots] for indices in draw_order(train.targets, CLASSES, seed=0)])
    scores = ridge_scores(train.values[rows], train.targets[rows], test.values, CLASSES, penalty)
    np.testing.assert_allclose(scores, case.expected[f"scores64_shots{shots}_l2{penalty:g}"], atol=2e-5)


@pytest.mark.parametrize("penalty", PENALTIES)
def test_accuracies_are_the_peers(case: Any, parts: tuple[Features, Features], penalty: float) -> None:
    train, test = parts
    expected = case.expected["accuracy"][:, PENALTIES.index(penalty)].numpy()
    for seed in SEEDS:
        order = draw_order(train.targets, CLASSES, seed)
        for column, shots in enumerate(SHOTS):
            rows = np.concatenate([indices[:shots] for indices in order])
            scores = ridge_scores(train.values[rows], train.targets[rows], test.values, CLASSES, penalty)
            # With hardly any penalty the peer's float32 errs by a few of the 200 images; ours is float64.
            tolerance = 1e-6 if penalty >= 1 else 0.0251
            accuracy = (scores.argmax(axis=1) == test.targets).mean()
            assert accuracy == pytest.approx(expected[seed, column], abs=tolerance)


def test_the_probe_averages_them(case: Any, parts: tuple[Features, Features]) -> None:
    train, test = parts
    results = fewshot(train, test, classes=CLASSES, shots=SHOTS, seeds=SEEDS)
    expected = case.expected["accuracy"][:, 1].numpy().mean(axis=0)
    assert [results[number].mean for number in SHOTS] == pytest.approx(expected.tolist(), abs=1e-6)
