"""`vitreous convert`: what it prints, what it leaves, how it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import vitreous as vt
from vitreous.cli import run

GOLDEN = Path(__file__).parents[1] / "golden" / "data"


def test_there_and_back(tiny: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = tiny(mlp="gelu_tanh")
    vt.save(model, tmp_path / "mine")
    steps = [
        ("mine", "a.npz", []),
        ("a.npz", "b", ["--format", "timm"]),
        ("b", "c", ["--format", "vitreous"]),
    ]
    for source, target, options in steps:
        assert run(["convert", str(tmp_path / source), str(tmp_path / target), *options, "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert told["path"] == str(tmp_path / target)
        assert told["max_abs_difference"] < 2e-5
    images = torch.randn(1, 3, 32, 32)
    torch.testing.assert_close(vt.load(tmp_path / "c")(images), model(images), atol=1e-5, rtol=1e-5)


def test_what_is_left_out_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = str(GOLDEN / "google_vit_i21k" / "weights.npz"), str(tmp_path / "m")
    assert run(["convert", source, target, "--format", "timm"]) == 2
    refusal = capsys.readouterr().err.strip().splitlines()[-1]
    assert refusal.startswith("vitreous: timm cannot hold representation=24")
    assert "--drop representation" in refusal
    assert not list(tmp_path.iterdir())
    assert run(["convert", source, target, "--format", "timm", "--drop", "representation"]) == 0
    captured = capsys.readouterr()
    assert "largest difference" in captured.out
    assert "left out: representation" in captured.err


def test_what_the_file_does_not_tell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = str(GOLDEN / "torchvision_vit" / "model.pth"), str(tmp_path / "m")
    assert run(["convert", source, target]) == 2
    assert "pass heads=" in capsys.readouterr().err
    assert run(["convert", source, target, "--set", "model.heads=4", "--image-size", "48x32"]) == 0
    assert vt.load(target).config.grid == (6, 4)
    assert run(["convert", source, target, "--set", "heads=4"]) == 2
    assert "write --set model.heads" in capsys.readouterr().err
