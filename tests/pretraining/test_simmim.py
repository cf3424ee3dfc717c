"""SimMIM: units, the mask, the loss."""

import pytest
import torch

from vitreous.layers.embedding import to_patches
from vitreous.tasks.pretraining.masking import SimMIM, SimMIMConfig


def test_whole_units_are_hidden(tiny):
    objective = SimMIM(tiny(image_size=64))  # 8x8 patches in 4x4 units
    hidden = objective.draw(300, torch.Generator().manual_seed(0)).view(300, 8, 8)
    units = hidden.view(300, 4, 2, 4, 2).sum(dim=(2, 4))
    assert set(units.unique().tolist()) == {0, 4}
    assert (units == 4).sum(dim=(1, 2)).unique().tolist() == [10]  # 60 % of 16, rounded up


def test_units_at_the_border_are_cut(tiny):
    objective = SimMIM(tiny(image_size=40))  # 5x5 patches
    hidden = objective.draw(50, torch.Generator().manual_seed(0))
    assert hidden.shape == (50, 25)


def test_it_learns_and_the_mask_has_a_gradient(tiny, images, losses):
    objective = SimMIM(tiny())
    found = losses(objective, images)
    assert sum(found[-5:]) < 0.75 * sum(found[:5])
    assert objective.mask.grad.abs().sum() > 0


def test_the_loss_is_the_mean_absolute_error_of_hidden_pixels(tiny, images):
    objective = SimMIM(tiny(), SimMIMConfig(unit=1)).eval()
    loss, _ = objective(images, torch.Generator().manual_seed(4))
    hidden = objective.draw(16, torch.Generator().manual_seed(4))
    errors = (objective.predict(images, hidden) - to_patches(images, (8, 8))).abs()
    assert loss.item() == pytest.approx(errors[hidden.bool()].mean().item())


def test_hidden_pixels_are_not_seen(tiny, images):
    objective = SimMIM(tiny()).eval()
    hidden = objective.draw(16, torch.Generator().manual_seed(4))
    masked, filled = objective.reconstruct(images, torch.Generator().manual_seed(4))
    again = objective.predict(masked, hidden)
    assert torch.allclose(again, objective.predict(images, hidden))
    here = hidden.bool()
    assert torch.equal(to_patches(filled, (8, 8))[~here], to_patches(images, (8, 8))[~here])
