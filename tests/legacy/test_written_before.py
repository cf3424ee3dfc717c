"""What version 0.1 wrote still loads: runs of every task, their models and their saved states."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import vitreous as vt
from vitreous.cli import run as command
from vitreous.models.decoding import GNMT, length_norm

from .make_data import make_data

HERE = Path(__file__).parent
IMAGE_TASKS = ("classification", "multilabel", "segmentation", "masked-patch", "mae", "simmim", "dino")
WRITTEN = 56  # tokens of each translation
EXPECTED = np.load(HERE / "expected.npz")


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The runs and the data that they learned from, as they were."""
    shutil.copytree(HERE / "written", tmp_path / "runs")
    make_data(tmp_path)
    for file in tmp_path.glob("runs/*/config.toml"):
        file.write_text(file.read_text().replace("LEGACY_DATA/", f"{tmp_path}/"))
    monkeypatch.chdir(tmp_path)
    return Path("runs")


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> dict:
    assert command([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@torch.inference_mode()
def test_models_give_the_outputs_that_they_gave(runs: Path) -> None:
    for task in IMAGE_TASKS:
        logits = vt.load(runs / task)(torch.from_numpy(EXPECTED[f"{task}.images"]))
        np.testing.assert_allclose(logits.numpy(), EXPECTED[task], atol=2e-6, err_msg=task)
    tokens = torch.tensor([[1, 75, 85], [1, 70, 2]])
    logits = vt.load(runs / "captioning")(torch.from_numpy(EXPECTED["captioning.images"]), tokens)
    np.testing.assert_allclose(logits.numpy(), EXPECTED["captioning"], atol=2e-6)
    logits = vt.load(runs / "translation")(torch.tensor([[70, 80, 90, 2]]), torch.tensor([[1, 75, 85]]))
    np.testing.assert_allclose(logits.numpy(), EXPECTED["translation"], atol=2e-6)


@pytest.mark.parametrize("task", [*IMAGE_TASKS, "captioning", "translation"])
def test_the_task_that_was_not_stored_is_derived(runs: Path, task: str) -> None:
    for place in (runs / task, runs / task / "model", runs / task / "model" / "model.safetensors"):
        assert vt.load(place).task == task
    alone = shutil.copytree(runs / task / "model", runs / "alone")  # the run around it is lost
    without = {"multilabel": "classification", **dict.fromkeys(("masked-patch", "mae", "simmim", "dino"))}
    assert vt.load(alone).task == without.get(task, task)


def test_a_folder_of_a_model_predicts_as_its_run_does(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    images = ["ml/1.png", "ml/2.png"]
    from_run = answer(capsys, "predict", "runs/multilabel", *images)
    assert answer(capsys, "predict", "runs/multilabel/model", *images) == from_run
    vt.save(vt.load(runs / "multilabel"), runs / "copy")
    assert answer(capsys, "predict", "runs/copy", *images) == from_run


@pytest.mark.parametrize(
    ("task", "words"),
    [
        ("classification", ["predict", "runs/classification", "photos/val"]),
        ("multilabel", ["predict", "runs/multilabel", "ml/1.png", "ml/2.png"]),
        ("captioning", ["predict", "runs/captioning", "cap/1.png", "cap/2.png"]),
        ("translation", ["translate", "runs/translation", "one two", "three"]),
    ],
)
def test_commands_answer_as_they_did(
    runs: Path, capsys: pytest.CaptureFixture[str], task: str, words: list[str]
) -> None:
    before = json.loads((HERE / f"out-{task}.json").read_text())
    now = answer(capsys, *words)
    [key] = [key for key in before if key in ("predictions", "translations")]
    for one, other in zip(before[key], now[key], strict=True):
        for name, value in one.items():
            if (task, name) == ("translation", "score"):  # since then divided by the length penalty of GNMT
                value *= length_norm(WRITTEN, 0.6, 0) / length_norm(WRITTEN, 0.6, GNMT)
            if isinstance(value, float):
                assert other[name] == pytest.approx(value, abs=6e-5)
            elif isinstance(value, str):
                assert other[name] == value


def test_a_segmenter_is_evaluated_as_it_was(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = json.loads((HERE / "out-segmentation.json").read_text())
    now = answer(capsys, "evaluate", "runs/segmentation")
    for name in ("test_count", "test_miou", "test_pixel_accuracy"):
        assert now[name] == pytest.approx(before[name], abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("run", ["classification", "mae"])
def test_runs_go_on_from_the_state_that_was_saved(
    runs: Path, capsys: pytest.CaptureFixture[str], run: str
) -> None:
    program = "pretrain" if run == "mae" else "train"
    result = answer(capsys, program, "--resume", f"runs/{run}", "--epochs", "3")
    rows = [json.loads(line) for line in (runs / run / "metrics.jsonl").read_text().splitlines()]
    assert rows[-1]["epoch"] == 3
    assert rows[0]["step"] < rows[-1]["step"]
    assert result["train_count"] == 16
