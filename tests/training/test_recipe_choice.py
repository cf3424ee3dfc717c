"""The recipe follows the data, and says why."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

import vitreous as vt
from vitreous.checkpoints.native import save_native
from vitreous.data.dataset import DataSummary
from vitreous.errors import InputError
from vitreous.models.config import ViTConfig
from vitreous.models.ensemble import Ensemble, EnsembleConfig, LinearConfig, MemberConfig, NetworkConfig
from vitreous.models.model import build_model
from vitreous.models.settings import set_leaf
from vitreous.tasks import task_named
from vitreous.tasks.recipe_choice import choose_recipe
from vitreous.tasks.training_run import with_run
from vitreous.training.machine import ON_CPU, pick_precision
from vitreous.training.settings import configure, leaves


@pytest.fixture(scope="module")
def make_photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two classes of 20 images of 64x48."""
    folder = tmp_path_factory.mktemp("photos")
    for name in ("cats", "dogs"):
        (folder / name).mkdir()
        for number in range(20):
            Image.new("RGB", (64, 48), (number, 0, 0)).save(folder / name / f"{number}.png")
    return folder


def summary(**changes: object) -> DataSummary:
    plain: dict[str, object] = {
        "images": 3600,
        "classes": 24,
        "height": 100,
        "width": 120,
        "channels": 3,
        "multi_label": False,
    }
    return DataSummary(**{**plain, **changes})  # type: ignore[arg-type]


def test_the_head_fits_the_classes_and_the_reasons_name_them() -> None:
    choice = choose_recipe("photos", summary())
    assert choice.config.model.num_classes == 24
    assert "3600 images of 24 classes, about 120x100" in choice.reasons[0].text
    assert all(each.text and not each.text.endswith(".") for each in choice.reasons)


@pytest.mark.parametrize(
    ("images", "epochs", "batch"),
    [(5, 300, 5), (40, 300, 8), (240, 300, 30), (3600, 61, 64), (1_000_000, 20, 64)],
)
def test_fewer_images_are_seen_more_often_in_smaller_batches(images: int, epochs: int, batch: int) -> None:
    training = choose_recipe("photos", summary(images=images)).config.training
    assert (training.epochs, training.batch_size) == (epochs, batch)


def test_mixup_comes_with_long_training_alone() -> None:
    few, many = (choose_recipe("photos", summary(images=n)).config.augmentation.mix for n in (500, 5000))
    assert few
    assert many is None


def test_tiny_images_are_not_blown_up() -> None:
    config = choose_recipe("photos", summary(width=28, height=28, channels=1)).config
    assert config.model.image_size == config.prepared.size == (32, 32)
    assert config.preprocessing.mean == (0.5,)
    assert config.model.sequence_length == 64


def test_several_labels_are_so_many_questions() -> None:
    assert choose_recipe("photos", summary(multi_label=True)).config.training.loss == "sigmoid"


def test_data_that_are_open_are_not_opened_again(make_photos: Path) -> None:
    task = task_named("classification")
    first = task.plan(str(make_photos), {})
    again = task.plan(first.data, {})
    assert again.data is first.data
    assert again.config == first.config


def test_a_named_model_is_the_published_one(make_photos: Path) -> None:
    task = task_named("classification")
    plan = task.plan(str(make_photos), {"model": {"name": "ViT-S/16"}})
    assert plan.config.model.image_size == plan.config.prepared.size == (224, 224)
    assert (plan.config.model.stem.kind, plan.config.model.width) == ("patch", 384)
    assert plan.config.training.peak_lr == pytest.approx(2e-3 / 3)
    assert "ViT-S/16 at 224x224" in plan.reasons[0]
    assert "convolutions" not in " ".join(plan.reasons)
    small = task.plan(str(make_photos), {"model": {"name": "ViT-S/16", "image_size": 64}})
    assert small.config.model.image_size == (64, 64)
    assert "224" not in " ".join(small.reasons)
    published = task.plan(str(make_photos), {"model": {"name": "ViT-S/16"}}, recipe="deit")
    assert published.config.model.image_size == (224, 224)


@pytest.mark.parametrize(
    ("settings", "untrue"),
    [
        ({"training": {"length": "7 epochs"}}, "300 epochs"),
        ({"training": {"length": "7.0 minutes"}}, "300 epochs"),
        ({"training": {"batch_size": 4}}, "in batches of 8"),
        ({"augmentation": {"mix": None}}, "Mixup, since"),
        ({"training": {"length": "7 epochs"}}, "Mixup, since"),
        ({"model": {"image_size": 32}}, "64x64"),
        ({"model": {"depth": 1, "stem": {"kind": "patch"}}}, "convolutions"),
    ],
)
def test_only_what_is_true_of_the_configuration_is_said(
    make_photos: Path, settings: dict[str, object], untrue: str
) -> None:
    task = task_named("classification")
    assert untrue in " ".join(task.plan(str(make_photos), {}).reasons)
    changed = task.plan(str(make_photos), settings).reasons
    assert untrue not in " ".join(changed)
    assert "32 images of 2 classes" in changed[0] or "images of 2 classes" in changed[0]


def test_large_images_from_scratch_hear_of_pre_trained_weights(make_photos: Path) -> None:
    task = task_named("classification")
    assert "--init hf:google/vit-base-patch16-224" in " ".join(
        each.text for each in choose_recipe("photos", summary()).reasons
    )
    tiny = choose_recipe("photos", summary(width=28, height=28, channels=1))
    assert "--init" not in " ".join(each.text for each in tiny.reasons)
    assert "--init hf:" not in " ".join(task.plan(str(make_photos), {}).reasons)  # 64x48 pixels


def test_a_recipe_for_more_images_is_scaled_down(make_photos: Path) -> None:
    task = task_named("classification")
    plan = task.plan(str(make_photos), {}, recipe="linear-probe")
    assert plan.config.training.batch_size < 16
    assert any("instead of 256" in reason for reason in plan.reasons)
    kept = task.plan(str(make_photos), {"training": {"peak_lr": 0.5}}, recipe="linear-probe")
    assert kept.config.training.peak_lr == 0.5
    with pytest.raises(InputError, match="a batch of 256 is more than the"):
        task.plan(str(make_photos), {"training": {"batch_size": 256}}, recipe="linear-probe")


def test_a_recipe_whose_batch_is_most_of_the_images_is_scaled_down() -> None:
    """One step an epoch is too few: of some 1,400 digits no batch of 1,024."""
    plan = task_named("classification").plan("digits", {}, recipe="deit")
    assert plan.config.training.batch_size == len(plan.data.train) // 8
    own = {"training": {"batch_size": 1024}}
    assert task_named("classification").plan("digits", own, recipe="deit").config.training.batch_size == 1024


@pytest.mark.parametrize(
    ("task", "leaf"),
    [
        ("classification", "training.distillation.teacher"),
        ("distillation", "pretraining.distillation.teacher"),
    ],
)
def test_a_teacher_is_found_from_any_folder(
    task: str, leaf: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "teacher").mkdir()
    monkeypatch.chdir(tmp_path)
    settings: dict[str, object] = {}
    set_leaf(settings, leaf, "teacher")
    assert leaves(task_named(task).plan("digits", settings).config)[leaf] == str(tmp_path / "teacher")


def test_random_weights_that_are_asked_for_are_not_advised_against(make_photos: Path) -> None:
    task, asked = task_named("classification"), "add --init"
    assert any(asked in reason for reason in task.plan(str(make_photos), {}).reasons)
    assert not any(asked in reason for reason in task.plan(str(make_photos), {"init": None}).reasons)


def test_bf16_is_chosen_where_a_product_is_faster_in_it(products: Any) -> None:
    cpu = torch.device("cpu")
    products.take(bf16=0.5)
    assert pick_precision("auto", cpu) == "bf16"
    products.take(bf16=1.2)  # as on a processor that has the instructions and is slow in them
    before = products.now
    with products:
        assert pick_precision("auto", cpu) == "fp32"
    assert products.now == before > 0  # it is timed once


def test_the_memory_of_large_batches_is_measured_and_split(tmp_path: Path) -> None:
    """More images than fit into the memory of any machine."""
    large = {"training": {"batch_size": 2**26, "length": "1 steps"}}
    plan = task_named("classification").plan("digits", {})
    small = with_run(plan, {}, ON_CPU, out=tmp_path / "small")
    assert small.config.training.machine_config.grad_accum_steps == 1
    plan = replace(plan, config=configure(plan.config, large))
    split = with_run(plan, large, ON_CPU, out=tmp_path / "large")
    parts = split.config.training.machine_config.grad_accum_steps
    assert parts > 1
    assert f"in {parts} micro-batches" in split.reasons[-1]


def test_what_the_user_set_is_told_beside_the_recipe() -> None:
    own = {"training": {"length": "2 epochs", "schedule": {"warmup": 0.2}}}
    assert task_named("classification").plan("digits", own).reasons[-1] == (
        "recipe: your own settings take precedence: training.length=2 epochs, training.schedule.warmup=0.2"
    )
    assert len(task_named("classification").plan("digits", {}).reasons) == 1


def test_a_name_on_the_hub_is_not_a_folder_of_that_name(
    make_photos: Path, tmp_path: Path, in_hub_cache: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """--init hf:org/name stays what it is where the current folder has org/name; a path becomes absolute."""
    small = ViTConfig(image_size=32, width=16, depth=1, heads=2, mlp_dim=32, num_classes=None)
    monkeypatch.chdir(tmp_path)
    vt.save(build_model(small), tmp_path / "org" / "name")
    in_hub_cache(build_model(small.model_copy(update={"depth": 2})), "org/name")
    for init, written, depth in (
        ("hf:org/name", "hf:org/name", 2),
        ("org/name", str(tmp_path / "org" / "name"), 1),
    ):
        config = task_named("classification").plan(str(make_photos), {}, init=init).config
        assert (config.init, config.model.depth) == (written, depth)


@pytest.mark.parametrize("answers", ["a network", "an ensemble with one"])
def test_a_plan_reads_no_weight_of_the_checkpoint_that_it_begins_with(
    make_photos: Path, tmp_path: Path, answers: str
) -> None:
    """A file of gigabytes is read when training begins, and once."""
    fields = {"image_size": (32, 48), "depth": 1, "width": 32, "heads": 2, "mlp_dim": 64, "seed": 0}
    network = vt.create("ViT-Ti/16", num_classes=None, **fields)
    model: Any = network
    if answers != "a network":
        seen = NetworkConfig(network=network.config, mean=(0.1,) * 3)
        members = (MemberConfig(features=seen, head=LinearConfig()),)
        model = Ensemble(EnsembleConfig(num_classes=2, members=members), labels=["cats", "dogs"])
    save_native(model, tmp_path / "m")
    weights = tmp_path / "m" / "model.safetensors"
    content = weights.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    weights.write_bytes(content[:start] + bytes(255 - byte for byte in content[start:]))
    with pytest.raises(InputError, match="checksum"):
        vt.load(tmp_path / "m")
    config = task_named("classification").plan(str(make_photos), {}, init=str(tmp_path / "m")).config
    assert config.model.image_size == (32, 48)
    assert (config.model.depth, config.model.width, config.model.num_classes) == (1, 32, 2)
    assert config.preprocessing.mean[0] == (0.5 if answers == "a network" else 0.1)


def test_images_with_masks_are_not_taken_for_two_classes(tmp_path: Path) -> None:
    for name in ("images", "masks"):
        (tmp_path / "streets" / name).mkdir(parents=True)
        for number in range(4):
            Image.new("L", (8, 8), number).save(tmp_path / "streets" / name / f"{number}.png")
    with pytest.raises(InputError, match="a dataset for segmentation: add `task` segmentation"):
        task_named("classification").plan(str(tmp_path / "streets"), {})


@pytest.mark.parametrize(("name", "hint"), [("clasification", "classification"), ("maee", "mae")])
def test_an_unknown_task_names_the_nearest(name: str, hint: str) -> None:
    with pytest.raises(InputError, match=f"unknown task '{name}': did you mean '{hint}'"):
        task_named(name)
