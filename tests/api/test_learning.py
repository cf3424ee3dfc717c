"""`train`, `evaluate`, `predict` and `pretrain` from Python, on data in memory; the run that they return."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import vitreous as vt

TINY = {"model": {"width": 16, "depth": 1, "heads": 2, "mlp_dim": 16}, "training.batch_size": 8}


@pytest.fixture
def run(pixels: NDArray[np.uint8], labels: list[str]) -> vt.Run:
    """Two epochs on 20 images in memory."""
    return vt.train(
        (pixels, labels), epochs=2, image_size=16, out="run", settings=TINY, seed=0, progress=False
    )


def test_a_run_has_model_metrics_report_and_evaluation(run: vt.Run, pixels: NDArray[np.uint8]) -> None:
    assert run.task == "classification"
    assert run.model.labels == ["bright", "dark"]
    assert run.metrics[-1]["epoch"] == 2
    assert run.report is not None
    assert run.evaluation is not None
    assert run.to_json()["test_count"] == run.evaluation.count >= 2
    assert "step" in run._repr_html_()
    again = vt.evaluate(vt.Run("run"), progress=False)
    assert copy.deepcopy(again).accuracy == again.metrics["accuracy"].value
    assert again.metrics["accuracy"].value == run.evaluation.metrics["accuracy"].value
    assert again.table()[0]["metric"] == "accuracy"
    answers = vt.predict(run, pixels[:3], top=1, progress=False)
    assert len(answers) == 3
    assert [row["path"] for row in answers.table()] == ["image[0]", "image[1]", "image[2]"]
    assert vt.predict(run.model, pixels[0])[0].label == answers[0].label
    assert vt.embed(run, pixels[:2]).values.shape == (2, 16)


def test_a_run_resumes_and_is_extended(run: vt.Run) -> None:
    rows: list[dict[str, Any]] = []
    longer = run.resume(epochs=3, callbacks=[rows.append], progress=False)
    assert longer.metrics[-1]["epoch"] == 3
    assert rows[-1]["epoch"] == 3
    assert "loss" in longer.figures()
    with pytest.raises(vt.InputError, match="--epochs"):
        longer.resume(epochs=1, progress=False)


def test_what_was_pretrained_is_fine_tuned(pixels: NDArray[np.uint8], labels: list[str]) -> None:
    few = {"training.batch_size": 8, "training.steps": 2}
    encoder = vt.pretrain(
        (pixels, labels), objective="mae", image_size=16, out="encoder", settings=few, progress=False
    )
    assert encoder.task == "mae"
    tuned = vt.train((pixels, labels), init=encoder, out="tuned", settings=few, progress=False)
    assert tuned.model.config.depth == encoder.model.config.depth


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"task": "clasification"}, "did you mean 'classification'"),
        ({"task": "mae"}, "vitreous.pretrain"),
        ({"epochs": 1, "minutes": 1}, "give one of them"),
        ({"settings": {"training.epocs": 1}}, "did you mean 'training.epochs'"),
        ({"init": object()}, "a Run"),
        ({"shard": True}, "torchrun"),
        ({"recipe": "digit"}, "did you mean 'digits'"),
    ],
)
def test_bad_input_is_an_input_error(
    photos: Path, options: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(vt.InputError, match=words):
        vt.train(photos, **options, progress=False)
    assert not (tmp_path / "runs").exists()


def test_a_folder_without_a_run_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(vt.InputError):
        vt.Run(tmp_path)
