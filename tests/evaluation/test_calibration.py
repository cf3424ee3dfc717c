"""A temperature that is fitted on a validation set, and what uses it."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

import vitreous as vt
from vitreous.data.dataset import LabelTargets
from vitreous.errors import InputError
from vitreous.evaluation import calibration
from vitreous.evaluation.calibration import (
    calibrate_model,
    fit_temperature,
    least_factor,
    read_thresholds,
    scale_head,
    temperature_helps,
    write_best_thresholds,
    write_thresholds,
)
from vitreous.evaluation.classification import evaluate_classification
from vitreous.evaluation.scores import calibration_of as calibration_error


def shy(count: int, temperature: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits that are calibrated when they are divided by `temperature`, and classes sampled from that."""
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(count, 5, generator=generator)
    targets = torch.multinomial(logits.softmax(dim=-1), 1, generator=generator).flatten()
    return logits * temperature, targets


@pytest.mark.parametrize("temperature", [0.3, 1.0, 4.0])
def test_the_temperature_is_found(temperature):
    logits, targets = shy(4000, temperature)
    found = fit_temperature(logits, targets)
    assert found == pytest.approx(temperature, rel=0.1)
    probabilities = (logits / found).softmax(dim=-1).numpy()
    error = calibration_error(probabilities.max(axis=1), probabilities.argmax(axis=1) == targets.numpy()).ece
    assert error < 0.03


def test_the_temperature_of_several_labels():
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(3000, 4, generator=generator)
    targets = torch.bernoulli(logits.sigmoid(), generator=generator)
    assert fit_temperature(logits * 0.5, targets) == pytest.approx(0.5, rel=0.1)


def test_images_that_are_all_right_do_not_mean_certainty():
    logits = 4 * torch.eye(4)[torch.arange(40) % 4]
    temperature = fit_temperature(logits, torch.arange(40) % 4)
    sure = (logits / temperature).softmax(dim=-1).max(dim=-1).values
    assert sure.mean() == pytest.approx(1 - 0.5 / 41, abs=2e-3)


def test_images_that_were_learned_from_help_where_they_agree():
    logits, targets = shy(4000, 0.5)
    few = [slice(first, first + 25) for first in range(0, 500, 50)]
    learned = logits[1000:], targets[1000:]
    alone = [fit_temperature(logits[rows], targets[rows]) for rows in few]
    helped = [fit_temperature(logits[rows], targets[rows], learned) for rows in few]
    errors = [np.abs(np.log(np.array(found) / 0.5)).mean() for found in (alone, helped)]
    assert errors[1] < 0.5 * errors[0]


def test_images_that_are_known_by_heart_change_little():
    logits, targets = shy(1200, 1.0)
    for count in (25, 100, 1000):
        own = fit_temperature(logits[:count], targets[:count])
        by_heart = 3 * logits[1000:], logits[1000:].argmax(dim=1)
        assert fit_temperature(logits[:count], targets[:count], by_heart) == pytest.approx(own, rel=0.2)


def test_a_temperature_that_images_by_chance_ask_for_does_not_help():
    """Labels that say nothing of the logits: on each fifth the temperature of the others is judged."""
    logits, targets = shy(400, 3.0)
    assert temperature_helps(logits, targets)
    few = torch.tensor([[2.0, 0.0], [2.0, 0.0], [2.0, 0.0], [2.0, 0.0], [0.0, 2.0]]).repeat(2, 1)
    wrong = torch.tensor([0, 0, 0, 0, 0, 0, 0, 0, 0, 1])
    assert fit_temperature(few, wrong) != pytest.approx(1.0, rel=0.05)
    assert not temperature_helps(few, wrong)
    sure = torch.tensor([[1.5, 0.0]]).repeat(25, 1)
    assert not temperature_helps(
        sure, torch.eye(25, dtype=torch.long)[0]
    )  # four fifths are asked for it, not one


def test_a_temperature_is_fitted_on_four_fifths_and_tested_on_the_fifth():
    """A fifth of which no image is wrong would ask for certainty, which costs the others dearly."""
    logits, targets = torch.tensor([[2.0, 0.0]]).repeat(100, 1), torch.zeros(100, dtype=torch.long)
    for fold in range(1, 5):
        targets[torch.arange(fold, 100, 5)[:6]] = 1
    assert temperature_helps(logits, targets)


def test_the_search_reaches_the_ends():
    assert least_factor(lambda scale: scale) == pytest.approx(1 / calibration.SEARCHED[1], rel=1e-4)
    assert least_factor(lambda scale: -scale) == pytest.approx(1 / calibration.SEARCHED[0], rel=1e-4)


def test_thresholds_are_of_the_weights_that_they_were_chosen_for(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    targets, probabilities = np.array([[1.0], [0.0]]), np.array([[0.8], [0.4]])
    assert write_best_thresholds(tmp_path, ["cat"], targets, probabilities) == {"cat": pytest.approx(0.6)}
    assert read_thresholds(tmp_path, "run") == {"cat": pytest.approx(0.6)}
    (tmp_path / "model.safetensors").write_bytes(b"others")
    with pytest.raises(InputError, match="no thresholds were chosen for run"):
        read_thresholds(tmp_path, "run")


@pytest.fixture
def model(make_model):
    return make_model().eval()


def test_every_class_keeps_its_rank_and_the_model_its_temperature(images, model, tmp_path):
    with torch.no_grad():
        batch = model.preprocessing([images.image(row) for row in range(4)])
        before = model(batch)
        scale_head(model, 0.4)
        scale_head(model, 2.0)
        np.testing.assert_allclose(model(batch), before / 0.8, rtol=1e-5)
    assert model.temperature == pytest.approx(0.8)
    vt.save(model, tmp_path / "saved")
    assert json.loads((tmp_path / "saved" / "config.json").read_text())["temperature"] == pytest.approx(0.8)
    again = vt.load(tmp_path / "saved")
    assert again.temperature == pytest.approx(0.8)
    assert vt.resize(again, image_size=16).temperature == pytest.approx(0.8)
    evaluation = evaluate_classification(again, images)
    scale_head(again, 1 / 0.8)
    assert evaluation.uncalibrated_error == pytest.approx(
        evaluate_classification(again, images).calibration.ece, abs=1e-5
    )


def test_of_many_logits_some_are_enough(images, model, monkeypatch, tmp_path):
    """Evenly spread; and in parts, as many as are handled in double precision together."""
    exact = fit_temperature(*shy(4000, 2.0))
    monkeypatch.setattr(calibration, "IN_DOUBLE", 999)  # as of a million
    assert fit_temperature(*shy(4000, 2.0)) == pytest.approx(exact, rel=1e-6)
    monkeypatch.setattr(calibration, "MOST_LOGITS", 48)  # as of millions
    before, after = calibrate_model(model, images)
    assert before.names == after.names == tuple(f"made[{number}]" for number in range(0, 31, 2))
    several = csr_array(np.eye(3, dtype=np.float32)[images.targets.strata()])
    images.targets = LabelTargets(several, images.classes)
    model.task = "multilabel"
    few, _ = calibrate_model(model, images)
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    assert write_thresholds(tmp_path, before) is None  # of one label there is the most probable
    assert write_thresholds(tmp_path, few) == read_thresholds(tmp_path, "run")
    assert few.count == 10  # each tells three things, and fewer are not enough for a temperature


def test_few_images_give_no_temperature(images, model):
    with pytest.raises(InputError, match="needs 10 images"):
        calibrate_model(model, images.subset(np.arange(9)))
    assert calibrate_model(model, images.subset(np.arange(10)))[1].count == 10
