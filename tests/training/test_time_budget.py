"""As many steps as fit into a time."""

from __future__ import annotations

import pytest
import torch

from vitreous.cli import run as vitreous
from vitreous.tasks import running, task_named
from vitreous.training.distributed import World
from vitreous.training.run import Run

TINY = [
    "--recipe",
    "from-scratch",
    "--set",
    "model.depth=1",
    "--set",
    "model.width=16",
    "--set",
    "model.heads=2",
]
CPU = torch.device("cpu")


def test_a_time_becomes_steps_of_the_measured_length(tmp_path, monkeypatch):
    monkeypatch.setattr(running, "step_seconds", lambda *_: 0.25)
    settings = {"training": {"batch_size": 8}}
    started = running.start_run(
        "classification", "synthetic:64@32", settings, out=tmp_path / "run", device=CPU, minutes=2.0
    )
    assert started.run.config.training.total_steps(steps_per_epoch=8) == 480


def test_a_step_is_measured_without_touching_the_run():
    settings = {"training": {"batch_size": 8}, "model": {"image_size": 32, "patch_size": 4, "depth": 1}}
    # Fewer images than the steps that are timed take.
    planned = task_named("classification").plan("synthetic:16@32", settings)
    seconds = running.step_seconds(task_named("classification"), planned.config, planned.data, CPU, World())
    assert 0 < seconds < 60


def test_the_command_writes_the_steps_into_the_run(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(running, "step_seconds", lambda *_: 0.3)
    out = tmp_path / "run"
    code = vitreous(
        ["train", "synthetic:32@32", *TINY, "--batch-size", "8", "--minutes", "0.01", "--out", str(out)]
    )
    assert code == 0
    assert Run.open(out).config.training.steps == 2
    assert Run.open(out).metrics()[-1]["step"] == 2
    assert "2 steps, measured to take 0.01 minutes" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--minutes", "0"], "leaves no time to train"),
        (["--minutes", "1", "--epochs", "2"], "give one of them"),
    ],
)
def test_a_time_that_does_not_do_is_one_sentence(options, words, capsys):
    assert vitreous(["train", "digits", *options]) == 2
    assert words in capsys.readouterr().err


def test_a_slow_process_finds_the_directory_that_the_first_one_has_made(tmp_path, monkeypatch):
    path = tmp_path / "run"
    path.mkdir()
    (path / "config.toml").write_text("")
    monkeypatch.setattr(Run, "shared", staticmethod(lambda path, config, *_, **__: Run(path, config)))
    second = World(rank=1, size=2)
    started = running.start_run("classification", "synthetic:16@16", {}, out=path, device=CPU, world=second)
    assert started.run.path == path
