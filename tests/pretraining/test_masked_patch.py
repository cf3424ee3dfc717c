"""Appendix B.1.2: proportions, targets by hand, and that it learns."""

import pytest
import torch
import torch.nn.functional as F

from vitreous.errors import InputError
from vitreous.layers.embedding import to_patches
from vitreous.models.bit import BiT, BiTConfig
from vitreous.models.preprocessing import Preprocessing
from vitreous.tasks.pretraining.masked_patch import (
    Corruption,
    MaskedPatchPrediction,
    color_targets,
)
from vitreous.tasks.pretraining.rules import MaskedPatchConfig

TARGETS = ("mean-color", "small-colors", "pixels")


def test_half_of_the_patches_are_corrupted_80_10_10(tiny):
    objective = MaskedPatchPrediction(tiny(image_size=64))
    corruption = objective.draw(2000, torch.Generator().manual_seed(3))
    assert corruption.places.shape == (2000, 32)  # of 64
    assert all(len(set(row.tolist())) == 32 for row in corruption.places[:50])
    share = torch.bincount(corruption.places.flatten(), minlength=64) / 2000
    assert share.sub(0.5).abs().max() < 0.05  # every place equally often
    masked = (corruption.draw < 0.8).float().mean()
    kept = (corruption.draw >= 0.9).float().mean()
    assert masked == pytest.approx(0.8, abs=0.01)
    assert kept == pytest.approx(0.1, abs=0.01)
    assert not (corruption.others == corruption.places).any()
    assert corruption.others.unique().tolist() == list(range(64))


def test_corrupted_embeddings_are_mask_another_or_their_own(tiny):
    objective = MaskedPatchPrediction(tiny())
    embeddings = torch.randn(1, 16, 48)
    corruption = Corruption(
        places=torch.tensor([[2, 5, 7]]),
        draw=torch.tensor([[0.1, 0.85, 0.95]]),
        others=torch.tensor([[9, 11, 3]]),
    )
    corrupted = objective.corrupt(embeddings, corruption)
    assert torch.equal(corrupted[0, 2], objective.mask)
    assert torch.equal(corrupted[0, 5], embeddings[0, 11])
    untouched = [i for i in range(16) if i not in (2, 5)]
    assert torch.equal(corrupted[0, untouched], embeddings[0, untouched])


@pytest.mark.parametrize(
    ("rgb", "color"),
    [
        ((0, 0, 0), 0),
        ((255, 255, 255), 511),
        ((255, 0, 0), 7 * 64),
        ((0, 255, 0), 7 * 8),
        ((0, 0, 255), 7),
        ((31, 32, 96), 0 * 64 + 1 * 8 + 3),  # 31/255 * 8 = 0.97, 32/255 * 8 = 1.004, 96/255 * 8 = 3.01
        ((128, 127, 200), 4 * 64 + 3 * 8 + 6),
    ],
)
def test_mean_color_by_hand(rgb, color):
    preprocessing = Preprocessing(size=(8, 8), mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.25))
    pixels = torch.tensor(rgb, dtype=torch.uint8).view(1, 3, 1, 1).expand(1, 3, 8, 8)
    images = preprocessing.normalize(pixels)
    assert color_targets(images, (8, 8), side=1, preprocessing=preprocessing).tolist() == [[[color]]]


def test_the_mean_is_taken_before_the_rounding():
    preprocessing = Preprocessing(size=(4, 8))
    pixels = torch.zeros(1, 3, 4, 8, dtype=torch.uint8)
    pixels[:, :, :2, :4] = 255  # half of the first patch is white: mean 127.5, level 4
    target = color_targets(preprocessing.normalize(pixels), (4, 4), side=1, preprocessing=preprocessing)
    assert target.tolist() == [[[4 * 64 + 4 * 8 + 4], [0]]]


def test_small_colors_are_in_raster_order_inside_each_patch():
    preprocessing = Preprocessing(size=(8, 16), channels=1, mean=(0.5,), std=(0.5,))
    levels = torch.arange(32).view(4, 8) % 8  # one level for each cell of 2x2 pixels
    pixels = (levels * 32 + 10).to(torch.uint8).repeat_interleave(2, 0).repeat_interleave(2, 1)
    images = preprocessing.normalize(pixels[None, None])
    target = color_targets(images, (8, 8), side=4, preprocessing=preprocessing)
    assert target.shape == (1, 2, 16)
    assert target[0, 0].tolist() == levels[:, :4].flatten().tolist()
    assert target[0, 1].tolist() == levels[:, 4:].flatten().tolist()


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_it_learns_and_the_mask_has_a_gradient(tiny, images, losses, target):
    objective = MaskedPatchPrediction(tiny(), MaskedPatchConfig(target=target))
    before = objective.mask.detach().clone()
    found = losses(objective, images)
    assert sum(found[-5:]) < 0.75 * sum(found[:5])
    assert objective.mask.grad.abs().sum() > 0
    assert not torch.equal(objective.mask, before)


def test_the_pixel_loss_covers_the_corrupted_patches_alone(tiny, images):
    objective = MaskedPatchPrediction(tiny(), MaskedPatchConfig(target="pixels")).eval()
    loss, _ = objective(images, torch.Generator().manual_seed(5))
    corruption = objective.draw(16, torch.Generator().manual_seed(5))
    predicted = objective.predict(images, corruption)
    wanted = to_patches(images, (8, 8))[torch.arange(16)[:, None], corruption.places]
    assert loss.item() == pytest.approx(F.mse_loss(predicted, wanted).item())


def test_the_same_generator_state_gives_the_same_loss(tiny, images):
    objective = MaskedPatchPrediction(tiny()).eval()
    objective.prediction.weight.data *= 20
    same = [objective(images, torch.Generator().manual_seed(7))[0].item() for _ in range(2)]
    other = objective(images, torch.Generator().manual_seed(8))[0].item()
    assert same[0] == same[1] != other


@pytest.mark.parametrize("target", TARGETS)
def test_a_reconstruction_keeps_what_was_not_corrupted(tiny, images, target):
    objective = MaskedPatchPrediction(tiny(), MaskedPatchConfig(target=target)).eval()
    masked, painted = objective.reconstruct(images, torch.Generator().manual_seed(2))
    places = objective.draw(16, torch.Generator().manual_seed(2)).places
    hidden = torch.zeros(16, 16, dtype=torch.bool).scatter(1, places, True)
    assert (to_patches(masked, (8, 8))[hidden] == 0).all()
    for image in (masked, painted):
        assert torch.equal(to_patches(image, (8, 8))[~hidden], to_patches(images, (8, 8))[~hidden])
    assert to_patches(painted, (8, 8))[hidden].abs().sum() > 0


def test_painted_colors_are_the_middle_of_their_level(tiny):
    objective = MaskedPatchPrediction(tiny())
    logits = F.one_hot(torch.tensor([[7 * 64 + 2 * 8]]), 512).float()
    pixels = objective.painted(logits).view(8, 8, 3)
    assert pixels[3, 4].tolist() == pytest.approx([2 * 7.5 / 8 - 1, 2 * 2.5 / 8 - 1, 2 * 0.5 / 8 - 1])


@pytest.mark.parametrize(
    "overrides",
    [
        {"registers": 2},
        {"pooling": "mean", "class_token": False},
        {"position": {"kind": "relative"}},
        {"position": {"kind": "rotary-2d"}},
        {"position": {"kind": "learned-2d", "where": "every-layer"}},
        {"norm": "post", "final_norm": "none"},
        {"image_size": (24, 40)},
        {"image_size": 30, "edge": "pad"},
        {"stem": {"kind": "patch", "form": "linear", "norm_before": True, "norm_after": True}},
    ],
)
def test_every_model_of_whole_patches_can_be_pretrained(tiny, overrides):
    model = tiny(**overrides)
    images = torch.rand(2, 3, *model.config.image_size) * 2 - 1
    objective = MaskedPatchPrediction(model)
    loss, metrics = objective(images, torch.Generator().manual_seed(0))
    loss.backward()
    assert loss.isfinite()
    assert 0 <= metrics["accuracy"] <= 1
    assert objective.reconstruct(images, torch.Generator()).masked.shape == model.whole_patches(images).shape


def test_what_cannot_be_masked_is_told(tiny):
    with pytest.raises(InputError, match="no patch tokens"):
        MaskedPatchPrediction(BiT(BiTConfig(image_size=(32, 32), layers=(1,), width_factor=0.5)))
    with pytest.raises(InputError, match="target=pixels"):
        MaskedPatchPrediction(tiny(channels=5))
