"""Files that version 0.1 wrote open, answer as they did, and can be trained on.

0.1/ was written by that version: runs of four kinds on photos/ (two classes of 16 x 16 pixels), shards/ of
the same images, and in outputs.json what each model gave for the first two images below.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import vitreous as vt

pytestmark = pytest.mark.usefixtures("quick_figures")

SAMPLES = Path(__file__).parent / "0.1"
IMAGES = ("photos/cat/cat1.png", "photos/dog/dog2.png")
OUTPUTS: dict[str, list[list[float]]] = json.loads((SAMPLES / "outputs.json").read_text(encoding="utf-8"))


@pytest.fixture
def samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the samples, as the current folder."""
    shutil.copytree(SAMPLES, tmp_path / "samples")
    monkeypatch.chdir(tmp_path / "samples")
    return tmp_path / "samples"


@pytest.mark.parametrize("kind", OUTPUTS)
def test_models_give_what_they_gave(kind: str) -> None:
    model = vt.load(SAMPLES / "runs" / kind)
    images = np.stack([np.asarray(Image.open(SAMPLES / image)) for image in IMAGES])
    prepared = model.preprocessing(torch.from_numpy(images).permute(0, 3, 1, 2))
    with torch.no_grad():
        given = model.features(prepared) if kind == "pretrain" else model(prepared)
    torch.testing.assert_close(given, torch.tensor(OUTPUTS[kind]), atol=2e-5, rtol=0)


def test_a_run_is_evaluated_and_predicts(samples: Path) -> None:
    evaluation = vt.evaluate(samples / "runs" / "classification", progress=False)
    assert (evaluation.metrics["accuracy"].value, evaluation.count) == (1.0, 7)
    predictions = vt.predict(samples / "runs" / "classification", list(IMAGES), progress=False)
    assert [each.label for each in predictions] == ["cat", "dog"]
    values = vt.predict(samples / "runs" / "regression", list(IMAGES), progress=False)
    assert [each.value for each in values] == pytest.approx(
        [row[0] for row in OUTPUTS["regression"]], abs=1e-4
    )


def test_a_run_is_resumed_with_the_split_that_it_had(samples: Path) -> None:
    split = (samples / "runs" / "classification" / "split.csv").read_text(encoding="utf-8")
    run = vt.Run(samples / "runs" / "classification").resume(epochs=3, progress=False)
    assert run.metrics[-1]["step"] == 12  # 8 steps were made
    assert (samples / "runs" / "classification" / "split.csv").read_text(encoding="utf-8") == split


def test_shards_and_encoders_begin_a_training(samples: Path) -> None:
    run = vt.train("shards", init="runs/pretrain", epochs=1, out="runs/new", progress=False)
    assert run.evaluation is not None
    assert run.model.config.width == 24
