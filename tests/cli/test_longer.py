"""`--resume RUN --epochs N`: a run that goes on for longer than it was planned, whatever it learns."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from vitreous.training.callbacks import read_metrics

SMALL = ("model.width=16", "model.depth=1", "model.heads=2", "model.mlp_dim=16")
TRANSLATOR = (*SMALL, "model.encoder_depth=1", "training.records.log_every=2")
COMMANDS = {
    "classes": (("train", "digits", "--epochs", "1"), SMALL),
    "segmentation": (("train", "--task", "segmentation", "--epochs", "0.1"), ("model.depth=1",)),
    "pretrain": (("pretrain", "digits", "--epochs", "1"), SMALL),
    "translate": (("translate", "train", "--steps", "2", "--beams", "1"), TRANSLATOR),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_a_finished_run_goes_on(name: str, command: Callable[..., object], workplace: Path) -> None:
    arguments, settings = COMMANDS[name]
    run = workplace / "runs" / f"longer-{name}"
    begun = command(*arguments, "--out", run, *(part for each in settings for part in ("--set", each)))
    assert begun.code == 0, begun.err
    first = read_metrics(run / "metrics.jsonl")[-1]
    translating = name == "translate"
    again = ("translate", "train") if translating else ("pretrain",) if name == "pretrain" else ("train",)
    length = ("--steps", "5") if translating else ("--epochs", f"{2 * first['epoch']:g}")
    done = command(*again, "--resume", run, *length, "--json")
    assert done.code == 0, done.err
    assert f"schedule: from step {first['step']} on the learning rate follows the curve" in done.err
    json.loads(done.out)
    last = read_metrics(run / "metrics.jsonl")[-1]
    assert last["step"] == (5 if translating else pytest.approx(2 * first["step"], abs=1))
    training = tomllib.loads((run / "config.toml").read_text())["training"]
    assert training["length"] == ("5 steps" if translating else f"{length[1]} epochs")
    refused = command(*again, "--resume", run, *length)
    assert refused.code == 2
    assert f"{run} is already at step {last['step']}" in refused.err


def test_other_settings_stay_those_of_the_run(command: Callable[..., object]) -> None:
    for options in (
        ("--seed", "3"),
        ("--batch-size", "8"),
        ("--set", "training.length=9 epochs"),
    ):
        done = command("train", "--resume", "runs/mine", *options)
        assert (done.code, "give no other settings" in done.err) == (2, True), options
