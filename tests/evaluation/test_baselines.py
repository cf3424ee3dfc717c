"""The classical methods on the very split that a run is judged on."""

from __future__ import annotations

import pytest

from vitreous.data.config import DataConfig
from vitreous.data.sources import open_data
from vitreous.errors import InputError
from vitreous.evaluation.baselines import digits_baselines


@pytest.fixture(autouse=True)
def _quick_baselines() -> None:
    """All settings are fitted here."""


def test_digits_baselines_are_strong() -> None:
    svm, neighbors = digits_baselines(open_data("digits", DataConfig(split_seed=3)))
    assert svm.name == "tuned kernel SVM"
    assert svm.accuracy > 0.98
    assert neighbors.accuracy > 0.97
    assert svm.interval.low < svm.accuracy < svm.interval.high
    assert "gamma" in svm.settings


@pytest.mark.slow
def test_validation_images_are_used_for_fitting() -> None:
    whole = digits_baselines(open_data("digits", DataConfig(split_seed=1)))
    carved = digits_baselines(open_data("digits", DataConfig(split_seed=1, validation_fraction=0.2)))
    assert whole[1].accuracy == pytest.approx(carved[1].accuracy, abs=0.01)


def test_without_a_held_out_part_there_is_nothing_to_compare() -> None:
    with pytest.raises(InputError, match="no held-out part"):
        digits_baselines(open_data("digits", DataConfig(test_fraction=0.0)))
