"""ImageNet ReaL: any of several labels is right, and images without one are left out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import vitreous as vt

NAMES = ("ant", "bee", "cat")


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """Twelve validation images in folders of three classes, whose numbers do not follow the folders."""
    rng = np.random.default_rng(0)
    for number in range(1, 13):
        path = tmp_path / "val" / NAMES[number % 3] / f"ILSVRC2012_val_{number:08}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 255, (16, 16, 3), dtype=np.uint8)).save(path)
    return tmp_path / "val"


@pytest.fixture
def model() -> Any:
    made = vt.create("ViT-Ti/16", image_size=16, depth=1, num_classes=3)
    made.labels = NAMES
    return made.eval()


def written(path: Path, labels: object) -> Path:
    path.write_text(json.dumps(labels))
    return path


def test_any_of_the_labels_is_right(images: Path, model: Any, tmp_path: Path) -> None:
    answers = vt.predict(model, images, progress=False)
    predicted = {int(Path(each.path).stem[-8:]): NAMES.index(each.label) for each in answers}
    labels: list[list[int]] = []
    for number in range(1, 13):
        other = (predicted[number] + 1) % 3
        labels.append([[], [predicted[number], other], [other]][number % 3])  # left out, right, wrong
    found = vt.evaluate(model, images, real_labels=written(tmp_path / "real.json", labels), progress=False)
    assert found.metrics["real_accuracy"].value == 4 / 8
    assert found.to_json()["test_real_accuracy"] == 4 / 8
    assert "ReaL accuracy" in [row["metric"] for row in found.table()]
    assert (
        "real_accuracy"
        not in found.subset([i for i, each in enumerate(found.real_labels) if not each]).metrics
    )


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ({"1": [2]}, "is not a list of lists of class numbers"),
        ([[0.5]], "is not a list of lists of class numbers"),
        ([[7]] * 12, "up to 7, but the model has 3 classes"),
        ([[1]] * 5, "is not among the 5 images"),
        ([[]] * 11 + [[]], "has no label for any of these images"),
    ],
)
def test_other_files_are_refused(
    images: Path, model: Any, tmp_path: Path, labels: object, words: str
) -> None:
    """Before the model answers a single image."""
    model.register_forward_pre_hook(lambda *_: pytest.fail("an image was answered"))
    with pytest.raises(vt.InputError, match=words):
        vt.evaluate(model, images, real_labels=written(tmp_path / "real.json", labels), progress=False)


def test_a_missing_file_is_refused_before_images_are_read(images: Path, model: Any) -> None:
    with pytest.raises(vt.InputError, match="cannot be read: No such file"):
        vt.evaluate(model, images, real_labels="no.json", progress=False)
