"""A run is compared with classical methods, and says so where it is below them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from vitreous.cli import run as vitreous
from vitreous.tasks.doctor import below_baseline

TINY = ["--set", "model.width=16", "--set", "model.depth=1", "--set", "model.heads=1"]
TINY += ["--set", "model.mlp_dim=16", "--set", "model.stem.widths=[8,8,8,8,8,8]", "--init", "none"]


def photos(folder: Path) -> Path:
    """Two classes of stripes, which an SVM tells apart and a model after one step does not."""
    rng = np.random.default_rng(0)
    for label, shape in (("across", (64, 1, 1)), ("down", (1, 64, 1))):
        (folder / label).mkdir(parents=True)
        for number in range(24):
            wave = (np.arange(64) // 8 % 2 * 150).reshape(shape)
            pixels = np.broadcast_to(wave, (64, 64, 3)) + rng.integers(0, 80, (64, 64, 3))
            Image.fromarray(pixels.astype(np.uint8)).save(folder / label / f"{number}.png")
    return folder


def test_a_run_below_its_baseline_says_so_everywhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, run = photos(tmp_path / "photos"), tmp_path / "run"
    options = ["--epochs", "0.1", "--set", "training.peak_lr=1e-9", "--out", str(run)]
    assert vitreous(["train", str(data), *options, *TINY, "--json"]) == 0
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    found = {each["name"]: each["accuracy"] for each in result["baselines"]}
    assert set(found) == {"SVM on HOG and color", "k nearest neighbors", "majority class"}
    assert found["SVM on HOG and color"] == 1.0
    assert result["test_accuracy"] < 1.0
    assert "below baseline" in {each["kind"] for each in result["findings"]}
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "SVM on HOG and color has 100.0 %" in page.replace("\n", " ")
    vitreous(["doctor", str(run)])
    assert "SVM on HOG and color has 100.0 %" in capsys.readouterr().out.replace("\n", " ")


def test_a_model_as_good_as_its_baseline_is_not_below_it() -> None:
    best = {"name": "SVM on pixels", "accuracy": 0.9, "interval": [0.8, 0.95]}
    assert not list(below_baseline(0.9, [best]))
    assert [each.kind for each in below_baseline(0.89, [best])] == ["below baseline"]
