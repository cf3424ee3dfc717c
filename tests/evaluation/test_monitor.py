"""What a training run measures on the side."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from vitreous.data.config import DataConfig
from vitreous.data.sources import open_data
from vitreous.errors import InputError
from vitreous.models.vit import ViT
from vitreous.tasks import task_named
from vitreous.tasks.training_run import fit, plan_of_run
from vitreous.training.config import EvaluationConfig, RunConfig
from vitreous.training.run import RunDirectory


def config_for(model: ViT, **evaluation: object) -> RunConfig:
    return RunConfig(
        model=model.config,
        preprocessing=model.preprocessing,
        evaluation=EvaluationConfig(**evaluation),  # type: ignore[arg-type]
    )


def test_fewshot_accuracy_is_measured_during_training(make_model: Callable[..., ViT]) -> None:
    model = make_model(labels=None, classes=10)
    splits = open_data("digits", DataConfig(validation_fraction=0.1))
    measure = task_named("classification").validation(config_for(model, fewshot=True), splits)
    assert measure is not None
    found = measure(model)
    assert found.keys() == {
        "validation_loss",
        "validation_accuracy",
        "validation_fewshot_1",
        "validation_fewshot_5",
        "validation_fewshot_10",
    }
    assert found["validation_fewshot_10"] > 0.15, "even random features tell something about digits"
    assert found == measure(model), "the same images each time"


def test_without_a_validation_part_there_is_nothing_to_measure_on(make_model: Callable[..., ViT]) -> None:
    model = make_model(labels=None, classes=10)
    splits = open_data("digits", DataConfig())
    task = task_named("classification")
    assert task.validation(config_for(model), splits) is None
    with pytest.raises(InputError, match="validation_fraction"):
        task.validation(config_for(model, fewshot=True), splits)


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["mae", "dino"])
def test_fewshot_accuracy_is_measured_during_pretraining(objective: str, tmp_path: Path) -> None:
    settings = {
        "model": {"width": 16, "depth": 1, "heads": 2, "mlp_dim": 16},
        "data": {"validation_fraction": 0.1},
        "training": {"length": "2 steps", "batch_size": 32},
        "evaluation": {"fewshot": True},
    }
    planned = task_named(objective).plan("digits", settings)
    run = RunDirectory.create(tmp_path / "run", planned.config)
    fit(plan_of_run(run, planned.data))
    row = run.metrics()[-1]
    assert {"validation_loss", "validation_fewshot_1", "validation_fewshot_10"} <= row.keys()
    assert row["validation_fewshot_10"] > 0.1
