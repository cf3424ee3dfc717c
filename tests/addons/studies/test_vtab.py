"""VTAB-1k on a folder of tasks: each is fine-tuned by itself, and groups have means."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import vitreous as vt
from vitreous.addons.studies.vtab import VTAB, TaskScore
from vitreous.errors import InputError
from vitreous.languages import speaking


def make_task(folder: Path, seed: int) -> None:
    random = np.random.default_rng(seed)
    for part, images in (("train", 4), ("test", 3)):
        for label in ("a", "b"):
            place = folder / part / label
            place.mkdir(parents=True)
            for number in range(images):
                pixels = random.integers(0, 255, (20, 20, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(place / f"{number}.png")


def test_each_task_is_fine_tuned_and_counts_in_its_group(tmp_path: Path) -> None:
    for place in ("natural/one", "natural/two", "structured/three"):
        make_task(tmp_path / "tasks" / place, 0)
    sizes = {"image_size": 16, "width": 16, "depth": 1, "heads": 2, "mlp_dim": 16}
    vt.save(vt.create("ViT-Ti/8", num_classes=2, **sizes), tmp_path / "start", format="vitreous")
    settings = {"init": str(tmp_path / "start"), "model.image_size": 16, "training.length": "2 steps"}
    found = vt.study(
        "vtab",
        tmp_path / "tasks",
        out=tmp_path / "out",
        settings=settings | {"training.batch_size": 4},
        progress=False,
    )
    assert [(each.group, each.task, each.count) for each in found.scores] == [
        ("natural", "one", 6),
        ("natural", "two", 6),
        ("structured", "three", 6),
    ]
    assert set(found.means) == {"natural", "structured", "mean"}
    assert found.missing == {"natural": 5, "specialized": 4, "structured": 7}
    assert "natural" in (tmp_path / "out" / "vtab.md").read_text(encoding="utf-8")
    config = (tmp_path / "out" / "natural" / "one" / "config.toml").read_text(encoding="utf-8")
    assert 'recipe = "vtab-1k"' in config


def test_every_task_counts_the_same_in_the_mean_of_all() -> None:
    scores = [TaskScore("natural", name, 0.9, (0.8, 1.0), 10) for name in "abc"]
    found = VTAB((*scores, TaskScore("structured", "d", 0.5, (0.4, 0.6), 1000)), {})
    assert found.means == pytest.approx({"natural": 0.9, "structured": 0.5, "mean": 0.8})
    for language in ("en", "ko"):
        with speaking(language):
            assert "80.0" in found.markdown()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"settings": {"init": "x"}}, "has no tasks: put the folder of each"),
        ({}, "name it by the setting init"),
        ({"settings": {"init": "x"}, "seeds": 3}, "trains each task once"),
    ],
)
def test_what_is_missing_is_named(tmp_path: Path, options: dict, expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        vt.study("vtab", tmp_path, progress=False, **options)
