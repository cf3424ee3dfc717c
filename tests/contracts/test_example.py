"""The task that CONTRIBUTING shows as an example: one file, and every command works with it."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from vitreous.extensions import TASKS

FILE = Path(__file__).parents[2] / "examples" / "ordinal.py"


@pytest.fixture
def ordinal() -> Iterator[None]:
    """The example, imported as its program does it."""
    spec = importlib.util.spec_from_file_location("ordinal", FILE)
    assert spec is not None
    assert spec.loader is not None
    sys.modules["ordinal"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules["ordinal"])
    yield
    del TASKS["ordinal"], sys.modules["ordinal"]


def test_the_example_is_short() -> None:
    assert len(FILE.read_text("utf-8").splitlines()) < 200


@pytest.mark.slow
@pytest.mark.usefixtures("ordinal")
def test_grades_are_learned_and_answered(
    photos: Path, tmp_path: Path, vitreous: Callable[..., dict[str, Any]]
) -> None:
    small = (
        "--image-size",
        "16",
        "--set",
        "model.patch_size=8",
        "--set",
        "model.stem.kind=patch",
        "--init",
        "none",
    )
    small += ("--set", "training.length=2 steps", "--set", "model.width=16", "--set", "model.depth=1")
    small += ("--set", "model.heads=2", "--set", "model.mlp_dim=16", "--set", "training.batch_size=8")
    run = tmp_path / "run"
    found = vitreous(
        "train", photos / "grades.csv", "--task", "ordinal", "--out", run, *small, "--language", "ko"
    )
    assert found["task"] == "ordinal"
    assert next(iter(found["metrics"])) == "mean_distance"
    assert "mean distance to the true grade" in (run / "report.html").read_text("utf-8")
    evaluated = vitreous("evaluate", run)["metrics"]["mean_distance"]
    low, high = evaluated["interval"]
    assert 0 <= low <= evaluated["value"] <= high <= 3
    assert vitreous("export", run, "--out", tmp_path / "grades.onnx")["max_abs_difference"] <= 1e-4
    image = photos / "photos" / "dark" / "0.png"
    for model in (run, tmp_path / "grades.onnx"):
        (answer,) = vitreous("predict", model, image)["predictions"]
        assert answer["label"] in {"0", "1", "2", "3"}
    assert vitreous("inspect", run, "--out", tmp_path / "seen")
