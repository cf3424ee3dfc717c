"""The recipes do what they are for: a model that has learned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from vitreous.evaluation.classification import evaluate_classification
from vitreous.tasks import task_named
from vitreous.tasks.training_run import fit, plan_of_run
from vitreous.training.run import RunDirectory


def accuracy_of(source: str, folder: Path, settings: dict[str, Any]) -> float:
    """Of the recipe that the data decide, on what was held out."""
    planned = task_named("classification").plan(source, settings)
    run = RunDirectory.create(folder / "run", planned.config)
    model = fit(plan_of_run(run, planned.data)).model
    assert planned.data.test is not None
    return evaluate_classification(model, planned.data.test).accuracy


@pytest.mark.slow  # test_demo.py trains to the end
def test_four_epochs_tell_most_digits_apart(tmp_path: Path) -> None:
    assert accuracy_of("digits", tmp_path, {"training": {"length": "4 epochs"}}) > 0.5


@pytest.mark.slow
def test_the_digits_on_a_split_that_tuned_nothing(tmp_path: Path) -> None:
    """One split of 360 images says little: the mean over splits is in benchmarks/results/digits.json."""
    assert accuracy_of("digits", tmp_path, {"data": {"split": {"seed": 77}}}) > 0.985


@pytest.mark.slow
def test_small_sets_may_differ_in_nothing_but_color(tmp_path: Path) -> None:
    """The from-scratch recipe normalizes every channel of an image by itself; color still comes through."""
    random = np.random.default_rng(0)
    for name, color in {"red": (200, 60, 60), "green": (60, 180, 60), "dark": (40, 40, 40)}.items():
        for part, count in (("train", 30), ("val", 10)):
            folder = tmp_path / "photos" / part / name
            folder.mkdir(parents=True)
            for number in range(count):
                pixels = np.array(color) * random.uniform(0.8, 1.15) + random.normal(0, 10, (70, 80, 3))
                Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(folder / f"{number}.png")
    assert accuracy_of(str(tmp_path / "photos"), tmp_path, {"training": {"length": "15 epochs"}}) > 0.95
