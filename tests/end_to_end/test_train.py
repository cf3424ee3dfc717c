"""`vitreous train` from the command line to the run directory."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from vitreous.cli import run as command
from vitreous.results import percent
from vitreous.tasks import task_named
from vitreous.training.run import RunDirectory

pytestmark = pytest.mark.usefixtures("quick_figures")

SMALL = [
    *("--set", "model.width=32", "--set", "model.depth=1", "--set", "model.heads=2"),
    *("--set", "model.mlp_dim=32", "--set", "model.stem.kind=patch", "--set", "model.patch_size=4"),
]


def call(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> dict[str, Any]:
    """The JSON of a command that succeeds."""
    capsys.readouterr()
    assert command([*map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Two classes, three forms of file, one of them broken."""
    random = np.random.default_rng(0)
    for shade, name in enumerate(("apple", "pear")):
        folder = tmp_path / "photos" / name
        folder.mkdir(parents=True)
        for number in range(12):
            pixels = random.integers(0, 80, (40, 60, 3), dtype=np.uint8)
            pixels[..., shade] += 150
            image = Image.fromarray(pixels)
            if number % 3 == 0:
                image.convert("P").save(folder / f"{number}.png")
            else:
                image.save(folder / f"{number}.jpg")
    (tmp_path / "photos" / "apple" / "torn.jpg").write_bytes(b"\xff\xd8 torn")
    return tmp_path / "photos"


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on the digits of one step."""
    out = tmp_path_factory.mktemp("base") / "run"
    assert command(["train", "--out", str(out), *SMALL, "--set", "training.length=1 steps"]) == 0
    return out


def test_digits_in_a_run_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    result = call(capsys, "train", "--out", out, "--epochs", "2", *SMALL)
    assert result["run"] == str(out)
    assert result["test_count"] == 360
    assert result["train_count"] == 1437
    low, high = result["test_accuracy_interval"]
    assert 0.15 < low < result["test_accuracy"] < high < 1
    assert result["seconds"] > 0
    assert 0 <= result["waiting"] <= 1
    assert {each["name"] for each in result["baselines"]} == {
        "SVM on pixels",
        "k nearest neighbors",
        "ridge on pixels",
        "majority class",
    }
    least = {"majority class": 0.0, "ridge on pixels": 0.9}
    assert all(each["accuracy"] > least.get(each["name"], 0.97) for each in result["baselines"])
    assert {path.name for path in out.iterdir() if not path.name.startswith("events.out.tfevents")} == {
        *("config.toml", "split.csv", "model", "checkpoints", "metrics.jsonl"),
        *("report.html", "learn.html", "README.md", "findings.json"),
    }
    assert any(path.name.startswith("events.out.tfevents") for path in out.iterdir())
    assert [row["epoch"] for row in RunDirectory.open(out).metrics()] == [1.0, 2.0]
    assert percent(result["test_accuracy"]) in (out / "README.md").read_text()


def test_config_toml_runs_again_and_gives_the_same_weights(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    options = ("--set", "training.length=3 steps", "--seed", "5")
    call(capsys, "train", "synthetic:60@16", "--out", first, *SMALL, *options)
    call(capsys, "train", "--out", second, "--config", first / "config.toml")
    assert tomllib.loads((first / "config.toml").read_text()) == tomllib.loads(
        (second / "config.toml").read_text()
    )
    mine, again = RunDirectory.open(first).model(), RunDirectory.open(second).model()
    for name, tensor in mine.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name]), name


def test_images_of_ones_own(photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    small = ["--set", "model.depth=1", "--batch-size", "8", "--image-size", "24"]
    result = call(capsys, "train", photos, "--out", out, "--epochs", "1", *small)
    assert result["classes"] == ["apple", "pear"]
    assert [Path(each["path"]).name for each in result["bad_files"]] == ["torn.jpg"]
    assert "torn.jpg" in (out / "bad_files.txt").read_text()
    config = RunDirectory.open(out).config
    assert config.source == str(photos.resolve())
    assert config.prepared.size == (24, 24)


def test_strict_makes_a_broken_image_an_error(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--set", "model.depth=1", "--batch-size", "8", "--image-size", "24", "--epochs", "1"]
    everything = ["--set", "data.test_fraction=0.0"]
    out = ["--out", str(photos.parent / "run")]
    assert command(["train", str(photos), "--strict", *arguments, *everything, *out]) == 2
    assert "torn.jpg" in capsys.readouterr().err


@pytest.mark.slow
def test_fine_tuning_keeps_the_encoder_and_replaces_the_head(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base, tuned = tmp_path / "base", tmp_path / "tuned"
    color = ["--set", "model.channels=3", "--set", "preprocessing.mean=[0.5,0.5,0.5]"]
    color += ["--set", "preprocessing.std=[0.5,0.5,0.5]"]
    call(capsys, "train", "--out", base, *SMALL, *color, "--set", "training.length=2 steps")
    frozen = [
        "--set",
        "training.freeze=['backbone']",
        "--set",
        "training.length=2 steps",
        "--batch-size",
        "8",
    ]
    call(capsys, "train", photos, "--init", base, "--out", tuned, *frozen)
    before, after = (
        RunDirectory.open(base).model().state_dict(),
        RunDirectory.open(tuned).model().state_dict(),
    )
    assert after["head.weight"].shape == (2, 32)
    assert all(torch.equal(before[name], after[name]) for name in before if not name.startswith("head"))
    assert after["head.weight"].abs().max() > 0


@pytest.mark.slow
def test_fine_tuning_at_a_higher_resolution(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tuned = tmp_path / "tuned"
    call(
        capsys,
        "train",
        "--init",
        base,
        "--image-size",
        "16",
        "--out",
        tuned,
        "--set",
        "training.length=1 steps",
    )
    model = RunDirectory.open(tuned).model()
    assert model.config.image_size == model.preprocessing.size == (16, 16)
    assert RunDirectory.open(tuned).config.init == str(base)


@pytest.mark.slow
def test_an_interrupted_run_goes_on_to_the_same_weights(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    arguments = [*SMALL, "--set", "training.length=3000 steps", "--set", "training.records.log_every=4"]
    call(capsys, "train", "--out", whole, *arguments)
    process = subprocess.Popen(
        [sys.executable, "-m", "vitreous", "train", "--out", str(stopped), *arguments],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())},
    )
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("step"):
            break
    process.send_signal(signal.SIGINT)
    rest = process.stderr.read()
    assert process.wait() == 130
    assert f"resume with vitreous train --resume {stopped}" in rest
    assert "Traceback" not in rest
    assert not (stopped / "report.html").exists()
    result = call(capsys, "train", "--resume", stopped)
    assert result["run"] == str(stopped)
    mine, again = RunDirectory.open(whole).model(), RunDirectory.open(stopped).model()
    for name, tensor in mine.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name]), name
    steps = [row["step"] for row in RunDirectory.open(stopped).metrics()]
    assert steps == [row["step"] for row in RunDirectory.open(whole).metrics()]


def test_a_loss_that_is_not_finite_is_one_sentence_and_keeps_a_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    broken = ["--set", "preprocessing.std=[1e-300]", "--set", "training.length=2 epochs"]
    assert command(["train", "--out", str(out), *SMALL, *broken]) == 2
    said = capsys.readouterr().err
    assert "not finite since step 1" in said
    assert "Traceback" not in said
    assert all(
        torch.isfinite(tensor).all() for tensor in RunDirectory.open(out).model().state_dict().values()
    )


def test_resume_takes_no_other_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["train", "--resume", str(tmp_path), "--seed", "1"]) == 2
    assert "own configuration" in capsys.readouterr().err


@pytest.mark.slow
def test_a_failed_start_leaves_its_place_to_the_corrected_command(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    begun = ["train", "--init", str(base), "--out", str(out), "--set", "training.length=1 steps"]
    wrong = "model.width=64", "training.freeze=stam", "training.distillation.teacher=nowhere"
    for setting in wrong:
        assert command([*begun, "--set", setting]) == 2
        assert not out.exists()
    call(capsys, *begun)
    for setting in wrong:
        assert command([*begun, "--set", setting]) == 2
        assert "already exists" in capsys.readouterr().err
    assert (out / "model").exists()


def test_a_run_that_goes_on_is_never_removed(tmp_path: Path) -> None:
    out = tmp_path / "out"
    config = task_named("classification").plan("digits", {}).config
    RunDirectory.create(out, config.model_copy(update={"init": str(tmp_path / "gone")}))
    assert command(["train", "--resume", str(out)]) == 2
    assert (out / "config.toml").exists()


@pytest.mark.slow
def test_the_card_quotes_a_path_with_spaces(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "my runs"
    call(capsys, "train", "--out", out, *SMALL, "--set", "training.length=1 steps")
    lines = (out / "README.md").read_text().splitlines()
    used = [shlex.split(line) for line in lines if line.startswith(("vitreous predict", "vitreous evaluate"))]
    assert [words[2] for words in used] == [str(out)] * 2
