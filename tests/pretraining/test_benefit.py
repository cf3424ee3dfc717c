"""What pre-training brings: the same pictures, labels and settings for every way."""

import numpy as np
import pytest
import torch

from vitreous.data.config import DataConfig
from vitreous.data.sources import open_data
from vitreous.pretraining.benefit import Comparison, Variant, compare, few_labels, mean_and_interval
from vitreous.training.config import TrainingConfig


@pytest.fixture
def comparison() -> Comparison:
    return Comparison(
        splits=open_data("digits", DataConfig()),
        labelled=2,
        pretraining={
            "model": {"width": 16, "depth": 1, "heads": 2, "mlp_dim": 16},
            "training": {"steps": 2, "batch_size": 16},
            "pretraining": {"dino": {"prototypes": 16}},
        },
        training=TrainingConfig(steps=2, batch_size=10),
    )


def test_few_labels_are_drawn_class_by_class(comparison):
    few = few_labels(comparison.splits, 3, seed=1)
    assert np.bincount(few.train.targets).tolist() == [3] * 10
    assert few.test is comparison.splits.test
    again, other = few_labels(comparison.splits, 3, seed=1), few_labels(comparison.splits, 3, seed=2)
    assert [few.train.name(i) for i in range(30)] == [again.train.name(i) for i in range(30)]
    assert [few.train.name(i) for i in range(30)] != [other.train.name(i) for i in range(30)]


def test_every_way_has_the_same_model_and_settings(comparison):
    configs = [comparison.pretraining_config(objective, 0) for objective in ("mae", "simmim", "dino")]
    assert configs[0].model == configs[1].model == configs[2].model
    scratch = comparison.fine_tuning_config(0, None)
    tuned = comparison.fine_tuning_config(0, "elsewhere")
    assert scratch == tuned.model_copy(update={"init": None})
    assert scratch.model.num_classes == 10


def test_runs_that_are_finished_are_not_run_again(comparison, tmp_path):
    device = torch.device("cpu")
    first = list(compare(tmp_path, comparison, objectives=["simmim"], seeds=[0], device=device))
    assert [each.variant for each in first] == [Variant(None, 0), Variant("simmim", 0)]
    assert first[0].pretraining_seconds == 0 < first[1].pretraining_seconds
    files = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("model.safetensors")}
    assert len(files) == 3
    again = list(compare(tmp_path, comparison, objectives=["simmim"], seeds=[0], device=device))
    assert again == first
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("model.safetensors")} == files


def test_the_interval_over_seeds_by_hand():
    mean, low, high = mean_and_interval([0.5, 0.6, 0.7])
    assert mean == pytest.approx(0.6)
    assert high - mean == pytest.approx(4.30 * 0.1 / 3**0.5)
    assert low == pytest.approx(0.6 - 4.30 * 0.1 / 3**0.5)
    assert mean_and_interval([0.5]) == (0.5, 0.0, 1.0)
