"""Runs that learn something else than classes, broken on purpose; and data that no classifier learns from."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import vitreous as vt
from vitreous.addons.segmentation.model import Segmenter, SegmenterConfig
from vitreous.addons.segmentation.task import SegmentationConfig
from vitreous.addons.self_supervision.tasks import DINORunConfig
from vitreous.addons.text.task import RECIPES, TranslationConfig
from vitreous.checkpoints.native import save_native
from vitreous.cli import run as command
from vitreous.data.config import DataConfig
from vitreous.models.config import ViTConfig
from vitreous.models.preprocessing import Preprocessing
from vitreous.models.vit import ViT
from vitreous.tasks import task_named
from vitreous.tasks.doctor import examine_run
from vitreous.tasks.recipe_choice import packaged_config
from vitreous.training.run import RunDirectory

SMALL: dict[str, Any] = {"image_size": 8, "channels": 1, "patch_size": 4, "width": 8, "depth": 1, "heads": 2}
GRAY = Preprocessing(size=(8, 8), channels=1, mean=(0.3,), std=(0.4,), resize="squash", crop_fraction=1.0)


def fresh_model(config: Any) -> Any:
    return task_named(config.task).build(config, None, steps=1)


def wrong(model: Any) -> Any:
    """A model with a weight that is no number."""
    with torch.no_grad():
        next(p for name, p in model.named_parameters() if name.endswith("mlp_norm.weight"))[0] = float("nan")
    return model


@pytest.fixture
def pretraining(tmp_path: Path) -> RunDirectory:
    config = ViTConfig(**SMALL, num_classes=None)
    run = RunDirectory.create(
        tmp_path / "pretraining",
        DINORunConfig(model=config, preprocessing=GRAY),
    )
    save_native(wrong(ViT(config, preprocessing=GRAY)), run.path / "model")
    return run


@pytest.fixture
def segmentation(tmp_path: Path) -> RunDirectory:
    folder = tmp_path / "pages"
    for name in ("images", "masks"):
        (folder / name).mkdir(parents=True)
        for number in range(6):
            pixels = np.full((8, 8), number % 2, dtype=np.uint8)
            pixels = pixels * 100 + np.uint8(number) if name == "images" else pixels  # no two are equal
            Image.fromarray(pixels).save(folder / name / f"{number}.png")
    config = SegmenterConfig(**SMALL, num_classes=2)
    run = RunDirectory.create(
        tmp_path / "segmentation",
        SegmentationConfig(
            source=str(folder), model=config, preprocessing=GRAY, data=DataConfig(reading={"workers": 1})
        ),
    )
    save_native(wrong(Segmenter(config, preprocessing=GRAY)), run.path / "model")
    return run


@pytest.fixture
def translation(tmp_path: Path) -> RunDirectory:
    model = {"width": 16, "heads": 2, "mlp_dim": 16, "depth": 1, "encoder_depth": 1}
    settings = {"model": model, "training": {"peak_lr": 0.8}}
    config = packaged_config(TranslationConfig, RECIPES / "numbers.toml", settings)
    run = RunDirectory.create(tmp_path / "translation", config)
    save_native(wrong(fresh_model(config)), run.path / "model", files={"tokenizer.json": "{}"})
    return run


KINDS = pytest.mark.parametrize("kind", ["pretraining", "segmentation", "translation"])


def write(run: RunDirectory, losses: Sequence[float], **more: float) -> None:
    rows = [
        {"step": 20 * n, "epoch": n, "loss": loss, "waiting": 0.0, "skipped": 0, "seconds": 20.0 * n, **more}
        for n, loss in enumerate(losses, start=1)
    ]
    (run.path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def found(path: Path) -> dict[str, str]:
    return {finding.kind: finding.problem for finding in examine_run(path)}


@KINDS
def test_every_kind_of_run_is_examined(kind: str, request: pytest.FixtureRequest) -> None:
    run: RunDirectory = request.getfixturevalue(kind)
    write(run, (2.5, 2.49, 2.5, 2.48, 2.5), skipped=3, waiting=0.6)
    (run.path / "bad_files.txt").write_text("a.png\tthe file is empty\n")
    findings = found(run.path)
    # Weights that are not finite explain a loss that does not fall, an unusual rate explains both.
    assert ("learning rate" in findings) == (kind == "translation")
    if kind == "translation":
        learning = "the loss has hardly fallen, from 2.500 to 2.500 after 100 steps"
        assert learning in findings["learning rate"]
    assert "3 steps had a non-finite gradient" in findings["not finite"]
    assert "waited for data 60.0% of the time" in findings["loader"]
    assert "a.png (the file is empty)" in findings["bad files"]
    assert "mlp_norm.weight is not finite" in findings["origin of NaN"]


@KINDS
def test_a_loss_that_falls_is_no_finding(kind: str, request: pytest.FixtureRequest) -> None:
    run: RunDirectory = request.getfixturevalue(kind)
    write(run, (2.5, 1.9, 1.2, 0.8, 0.7))
    assert set(found(run.path)) == {"origin of NaN"}


def test_the_students_loss_may_climb_with_its_teacher(pretraining: RunDirectory) -> None:
    write(pretraining, (4.9, 5.5, 6.0, 6.1), teacher_entropy=5.7)
    assert "learning rate" not in found(pretraining.path)


@pytest.mark.parametrize("entropy", [5.88, 0.0], ids=["uniform", "one prototype"])
def test_a_collapsed_teacher_is_found(pretraining: RunDirectory, entropy: float) -> None:
    """Each answer is the mean answer: 5.88 = log 359 is what DINO did on the digits with the views for
    photographs."""
    write(pretraining, (5.9, 5.9, 5.9, 5.9), teacher_entropy=entropy, marginal_entropy=entropy + 0.01)
    assert "collapsed" in found(pretraining.path)["collapse"]
    write(pretraining, (5.9, 5.9, 5.9, 5.9), teacher_entropy=1.4, marginal_entropy=2.6)
    assert "collapse" not in found(pretraining.path)


def test_a_process_without_a_validation_batch_sees_no_collapse() -> None:
    (collapse,) = task_named("dino").info.alarms
    assert list(collapse([])) == []


def test_a_pre_training_that_explains_nothing_is_found(pretraining: RunDirectory) -> None:
    write(pretraining, (0.93, 0.90, 0.89, 0.88), validation_explained=0.06)
    assert "only 6.0%" in found(pretraining.path)["explained"]
    write(pretraining, (0.93, 0.7, 0.6, 0.5), validation_explained=0.4)
    assert "explained" not in found(pretraining.path)


def test_what_a_segmenter_is_shown(segmentation: RunDirectory) -> None:
    write(segmentation, (2.5, 1.9, 1.2, 0.8))
    wild = GRAY.model_copy(update={"std": (0.01,)})
    config = segmentation.config.model
    save_native(Segmenter(config, preprocessing=wild), segmentation.path / "model")
    assert "standard deviation" in found(segmentation.path)["normalization"]


def test_a_stopped_run_is_examined_without_its_model(translation: RunDirectory) -> None:
    write(translation, (2.5, 1.9, 4.2, 4.4, 4.3))
    for file in (translation.path / "model").iterdir():
        file.unlink()
    (translation.path / "model").rmdir()
    findings = found(translation.path)
    assert set(findings) == {"learning rate"}
    assert "climbed from 2.200 to 4.300" in findings["learning rate"]


def test_the_command_says_it(translation: RunDirectory, capsys: pytest.CaptureFixture[str]) -> None:
    write(translation, (2.5, 2.5, 2.5, 2.5))
    assert command(["doctor", str(translation.path), "--json"]) == 1
    checks = [finding["kind"] for finding in json.loads(capsys.readouterr().out)["findings"]]
    assert checks == ["origin of NaN", "learning rate"]


def folder_of(root: Path, classes: Sequence[str], count: int = 8) -> Path:
    random = np.random.default_rng(0)
    for name in classes:
        (root / name).mkdir()
        for number in range(count):
            pixels = random.integers(0, 255, (20, 20, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(root / name / f"{number}.png")
    return root


def test_an_empty_class_folder_is_a_finding_among_others(tmp_path: Path) -> None:
    folder_of(tmp_path, ("cat", "dog"), count=24)
    (tmp_path / "emu").mkdir()
    finding, *others = vt.doctor(str(tmp_path)).findings
    assert {each.kind for each in others} <= {"few"}
    assert finding.kind == "empty"
    assert finding.images == (str(tmp_path / "emu"),)


def test_a_manifest_of_texts_is_told_from_classes(tmp_path: Path) -> None:
    folder_of(tmp_path, ("cat", "dog"))
    rows = [f"{name}/{n}.png,{name} number {n}\n" for name in ("cat", "dog") for n in range(8)]
    (tmp_path / "list.csv").write_text("path,label\n" + "".join(rows))
    finding, *others = vt.doctor(str(tmp_path / "list.csv")).findings
    assert {each.kind for each in others} <= {"few"}
    assert finding.kind == "own labels"
    assert "if the labels are free text, they are not classes" in finding.fix


def test_images_and_masks_are_told_from_classes(tmp_path: Path) -> None:
    finding, *others = vt.doctor(str(folder_of(tmp_path, ("images", "masks")))).findings
    assert {each.kind for each in others} <= {"few"}
    assert finding.kind == "other task"
    assert "--task segmentation" in finding.fix
