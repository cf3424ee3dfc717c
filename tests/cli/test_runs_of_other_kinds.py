"""Runs that a command has no use for: pre-trained ones without classes, stopped ones without a model."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import vitreous as vt
from vitreous.models.vit import ViT
from vitreous.tasks.pretraining.rules import MAERunConfig
from vitreous.training.run import RunDirectory

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module", autouse=True)
def _runs(workplace: Path) -> None:
    """runs/pre: a pre-training run. runs/stopped: one that has a saved state and no model."""
    mine = RunDirectory.open(workplace / "runs" / "mine").config
    encoder = mine.model.model_copy(update={"num_classes": None})
    run = RunDirectory.create(
        workplace / "runs" / "pre",
        MAERunConfig(source="photos", model=encoder, preprocessing=mine.prepared),
    )
    run.save_model(ViT(encoder, preprocessing=mine.prepared))  # type: ignore[arg-type]
    stopped = workplace / "runs" / "stopped"
    shutil.copytree(workplace / "runs" / "mine", stopped)
    shutil.rmtree(stopped / "model")
    (stopped / "checkpoints").mkdir()
    (stopped / "checkpoints" / "step-000000065.json").write_text(json.dumps({"sha256": {}}))


@pytest.mark.parametrize(
    "words",
    [
        ("evaluate", "RUN"),
        ("evaluate", "RUN", "photos"),
        ("predict", "RUN", "photo.jpg"),
        ("serve", "RUN", "--port", "0"),
        ("train", "--resume", "RUN"),
    ],
)
def test_a_pre_training_run_says_what_it_is(words: tuple[str, ...], command: Call) -> None:
    code, out, err = command(*("runs/pre" if word == "RUN" else word for word in words))
    assert (code, out) == (2, "")
    assert err == (
        "vitreous: runs/pre is a pre-training run and has no classes: use vitreous probe, inspect or train "
        "--init; resume it with vitreous pretrain --resume runs/pre\n"
    )


def test_a_pre_training_run_is_probed_on_what_it_was_trained_on(command: Call) -> None:
    code, out, err = command("probe", "runs/pre", "--shots", "1", "--draws", "1", "--json")
    assert code == 0, err
    assert json.loads(out)["data"] == "photos"


def test_pre_training_does_not_go_on_with_a_classifier(command: Call) -> None:
    code, _, err = command("pretrain", "--resume", "runs/mine")
    assert code == 2
    assert "runs/mine is not a pre-training run: resume it with vitreous train --resume runs/mine" in err


@pytest.mark.parametrize(
    "words",
    [
        ("predict", "RUN", "photo.jpg"),
        ("inspect", "RUN"),
        ("describe", "RUN"),
        ("evaluate", "RUN"),
        ("serve", "RUN", "--port", "0"),
        ("probe", "RUN"),
        ("export", "RUN"),
        ("convert", "RUN", "copy"),
        ("train", "photos", "--init", "RUN"),
    ],
)
def test_a_stopped_run_says_how_it_goes_on(words: tuple[str, ...], command: Call) -> None:
    code, out, err = command(*("runs/stopped" if word == "RUN" else word for word in words))
    assert (code, out) == (2, "")
    assert err == (
        "vitreous: runs/stopped was stopped at step 65 and has no model yet: resume it with vitreous train "
        "--resume runs/stopped\n"
    )


def test_python_says_the_same_of_a_stopped_run(workplace: Path) -> None:
    with pytest.raises(
        vt.InputError, match="was stopped at step 65 and has no model yet: resume it with vitreous"
    ):
        vt.load(workplace / "runs" / "stopped")
