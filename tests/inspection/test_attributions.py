"""Attributions: right where the answer is known, and a sanity check that can fail."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import vitreous as vt
from vitreous.inspection.attributions import (
    METHODS,
    attribute_batch,
    correlation_in_words,
    integrated_gradients,
    per_patch,
    randomized,
    rank_correlation,
)

from .conftest import images_for, noisy

TINY = {
    "image_size": 32,
    "patch_size": 8,
    "width": 16,
    "depth": 2,
    "heads": 2,
    "mlp_dim": 24,
    "num_classes": 3,
}


@pytest.fixture(scope="module")
def model() -> vt.ViT:
    return noisy(std=0.2, **TINY)


def test_integrated_gradients_of_a_linear_model_are_weight_times_input() -> None:
    linear = nn.Sequential(nn.Flatten(), nn.Linear(12, 2))
    images = torch.randn(3, 3, 2, 2)
    found, difference = integrated_gradients(linear, images, torch.tensor([1, 1, 0]), steps=2)
    weight = linear[1].weight[[1, 1, 0]].reshape(3, 3, 2, 2)
    torch.testing.assert_close(found, weight * images)
    torch.testing.assert_close(found.sum(dim=(1, 2, 3)), difference)


def test_integrated_gradients_add_up_to_the_difference_of_the_logits(model: vt.ViT) -> None:
    images = images_for(model)
    found, said = integrated_gradients(model, images, torch.tensor([0, 2]), steps=50)
    with torch.no_grad():
        difference = (model(images) - model(torch.zeros_like(images)))[[0, 1], [0, 2]]
    assert (found.sum(dim=(1, 2, 3)) - difference).abs().max() < 0.02 * difference.abs().max()
    torch.testing.assert_close(said, difference)


def test_pixels_are_added_up_in_their_patches() -> None:
    pixels = torch.arange(32.0).reshape(1, 2, 4, 4)
    assert per_patch(pixels, (2, 2)).tolist() == [[[84, 100], [148, 164]]]


def test_rank_correlation_is_that_of_spearman() -> None:
    first = torch.tensor([[[1.0, 2.0], [3.0, 4.0]]])
    assert rank_correlation(first, first.square()).item() == pytest.approx(1)
    assert rank_correlation(first, -first).item() == pytest.approx(-1)
    ties = torch.tensor([[[1.0, 1.0], [2.0, 3.0]]])
    assert rank_correlation(first, ties).item() == pytest.approx(0.9486833)  # scipy.stats.spearmanr
    assert rank_correlation(first, torch.ones_like(first)).item() == 0


def test_randomized_weights_keep_their_spread_and_leave_the_model(model: vt.ViT) -> None:
    before = {name: each.clone() for name, each in model.state_dict().items()}
    other = randomized(model)
    assert all(torch.equal(before[name], each) for name, each in model.state_dict().items())
    mine, theirs = model.blocks[0].attention.qkv.weight, other.blocks[0].attention.qkv.weight
    assert abs(rank_correlation(mine[None], theirs[None]).item()) < 0.1
    assert theirs.std().item() == pytest.approx(mine.std().item(), rel=0.1)


def test_a_map_that_does_not_depend_on_the_weights_is_called_so() -> None:
    assert "hardly depends on the weights" in correlation_in_words(0.9, 196)
    assert correlation_in_words(0.1, 196).endswith(": depends on the weights")
    assert correlation_in_words(0.55, 9).endswith(
        ": depends on the weights"
    )  # what chance gives with nine patches


def test_each_method_has_a_map_and_a_check_for_each_image(model: vt.ViT) -> None:
    images, done = images_for(model), []
    found = attribute_batch(model, images, steps=4, progress=lambda now, whole: done.append((now, whole)))
    assert list(found.maps) == list(METHODS)
    for name in METHODS:
        assert found.maps[name].shape == (2, 4, 4)
        assert found.maps[name].min() >= 0
        assert found.correlation[name].abs().max() <= 1
        assert found.correlation[name].max() < 1
    assert done == [(1, 4), (2, 4), (3, 4), (4, 4)]


@pytest.mark.slow
@pytest.mark.peers
@pytest.mark.parametrize("steps", [8, 50])
def test_integrated_gradients_are_those_of_captum(steps: int, model: vt.ViT) -> None:
    captum = pytest.importorskip("captum.attr", reason="captum: make test-slow installs it")
    images, classes = images_for(model), torch.tensor([1, 2])
    expected: Tensor = captum.IntegratedGradients(model).attribute(images, target=classes, n_steps=steps)
    found, _ = integrated_gradients(model, images, classes, steps=steps)
    assert (found - expected).abs().max() < 1e-5
