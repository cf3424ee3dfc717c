"""--precision means the same in every command that asks a model."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .conftest import Outcome

Command = Callable[..., Outcome]


def answers(command: Command, *arguments: str) -> dict[str, Any]:
    outcome = command(*arguments, "--json", "--device", "cpu")
    assert outcome.code == 0, outcome.err
    result: dict[str, Any] = json.loads(outcome.out)
    return result


def test_predict_in_bf16_gives_nearly_the_same_probabilities(command: Command) -> None:
    full, half = (
        answers(command, "predict", "runs/mine", "photos", "--precision", p) for p in ("fp32", "bf16")
    )
    differences = [
        abs(one["top"][0]["probability"] - other["probability"])
        for one, two in zip(full["predictions"], half["predictions"], strict=True)
        for other in two["top"]
        if other["label"] == one["label"]
    ]
    assert len(differences) == len(full["predictions"]) > 0
    assert 0 < max(differences) < 0.02


def test_evaluate_in_bf16_agrees(command: Command) -> None:
    full, half = (answers(command, "evaluate", "runs/mine", "--precision", p) for p in ("fp32", "bf16"))
    assert half["test_accuracy"] == pytest.approx(full["test_accuracy"], abs=0.01)
    assert half["calibration"]["ece"] != full["calibration"]["ece"]


@pytest.mark.slow
def test_probe_in_bf16_agrees_and_is_kept_apart(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VITREOUS_CACHE", str(tmp_path))
    full, half = (
        answers(command, "probe", "runs/mine", "digits", "--shots", "1", "--precision", p)
        for p in ("fp32", "bf16")
    )
    assert half["knn"] == pytest.approx(full["knn"], abs=0.03)
    # Of the model, of raw pixels and of the untrained encoder: train and test, in either precision.
    assert len(list((tmp_path / "features").iterdir())) == 12


@pytest.mark.parametrize("words", [("predict", "runs/mine", "photo.jpg"), ("evaluate", "runs/mine")])
def test_a_precision_that_is_none(command: Command, words: tuple[str, ...]) -> None:
    outcome = command(*words, "--precision", "fp8", "--device", "cpu")
    assert outcome.code == 2
    assert "--precision fp8 is not available for inference: use auto, fp32 or bf16" in outcome.err
