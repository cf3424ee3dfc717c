"""Runs and data broken on purpose, one way each; a healthy run has no finding."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import vitreous as vt
from vitreous.cli import run as command
from vitreous.data.checks import data_findings, unlike_neighbors
from vitreous.data.dataset import ArrayImages, DataSummary, Splits
from vitreous.data.findings import Finding
from vitreous.data.image_samples import evaluation_loader
from vitreous.evaluation.model_diagnosis import model_findings
from vitreous.models.config import ViTConfig
from vitreous.models.model import build_model
from vitreous.models.names import create
from vitreous.models.preprocessing import Preprocessing
from vitreous.tasks.course import at_chance, course_of, is_noise, other_looks
from vitreous.tasks.doctor import answers_to, examine_run
from vitreous.tasks.recipe_choice import choose_fine_tuning, choose_recipe
from vitreous.tasks.training_run import fit, plan_of_run
from vitreous.training.config import RunConfig
from vitreous.training.diagnosis import causes_first, course_findings, frozen_encoder, usual_rates
from vitreous.training.recipes import NAMES, recipe
from vitreous.training.run import RunDirectory
from vitreous.training.settings import configure
from vitreous.training.trainer import NotFinite

Broken = Callable[[dict[str, Any]], Path]


@pytest.fixture
def broken(tiny: RunConfig, splits: Splits, tmp_path: Path) -> Broken:
    """A run with some settings that nobody should use."""

    def make(settings: dict[str, Any]) -> Path:
        plain = {"dropout": 0.0, "drop_path": 0.0}
        training = {"length": "6 epochs", "peak_lr": 5e-3, "ema": None, "records": {"save_every": 1e9}}
        data = {"data": {"test_fraction": 0.85}, "augmentation": {"mix": None}}
        config = configure(tiny, {"model": plain, "training": training, **data}, settings)
        run = RunDirectory.create(tmp_path / "run", config)
        with suppress(NotFinite):  # one of the runs is broken in just this way
            fit(plan_of_run(run, splits))
        return run.path

    return make


def found(path: Path) -> dict[str, tuple[str, str]]:
    return {finding.kind: (finding.problem, finding.fix) for finding in examine_run(path)}


def test_a_healthy_run_has_nothing(broken: Broken) -> None:
    assert found(broken({"training": {"length": "20 epochs"}})) == {}


def test_a_rate_that_is_too_high(broken: Broken) -> None:
    path = broken({"training": {"peak_lr": 20.0, "optimizer": {"clip_norm": None}}})
    problem, fix = found(path)["learning rate"]
    assert "the peak learning rate is 20 with adamw and a batch size of 32" in problem
    assert "set training.peak_lr=0.0005: similar models learn at rates below 0.0025" in fix


def test_a_rate_that_is_too_low(broken: Broken) -> None:
    findings = found(broken({"training": {"peak_lr": 1e-9}}))
    assert "no better than guessing (ln 10 = 2.303)" in findings["learning rate"][0]
    assert "set training.peak_lr=0.0005: similar models learn at rates above" in findings["learning rate"][1]


def test_a_wrong_normalization(broken: Broken) -> None:
    problem, _ = found(broken({"preprocessing": {"mean": [90.0], "std": [120.0]}}))["normalization"]
    assert "preprocessing.mean=[90.0] and std=[120.0]" in problem


def test_a_standard_deviation_too_small_to_divide_by(broken: Broken) -> None:
    findings = found(broken({"preprocessing": {"std": [1e-300]}}))
    assert "the images themselves contain non-finite values" in findings["origin of NaN"][0]


def test_a_patch_as_large_as_the_image(broken: Broken) -> None:
    problem, fix = found(broken({"model": {"patch_size": 8}}))["patch size"]
    assert "8x8 images give only 1 patch of 8x8 pixels" in problem
    assert "model.patch_size=1" in fix


def test_the_same_images_on_both_sides(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    for name in ("cat", "dog"):
        for part in ("train", "val"):
            (tmp_path / part / name).mkdir(parents=True)
        for number in range(8):
            image = Image.fromarray(random.integers(0, 255, (20, 20, 3), dtype=np.uint8))
            image.save(tmp_path / "train" / name / f"{number}.png")
            if number < 4:
                image.save(tmp_path / "val" / name / f"copy{number}.png")
    finding, *others = vt.doctor(str(tmp_path)).findings
    assert {each.kind for each in others} <= {"few"}
    assert finding.kind == "leak"
    assert finding.found == 8
    assert finding.severity == "error"
    assert all("copy" in held_out for _, held_out in finding.images)


def images(targets: list[int], classes: int = 4, side: int = 8) -> ArrayImages:
    random = np.random.default_rng(len(targets))
    pixels = random.integers(0, 255, (len(targets), side, side, 3), dtype=np.uint8)
    return ArrayImages(pixels, np.array(targets), tuple("abcdefgh"[:classes]), name="made")


def split(train: list[int], test: list[int]) -> Splits:
    return Splits(images(train), None, images(test), "made", DataSummary(8, 4, 8, 8, 3, False))


def test_a_split_that_was_cut_from_a_sorted_list() -> None:
    findings = {f.kind: f for f in data_findings(split([0, 0, 1, 1, 2, 2] * 4, [3] * 6))}
    assert set(findings) == {"split", "few"}
    finding = findings["split"]
    assert "100.0% of the test set" in finding.problem
    assert "never trained on: d" in finding.problem


def test_labels_out_of_range() -> None:
    checks = [finding.kind for finding in data_findings(split([1, 2, 3, 4] * 5, [1, 2, 3, 4]))]
    assert "labels" in checks


def test_a_class_that_is_hardly_there() -> None:
    findings = list(data_findings(split([0] * 100 + [1] * 100 + [2] * 100 + [3] * 3, [0, 1, 2] * 30)))
    assert [finding.kind for finding in findings] == ["imbalance", "few"]
    assert "3 of 'd'" in findings[0].problem


def test_a_fair_data_set_has_nothing() -> None:
    assert list(data_findings(split([0, 1, 2, 3] * 20, [0, 1, 2, 3] * 5))) == []


def test_a_loader_that_starves_the_device(tiny: RunConfig) -> None:
    rows = [
        {"step": 40 * n, "loss": 2.0 / n, "waiting": 0.6, "skipped": 0, "seconds": 50.0 * n}
        for n in (1, 2, 3)
    ]
    (finding,) = course_findings(tiny.training, rows, classes=10, data=tiny.data)
    assert finding.kind == "loader"
    assert "60.0% of the time" in finding.problem


def test_skipped_steps_and_overfitting(tiny: RunConfig) -> None:
    rows = [
        {"step": 40, "loss": 1.0, "skipped": 0},
        {"step": 80, "loss": 0.1, "skipped": 3, "accuracy": 0.99, "validation_accuracy": 0.5},
    ]
    checks = {
        finding.kind: finding.problem
        for finding in course_findings(tiny.training, rows, classes=10, data=tiny.data)
    }
    assert "3 steps" in checks["not finite"]
    assert "before step 80" in checks["not finite"]
    assert "accuracy is 99.0% in training but 50.0%" in checks["overfitting"]


def model_of(**overrides: Any) -> Any:
    torch.manual_seed(0)
    fields = {"image_size": 8, "width": 16, "depth": 3, "heads": 2, "mlp_dim": 16, "num_classes": 4}
    model = create("ViT-Ti/2", **{**fields, **overrides})
    torch.nn.init.normal_(model.head.weight)  # type: ignore[arg-type]
    return model


def test_the_layer_where_numbers_stop_being_finite() -> None:
    model, shown = model_of(), images([0, 1, 2, 3] * 4)
    with torch.no_grad():
        model.blocks[1].attention.qkv.bias[0] = 1e38
        model.blocks[1].attention.qkv.weight[:] *= 1e38
    (finding,) = model_findings(model, shown)
    assert finding.kind == "origin of NaN"
    assert "after blocks.1.attention" in finding.problem


def test_a_weight_that_is_not_finite_is_named() -> None:
    model = model_of()
    with torch.no_grad():
        model.blocks[2].mlp_norm.weight[0] = float("nan")
    (finding,) = model_findings(model, images([0, 1, 2, 3] * 4))
    assert "blocks.2.mlp_norm.weight" in finding.problem


def test_a_layer_that_explodes() -> None:
    model = model_of()
    with torch.no_grad():
        for parameter in model.blocks[1].mlp.parameters():
            parameter.mul_(300)
    checks = {f.kind: f.problem for f in model_findings(model, images([0, 1, 2, 3] * 4))}
    assert "after layer 2" in checks["exploding layer"]


def test_a_layer_that_no_gradient_reaches() -> None:
    model = model_of()
    with torch.no_grad():  # both branches closed: what goes in is zero, and what would come out too
        for parameter in (*model.blocks[0].attention.parameters(), *model.blocks[0].mlp.parameters()):
            parameter.zero_()
        for norm in (model.blocks[0].attention_norm, model.blocks[0].mlp_norm):
            norm.weight.zero_()
    checks = {f.kind: f.problem for f in model_findings(model, images([0, 1, 2, 3] * 4))}
    assert "dead layer" not in checks  # the last biases still learn, so it can come back
    with torch.no_grad():
        model.blocks[0].attention_branch.append(torch.nn.Hardtanh(0.0, 1e-30))
        model.blocks[0].mlp_branch.append(torch.nn.Hardtanh(0.0, 1e-30))
    checks = {f.kind: f.problem for f in model_findings(model, images([0, 1, 2, 3] * 4))}
    assert "no gradient reaches layer 1" in checks["dead layer"]


def test_a_model_that_says_the_same_of_everything() -> None:
    model = model_of()
    with torch.no_grad():
        model.head.bias[2] = 100
    checks = {f.kind: f.problem for f in model_findings(model, images([0, 1, 2, 3] * 4))}
    assert checks["one class"] == "16 of 16 images are predicted as '2', but only 4 belong to that class"


@pytest.mark.slow
def test_small_images_blown_up() -> None:
    checks = {f.kind: f for f in model_findings(model_of(image_size=64), images([0, 1, 2, 3] * 4))}
    assert "about 8 pixels are enlarged to 64x64" in checks["image size"].problem


def test_the_command_prints_findings_with_their_fix(
    broken: Broken, capsys: pytest.CaptureFixture[str]
) -> None:
    path = broken({"model": {"patch_size": 8}})
    capsys.readouterr()
    assert command(["doctor", str(path)]) == 0  # a warning
    assert "warning: 8x8 images" in (said := capsys.readouterr().out)
    assert "fix: set model.patch_size=1" in said
    assert command(["doctor", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["findings"][0]["kind"] == "patch size"


def test_the_command_exits_with_1_for_an_error_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    random = np.random.default_rng(0)
    for name, count in (("cat", 44), ("dog", 4)):
        (tmp_path / name).mkdir()
        for number in range(count):
            pixels = random.integers(0, 255, (20, 20, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / name / f"{number}.png")
    for command_line in (["doctor"], ["data", "check"]):
        assert command([*command_line, str(tmp_path)]) == 0
        assert "warning: " in (said := capsys.readouterr().out)
        assert "set data.class_balance=true" in said
    (tmp_path / "emu").mkdir()
    for command_line in (["doctor"], ["data", "check"]):
        assert command([*command_line, str(tmp_path)]) == 0
        assert "warning: 1 class folder contains no images and is left out" in capsys.readouterr().out
    for image in (tmp_path / "cat").iterdir():
        shutil.copy(image, tmp_path / "dog" / f"copy-{image.name}")
    for command_line in (["doctor"], ["data", "check"]):
        assert command([*command_line, str(tmp_path)]) == 1
        assert "pairs of identical images have different labels" in capsys.readouterr().out


@pytest.mark.slow
def test_a_stopped_run_is_judged_by_its_newest_state(broken: Broken, tiny: RunConfig) -> None:
    path = broken({"training": {"length": "20 epochs", "records": {"save_every": 1e9}}})
    learned = RunDirectory.open(path).model().state_dict()
    shutil.rmtree(path / "model")
    run = RunDirectory.open(path)
    assert found(path) == {}
    so_far = run.model_so_far([str(digit) for digit in range(10)]).state_dict()
    assert all(torch.equal(so_far[name], tensor) for name, tensor in learned.items())


@pytest.mark.parametrize(
    ("last", "climbs"), [((0.99, 0.86, 0.82, 1.13), False), ((0.82, 0.9, 1.2, 1.3), True)]
)
def test_one_hard_epoch_is_no_climbing_loss(last: tuple[float, ...], climbs: bool, tiny: RunConfig) -> None:
    """Mixup draws how hard an epoch is: losses of a healthy run of the digits."""
    losses = (2.3, 1.9, 1.4, 1.06, *last)
    rows = [{"step": 14 * (n + 1), "loss": loss, "waiting": 0.0} for n, loss in enumerate(losses)]
    checks = {finding.kind for finding in course_findings(tiny.training, rows, classes=10)}
    assert ("not learning" in checks) is climbs


@pytest.mark.parametrize(("right", "found"), [(0.95, False), (0.4, True)])
def test_a_sure_head_that_answers_rightly_does_learn(right: float, found: bool, tiny: RunConfig) -> None:
    """A head of large weights has a large loss where it errs, and errs seldom."""
    rows = [{"step": 20 * n, "loss": 2.6, "accuracy": right, "waiting": 0.0} for n in range(1, 10)]
    checks = {finding.kind for finding in course_findings(tiny.training, rows, classes=3)}
    assert bool(checks & {"not learning", "learning rate"}) is found


@pytest.mark.parametrize("climbs", [False, True])
def test_hundreds_of_noisy_epochs_are_no_climbing_loss(climbs: bool, tiny: RunConfig) -> None:
    """Small batches of mixed images: the loss of a line is between 0.4 and 0.8 to the end, or it rises."""
    noise = np.random.default_rng(0).uniform(0.4, 0.8, 300)
    losses = [2.3, 1.6, 1.1, *(noise + np.linspace(0, 0.6, 300) * climbs)]
    rows = [{"step": 8 * (n + 1), "loss": loss, "waiting": 0.0} for n, loss in enumerate(losses)]
    checks = {finding.kind for finding in course_findings(tiny.training, rows, classes=10)}
    assert bool(checks & {"not learning", "learning rate"}) is climbs


def test_a_run_that_has_only_begun_is_not_blamed_for_it(broken: Broken) -> None:
    path = broken({"training": {"length": "1 epochs"}})
    shutil.rmtree(path / "model")
    shutil.rmtree(path / "checkpoints")
    (path / "metrics.jsonl").write_text("")
    assert set(found(path)) == {"course"}


@pytest.mark.parametrize("damage", [lambda file: file.write_text(""), Path.unlink])
def test_a_course_that_was_lost_is_not_a_loss_that_was_never_finite(broken: Broken, damage: Any) -> None:
    path = broken({"training": {"length": "1 epochs"}})
    (path / "report.html").touch()  # which a run has that came to its end
    damage(path / "metrics.jsonl")
    findings = found(path)
    assert "lost course" in findings
    assert not {"not finite", "course"} & set(findings)


def test_a_loss_that_was_never_finite_is_named(broken: Broken) -> None:
    findings = found(broken({"preprocessing": {"std": [1e-300]}}))
    assert "before the first line" in findings["not finite"][0]
    assert "course" not in findings


def test_images_that_show_nothing() -> None:
    same = ArrayImages(np.zeros((24, 8, 8, 3), dtype=np.uint8), np.arange(24) % 4, tuple("abcd"), name="made")
    checks = {f.kind: f for f in model_findings(model_of(), same)}
    assert checks["blank images"].problem == "all 24 images are identical"
    flat = np.random.default_rng(0).integers(0, 255, (24, 8, 8, 3), dtype=np.uint8)
    flat[:8] = np.arange(8, dtype=np.uint8)[:, None, None, None] * 9
    some = ArrayImages(flat, np.arange(24) % 4, tuple("abcd"), name="made")
    checks = {f.kind: f for f in model_findings(model_of(), some)}
    assert checks["blank images"].problem == "8 of 24 images consist of a single color"


@pytest.mark.parametrize("level", [8, 250])
def test_pale_and_dark_images_are_no_mistake(level: int) -> None:
    random = np.random.default_rng(0)
    pixels = (level + random.integers(-4, 5, (24, 8, 8, 3))).astype(np.uint8)
    shown = ArrayImages(pixels, np.arange(24) % 4, tuple("abcd"), name="made")
    assert [each.kind for each in model_findings(model_of(), shown) if "normal" in each.kind] == []


def test_every_recipe_has_a_usual_rate() -> None:
    """What the tool chooses itself is within its own bounds, whatever the number of images."""
    for name in NAMES:
        training = recipe(name).config.training
        low, good, high = usual_rates(training, training)
        assert low <= training.peak_lr <= high
        assert good == training.peak_lr
    for count in (16, 100, 1000, 10_000, 1_000_000):
        for encoder in (None, create("ViT-Ti/16").config):
            summary = DataSummary(count, 4, 64, 64, 3, False)
            chosen = (
                choose_fine_tuning("photos", summary, encoder)
                if encoder
                else choose_recipe("photos", summary)
            )
            training = chosen.config.training
            low, _, high = usual_rates(training, None)
            assert low <= training.peak_lr <= high, (count, encoder, training.peak_lr)


def test_a_cause_hides_its_consequences() -> None:
    kinds = ("one class", "learning rate", "overfitting", "leak", "loader")
    found = causes_first([Finding(kind) for kind in kinds])
    assert [each.kind for each in found] == ["leak", "learning rate", "loader"]
    blank = causes_first([Finding(kind) for kind in ("leak", "one class", "blank images")])
    assert [each.kind for each in blank] == ["blank images"]
    alone = causes_first([Finding(kind) for kind in ("one class", "overfitting")])
    assert [each.kind for each in alone] == ["overfitting", "one class"]


def test_weights_that_are_frozen_as_they_were_sampled(tiny: RunConfig) -> None:
    training = tiny.training.model_copy(update={"freeze": ("backbone",)})
    (finding,) = frozen_encoder(training, None)
    assert "training.freeze=backbone freezes random weights" in finding.problem
    assert list(frozen_encoder(training, "encoder.npz")) == []
    assert list(frozen_encoder(tiny.training, None)) == []


def test_labels_of_other_images_than_those_that_are_alike() -> None:
    labels = np.repeat([0, 1], 20)
    noise = np.random.default_rng(0).normal(0, 0.1, (40, 2)).astype(np.float32)
    features = np.eye(2, dtype=np.float32)[labels] + noise
    labels[3] = 1
    assert [(row, other) for row, other, _ in unlike_neighbors(features, labels, 8)] == [(3, 0)]


@pytest.mark.parametrize(
    ("training", "accuracy", "labels_fit", "name"),
    [
        (0.46, 0.357, False, "not learning.early"),  # 1.8 standard errors above guessing
        (0.46, 0.26, False, "labels at random"),
        (0.95, 0.357, False, "labels at random"),  # learned by heart
        (0.46, 0.26, True, "not learning.early"),  # an SVM tells the classes apart
        (0.95, 0.357, True, "overfitting"),
    ],
)
def test_labels_are_to_blame_only_where_others_are_guessed(
    training: float,
    accuracy: float,
    labels_fit: bool,
    name: str,
    tiny: RunConfig,
    splits: Splits,
    tmp_path: Path,
) -> None:
    (tmp_path / "metrics.jsonl").write_text(json.dumps({"step": 174, "accuracy": training}) + "\n")
    (finding,) = at_chance(RunDirectory(tmp_path, tiny), splits, accuracy, 0.238, 42, labels_fit=labels_fit)
    assert finding.name == name
    assert "35.7%" in finding.problem or accuracy != 0.357


def test_noise_is_told_from_images() -> None:
    assert is_noise(images([0, 1, 2, 3] * 6))
    ramp = np.linspace(0, 255, 64).astype(np.uint8).reshape(8, 8)
    smooth = np.repeat(ramp[None, ..., None], 12, axis=0).repeat(3, axis=3)
    assert not is_noise(ArrayImages(smooth, np.arange(12) % 4, tuple("abcd"), name="made"))


def test_images_that_are_shown_too_small() -> None:
    large = images([0, 1, 2, 3] * 4, side=160)
    checks = {f.kind: f for f in model_findings(model_of(), large, usual=(64, 64))}
    assert "about 160 pixels are reduced to 8x8" in checks["image size"].problem
    assert checks["image size"].fix.startswith("use --image-size 64")
    tiny_images = images([0, 1, 2, 3] * 4, side=9)
    usual = {f.kind for f in model_findings(model_of(image_size=32), tiny_images, usual=(32, 32))}
    assert "image size" not in usual


@pytest.mark.slow
def test_test_images_of_another_look_are_found(tiny: RunConfig, tmp_path: Path) -> None:
    """Bright where the training images are dark. The doctor says it, and the report of the training."""
    rng = np.random.default_rng(0)

    def part(folder: str, count: int, shown: Callable[[int], int]) -> None:
        for label in (0, 1):
            path = tmp_path / "images" / folder / str(label)
            path.mkdir(parents=True)
            for index in range(count):
                pixels = rng.integers(0, 30, (8, 8), dtype=np.uint8)
                pixels[:, 4:] += np.uint8(200 * shown(label))
                Image.fromarray(pixels).save(path / f"{index}.png")

    part("train", 80, lambda label: label)
    part("val", 60, lambda label: 1 - label)
    run = tmp_path / "run"
    settings = [
        "training.batch_size=16",
        "model.image_size=8",
        "model.patch_size=4",
        "model.width=16",
        "model.stem.kind=patch",
        "model.depth=1",
    ]
    words = [
        word
        for each in [
            *settings,
            "training.peak_lr=0.01",
            "augmentation.mix=none",
            "data.validation_fraction=0.3",
        ]
        for word in ("--set", each)
    ]
    assert command(["train", str(tmp_path / "images"), "--epochs", "6", "--out", str(run), *words]) == 0
    (problem, fix) = found(run)["other looks"]
    assert "on the validation images but 0.0% on the test images" in problem
    assert "near-duplicates" in fix
    assert "on the test images: test images may look different" in (run / "report.html").read_text("utf-8")


@pytest.mark.parametrize("keep_best", [False, True])
def test_the_test_is_compared_with_the_validation_of_the_same_model(
    tiny: RunConfig, splits: Splits, tmp_path: Path, keep_best: bool
) -> None:
    """The last model has forgotten half: with early stopping it is another one that is tested."""
    run = RunDirectory.create(
        tmp_path / "run",
        configure(tiny, {"training": {"records": {"early_stopping": {} if keep_best else None}}}),
    )
    rows = [{"step": 4 * n, "validation_accuracy": share} for n, share in enumerate((0.2, 0.95, 0.45))]
    (run.path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    tested = SimpleNamespace(correct=np.repeat([True, False], 200), count=400, findings=tuple)
    shown = [
        each.problem
        for each in course_of(run, splits._replace(validation=splits.test), tested)
        if each.kind == "other looks"
    ]
    assert len(shown) == keep_best
    assert all("95.0%" in each and "50.0%" in each for each in shown)


def test_accuracies_that_may_differ_by_chance_are_no_finding() -> None:
    assert list(other_looks((90, 100), (850, 1000))) == []
    assert [each.kind for each in other_looks((990, 1000), (850, 1000))] == ["other looks"]


def test_what_a_model_with_a_distillation_token_answers(splits: Splits) -> None:
    config = ViTConfig(
        image_size=(8, 8),
        channels=1,
        patch_size=(4, 4),
        num_classes=10,
        width=16,
        depth=1,
        heads=2,
        mlp_dim=16,
        pooling="class+distillation",
    )
    model = build_model(config, preprocessing=Preprocessing(size=(8, 8), channels=1, mean=(0.3,), std=(0.4,)))
    torch.nn.init.normal_(model.head.classes.weight)
    found = answers_to(model.eval(), splits.train)
    asked = splits.train.subset(found.indices)
    images = evaluation_loader(asked, preprocessing=model.preprocessing, batch_size=64)
    with torch.inference_mode():
        said = torch.cat([model(batch.images).argmax(dim=1) for batch in images])
    assert found.classes.tolist() == said.tolist()
    assert len(set(found.classes.tolist())) > 1
