"""`train --dry-run` and `pretrain --dry-run`: what a training would be, without it."""

import json
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from sklearn.datasets import load_digits

import vitreous as vt
from vitreous.cli import run
from vitreous.tasks.forecast import Forecast


def test_a_dry_run_has_the_steps_and_parts_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick_figures: None
) -> None:
    monkeypatch.chdir(tmp_path)
    options: Any = {"batch_size": 256, "epochs": 1, "progress": False, "settings": {"model.depth": 1}}
    digits = load_digits()
    data = (15 * digits.images[:500]).astype(np.uint8), [str(label) for label in digits.target[:500]]
    found = cast(Forecast, vt.train(data, dry_run=True, **options))
    assert list(tmp_path.iterdir()) == []
    result = vt.train(data, **options).result
    assert result
    assert found.steps == vt.Run(result.run.path).metrics[-1]["step"]
    assert found.parts["train"] == result.train_count
    assert found.parameters == result.parameters
    assert found.batch_size == 256
    assert 0 < found.step_seconds <= found.seconds
    assert found.parameters * 16 < found.memory < 2**31


@pytest.mark.parametrize("command", ["train", "pretrain"])
def test_the_command_prints_a_dry_run(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = [command, "digits", "--dry-run", "--epochs", "2", "--set", "model.depth=1"]
    assert run([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["epochs"] == 2
    assert run(words) == 0
    text = capsys.readouterr().out
    assert f"steps: {found['steps']:,} of {found['batch_size']}" in text
    assert "nothing was trained or written" in text
    if command == "train":
        assert "images: decode | " in text
        assert " || normalize | affine" in text
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_of_a_time_has_the_steps_of_that_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = cast(Forecast, vt.train("digits", dry_run=True, minutes=1, settings={"model.depth": 1}))
    assert found.seconds == 60
    assert found.steps == max(int(60 / (found.step_seconds + found.reading_seconds)), 1)


def test_a_run_that_is_resumed_has_no_dry_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", "--resume", str(tmp_path), "--dry-run"]) == 2
    assert "--resume continues with the run" in capsys.readouterr().err
