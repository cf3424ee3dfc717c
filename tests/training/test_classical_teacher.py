"""A classical method teaches a network, and never by what it has learned by heart."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import vitreous as vt
from vitreous.data.config import DataConfig
from vitreous.data.image_samples import Batch
from vitreous.data.sources import open_data
from vitreous.errors import InputError
from vitreous.models.preprocessing import Preprocessing
from vitreous.tasks import classical_teacher
from vitreous.tasks.classical_teacher import ClassicalTeacher
from vitreous.training.config import CLASSICAL

PREPARED = Preprocessing(size=(64, 64))
SMALL = {"model.width": 16, "model.depth": 1, "model.heads": 2, "model.mlp_dim": 16, "model.image_size": 64}


def draw(folder: Path, *, random_labels: bool) -> Path:
    """Stripes of two directions in noise, in folders by their direction or by chance."""
    rng = np.random.default_rng(0)
    for number in range(60):
        rows, columns = np.mgrid[:64, :64]
        shape = ((rows if number % 2 else columns) // 8 % 2) * 150
        pixels = (shape[..., None] + rng.integers(0, 100, (64, 64, 3))).astype(np.uint8)
        label = rng.integers(2) if random_labels else number % 2
        (folder / f"{label}").mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(folder / f"{label}" / f"{number}.png")
    return folder


def taught(data: Path) -> tuple[ClassicalTeacher, Batch]:
    """A teacher of all images, and all of them in a batch in an order of their own."""
    images = open_data(str(data), DataConfig(validation_fraction=0.0, test_fraction=0.0)).train
    teacher = ClassicalTeacher(images, PREPARED, classes=2, mirrored=True)
    order = np.random.default_rng(1).permutation(len(images))
    shown = [image for _, image in images.readable(order)]
    batch = Batch(PREPARED(shown), images.targets.tensor(order), torch.from_numpy(order))
    return teacher, batch


@pytest.mark.parametrize("random_labels", [False, True])
def test_it_knows_what_can_be_known_and_no_label_by_heart(tmp_path: Path, random_labels: bool) -> None:
    teacher, batch = taught(draw(tmp_path / "data", random_labels=random_labels))
    right = float((teacher.of(batch).argmax(dim=1) == batch.targets).float().mean())
    assert right < 0.75 if random_labels else right == 1


def test_it_is_surer_where_it_is_right_more_often(tmp_path: Path) -> None:
    knows, batch = taught(draw(tmp_path / "knows", random_labels=False))
    guesses, other = taught(draw(tmp_path / "guesses", random_labels=True))
    surest, unsure = (
        float(each.of(images).softmax(dim=1).amax(dim=1).mean())
        for each, images in ((knows, batch), (guesses, other))
    )
    assert surest > unsure


def test_a_training_learns_from_it_and_goes_on(tmp_path: Path) -> None:
    data = draw(tmp_path / "data", random_labels=False)
    settings = SMALL | {"training.distillation.teacher": CLASSICAL, "training.distillation.kind": "soft"}
    run = vt.train(data, settings=settings, init="none", epochs=1, out=tmp_path / "run", progress=False)
    assert all("distillation_loss" in row for row in run.metrics if "loss" in row)
    steps = run.metrics[-1]["step"]
    more = vt.Run(tmp_path / "run").resume(epochs=2, progress=False)
    assert more.metrics[-1]["step"] > steps
    assert not list((tmp_path / "run").rglob("*teacher*"))


def test_it_refuses_more_images_than_it_is_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classical_teacher, "MOST_TAUGHT", 10)
    with pytest.raises(InputError, match=r"classical:svm is for 10 images at most"):
        taught(draw(tmp_path / "data", random_labels=False))
