"""The recipe follows the data, and says why."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from vitreous.data.dataset import DataSummary
from vitreous.errors import InputError
from vitreous.tasks import task_named
from vitreous.tasks.choose import choose_recipe


def summary(**changes: object) -> DataSummary:
    plain: dict[str, object] = {
        "images": 3600,
        "classes": 24,
        "smallest_class": 150,
        "height": 100,
        "width": 120,
        "channels": 3,
        "multi_label": False,
    }
    return DataSummary(**{**plain, **changes})  # type: ignore[arg-type]


def test_the_head_fits_the_classes_and_the_reasons_name_them() -> None:
    choice = choose_recipe("photos", summary())
    assert choice.config.model.num_classes == 24
    assert "3600 images of 24 classes, about 120x100" in choice.reasons[0]
    assert all(reason and not reason.endswith(".") for reason in choice.reasons)


@pytest.mark.parametrize(
    ("images", "epochs", "batch"),
    [(5, 300, 5), (40, 300, 8), (240, 300, 30), (3600, 61, 64), (1_000_000, 20, 64)],
)
def test_fewer_images_are_seen_more_often_in_smaller_batches(images: int, epochs: int, batch: int) -> None:
    training = choose_recipe("photos", summary(images=images)).config.training
    assert (training.epochs, training.batch_size) == (epochs, batch)


def test_mixup_comes_with_long_training_alone() -> None:
    mixup = [choose_recipe("photos", summary(images=n)).config.augmentation.mixup for n in (500, 5000)]
    assert mixup[0] > 0 == mixup[1]


def test_tiny_images_are_not_blown_up() -> None:
    config = choose_recipe("photos", summary(width=28, height=28, channels=1)).config
    assert config.model.image_size == config.preprocessing.size == (32, 32)
    assert config.preprocessing.mean == (0.5,)
    assert config.model.sequence_length == 64


def test_several_labels_are_so_many_questions() -> None:
    assert choose_recipe("photos", summary(multi_label=True)).config.training.loss == "sigmoid"


def test_what_the_user_set_is_told_beside_the_recipe() -> None:
    own = {"training": {"epochs": 2, "schedule": {"warmup": 0.2}}}
    assert task_named("classification").plan("digits", own).reasons[-1] == (
        "your own settings, which take precedence: training.epochs=2, training.schedule.warmup=0.2"
    )
    assert len(task_named("classification").plan("digits", {}).reasons) == 1


def test_images_with_masks_are_not_taken_for_two_classes(tmp_path: Path) -> None:
    for name in ("images", "masks"):
        (tmp_path / "streets" / name).mkdir(parents=True)
        for number in range(4):
            Image.new("L", (8, 8), number).save(tmp_path / "streets" / name / f"{number}.png")
    with pytest.raises(InputError, match="images and their masks: add --task segmentation"):
        task_named("classification").plan(str(tmp_path / "streets"), {})


def test_groups_of_shards_need_shards() -> None:
    with pytest.raises(InputError, match="shard_group needs sharded weights: add --shard"):
        task_named("classification").plan("digits", {"training": {"shard_group": 2}})
    assert (
        task_named("classification")
        .plan("digits", {"training": {"shard_group": 2, "shard": True}})
        .config.training.shard_group
        == 2
    )


@pytest.mark.parametrize(
    ("name", "hint"), [("text", "captioning"), ("classes", "classification"), ("maee", "mae")]
)
def test_an_unknown_task_names_the_nearest(name: str, hint: str) -> None:
    with pytest.raises(InputError, match=f"unknown task '{name}': did you mean '{hint}'"):
        task_named(name)
