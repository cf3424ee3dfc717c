"""A run is compared with classical methods, and says so where it is below them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image

from vitreous.cli import run as vitreous
from vitreous.data.findings import finding, read_findings, write_findings
from vitreous.data.image_samples import Batch
from vitreous.evaluation.classification import MultiLabelEvaluation
from vitreous.evaluation.result import Metric
from vitreous.languages import speaking
from vitreous.tasks.course import below_baseline, without_what_was_tried
from vitreous.tasks.regression import RegressionEvaluation
from vitreous.training.config import RunConfig, TrainingConfig
from vitreous.training.objectives import RareClassLoss
from vitreous.training.run import RunDirectory

pytestmark = pytest.mark.usefixtures("quick_figures")

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
    below = r"the model reaches \S+% \(accuracy\) on .*, but SVM on HOG and color reaches 100\.0%"
    page = (run / "report.html").read_text(encoding="utf-8")
    assert re.search(below, page.replace("\u00a0", " "))
    vitreous(["doctor", str(run)])
    assert re.search(below, capsys.readouterr().out.replace("\n", " "))


@pytest.mark.parametrize("language", ["en", "ko"])
def test_no_finding_advises_what_was_compared(language: str, tmp_path: Path) -> None:
    """Where nothing was, it does."""
    run = RunDirectory.create(tmp_path / "run", RunConfig())
    best = {"name": "SVM on pixels", "accuracy": 0.9, "interval": [0.8, 0.95]}
    seen = {"count": 60, "spread": 0.1, "true": 1.0, "r2": 0.0}
    chance = {"memorized": False, "training": 0.5, "accuracy": 0.5, "majority": 0.5}
    found = [
        *below_baseline(Metric(0.5, "accuracy"), [best]),
        *finding("not learning.early", **chance, count=60, steps=9),
        *finding("labels at random", **chance),
        *finding("constant answers.numbers", **seen),
        *finding("constant answers.labels", share=0.9, precision=0.5, chance=0.5, count=60),
        *finding("explains nothing", **seen),
        *finding("overfitting", training=0.9, held_out=0.5, validation=False),
    ]
    few: dict[str, Any] = {"largest": "a", "smallest": "b", "fewest": 3}
    weighted = {
        "training.loss=balanced": [*finding("rare classes", ["a class"], most=90)],
        "data.class_balance=true": [*finding("imbalance", most=90, **few)],
    }
    with speaking(language):
        assert all("--init" in each.fix for each in without_what_was_tried(run, found))
        for speed, has_loss in ((0.0, False), (90.0, True)):
            rows = [{"name": "SVM on pixels", "speed": speed}]
            (run.path / "candidates.json").write_text(json.dumps(rows))
            assert not any("--init" in each.fix for each in without_what_was_tried(run, found))
            for advice, finds in weighted.items():
                [said] = without_what_was_tried(run, finds)
                assert (advice in said.fix) == has_loss


def test_a_model_as_good_as_its_baseline_is_not_below_it() -> None:
    best = {"name": "SVM on pixels", "accuracy": 0.9, "interval": [0.8, 0.95]}
    assert not list(below_baseline(Metric(0.9, "accuracy"), [best]))
    [found] = below_baseline(Metric(0.89, "accuracy"), [best])
    assert found.kind == "below baseline"
    with speaking("ko"):  # a finding is made once, and said in the language of the terminal and of the report
        [again] = below_baseline(Metric(0.89, "accuracy"), [best])
        assert "정확도" in again.problem
        assert "픽셀 SVM" in again.problem
    assert again.problem == found.problem
    assert "(accuracy)" in again.problem


def test_losses_for_rare_classes_are_those_of_their_papers() -> None:
    """Against the formulas, written out; by default they are cross-entropy."""
    rng = torch.Generator().manual_seed(0)
    logits, targets = torch.randn(64, 3, generator=rng), torch.arange(64) % 3
    counts = [50, 30, 20]
    each = F.cross_entropy(logits, targets, reduction="none")

    def loss(**settings: Any) -> float:
        return float(RareClassLoss(TrainingConfig(**settings), counts)(logits, targets, 0.0))

    assert loss() == pytest.approx(float(each.mean()), rel=1e-5)
    focal = (1 - (-each).exp()) ** 2 * each
    assert loss(loss="focal") == pytest.approx(float(focal.mean()), rel=1e-5)
    shifted = logits + torch.tensor([0.5, 0.3, 0.2]).log()
    adjusted = float(F.cross_entropy(shifted, targets))
    assert loss(loss="logit-adjusted") == pytest.approx(adjusted, rel=1e-5)
    weights = 100 / (3 * torch.tensor([50.0, 30.0, 20.0]))
    weighted = float(F.cross_entropy(logits, targets, weight=weights))
    assert loss(loss="balanced") == pytest.approx(weighted, rel=1e-5)


def test_what_is_asked_for_rare_classes_is_what_a_run_learns_with(tmp_path: Path) -> None:
    """The objective that a run gets, and not the loss alone."""
    from vitreous.tasks import task_named

    task: Any = task_named("classification")
    rng = torch.Generator().manual_seed(0)
    logits, targets = torch.randn(64, 2, generator=rng), torch.arange(64) % 2
    plain = float(F.cross_entropy(logits, targets))
    source = photos(tmp_path / "photos")
    for image in sorted((source / "down").iterdir())[4:]:
        image.unlink()
    for name, value in (("loss", "focal"), ("loss", "logit-adjusted"), ("loss", "balanced")):
        settings = {"training": {name: value, "label_smoothing": 0.0}}
        plan = task.plan(str(source), settings)
        counts = plan.data.train.targets.counts().tolist()
        wanted = float(RareClassLoss(plan.config.training, counts)(logits, targets, 0.0))
        loss, _ = task.objective(plan.config, plan.data)(
            torch.nn.Identity(), Batch(logits, targets, targets), rng
        )
        assert float(loss) == pytest.approx(wanted, rel=1e-6)
        assert float(loss) != pytest.approx(plain, rel=1e-3)


def test_failed_regression_and_labels_are_found() -> None:
    """And good ones are not: a null for each."""
    rng = np.random.default_rng(0)
    true = rng.normal(size=60)
    about: dict[str, Any] = {
        "indices": np.arange(60),
        "names": tuple(map(str, range(60))),
        "failed": {},
        "seconds": 0.0,
    }

    def numbers(predictions: Any) -> list[str]:
        found = RegressionEvaluation(targets=true, predictions=predictions, **about)
        return [each.name for each in found.findings()]

    assert numbers(np.full(60, true.mean())) == ["constant answers.numbers"]
    assert numbers(rng.permutation(true)) == ["explains nothing"]
    assert numbers(true + 0.1 * rng.normal(size=60)) == []

    wanted = (rng.random((60, 3)) < 0.5).astype(np.float32)
    wanted[:3] = np.eye(3)

    def labels(probabilities: Any) -> list[str]:
        found = MultiLabelEvaluation(
            classes=("a", "b", "c"), targets=wanted, probabilities=probabilities, **about
        )
        return [each.name for each in found.findings()]

    assert labels(np.tile([0.9, 0.9, 0.1], (60, 1)) + 0.01 * rng.random((60, 3))) == [
        "constant answers.labels"
    ]
    assert labels(wanted * 0.8 + 0.1) == []


def test_findings_are_kept_for_the_doctor(tmp_path: Path) -> None:
    best = {"name": "SVM on pixels", "accuracy": 0.9, "interval": [0.8, 0.95]}
    found = [
        *below_baseline(Metric(0.5, "accuracy"), [best]),
        *finding("rare", ["a class"], severity="note", share=0.1),
    ]
    write_findings(tmp_path / "findings.json", found)
    again = read_findings(tmp_path / "findings.json")
    assert [each.sentence for each in again] == [each.sentence for each in found]
    assert [each.severity for each in again] == ["warning", "note"]
    assert read_findings(tmp_path / "none.json") == []
