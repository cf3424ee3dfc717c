"""MAE's parts; its equality with the authors' numbers is in tests/golden."""

import numpy as np
import pytest
import torch

from vitreous.data.dataset import ArrayImages, DataSummary
from vitreous.data.image_list import ImageList
from vitreous.data.sources import summarize
from vitreous.errors import InputError
from vitreous.layers.embedding import sincos_of_mae
from vitreous.tasks import task_named
from vitreous.tasks.pretraining.mae import MAE
from vitreous.tasks.pretraining.mae_decoder import decoder_for
from vitreous.tasks.pretraining.masking import statistics
from vitreous.tasks.pretraining.rules import MAEConfig, flat_share

SMALL = {"decoder_width": 24, "decoder_depth": 1, "decoder_heads": 2, "decoder_mlp_dim": 48}


def test_three_quarters_are_removed_the_lowest_noise_stays(tiny):
    mae = MAE(tiny(), MAEConfig(**SMALL))
    masking = mae.mask(mae.draw(5, torch.Generator().manual_seed(0)))
    assert masking.visible == 4
    assert masking.removed.shape == (5, 12)
    noise = mae.draw(5, torch.Generator().manual_seed(0))
    for row, removed in zip(noise, masking.removed, strict=True):
        visible = sorted(set(range(16)) - set(removed.tolist()))
        assert row[visible].max() < row[removed].min()


def test_the_encoder_never_sees_a_removed_patch(tiny, images):
    mae = MAE(tiny(), MAEConfig(**SMALL)).eval()
    masking = mae.mask(mae.draw(16, torch.Generator().manual_seed(0)))
    changed = images.clone()
    row, column = divmod(int(masking.removed[0, 0]), 4)
    changed[0, :, row * 8 : row * 8 + 8, column * 8 : column * 8 + 8] = 9.0
    tokens = mae.encode(images, masking)
    assert tokens.shape == (16, 1 + 4, 48)
    assert torch.equal(tokens, mae.encode(changed, masking))
    row, column = divmod(int(masking.order[0, 0]), 4)
    changed[0, :, row * 8 : row * 8 + 8, column * 8 : column * 8 + 8] = 9.0
    assert not torch.allclose(tokens, mae.encode(changed, masking))


def test_the_encoder_is_the_model_itself_when_nothing_is_removed(tiny, images):
    model = tiny(registers=2)
    mae = MAE(model, MAEConfig(mask_ratio=0.0, **SMALL)).eval()
    model.eval()
    noise = torch.arange(16.0).expand(16, -1)  # in order
    assert torch.allclose(mae.encode(images, mae.mask(noise)), model.tokens(images), atol=1e-6)


def test_it_learns_with_gradients_for_mask_and_encoder(tiny, images, losses):
    mae = MAE(tiny(), MAEConfig(**SMALL))
    found = losses(mae, images)
    assert sum(found[-5:]) < 0.75 * sum(found[:5])
    assert mae.decoder.mask.grad.abs().sum() > 0
    assert mae.model.stem.projection.weight.grad.abs().sum() > 0


def test_pixels_are_normalized_with_unbiased_variance():
    mean, std = statistics(torch.tensor([[[1.0, 2.0, 3.0, 6.0]]]))
    assert mean.item() == 3
    assert std.item() == pytest.approx((14 / 3 + 1e-6) ** 0.5)


def test_positions_put_the_column_first():
    table = sincos_of_mae((2, 3), 8)
    assert table.shape == (6, 8)
    assert table[0].tolist() == [0, 0, 1, 1, 0, 0, 1, 1]
    # Patch 4 is row 1, column 1; patch 2 is row 0, column 2. Frequencies 1 and 1/100.
    at = torch.tensor([2.0, 0.02])
    assert torch.allclose(table[2, :4], torch.cat([at.sin(), at.cos()]))
    assert torch.allclose(table[4, :4], table[4, 4:])


def test_a_reconstruction_with_perfect_prediction_is_the_image(tiny, images):
    from vitreous.layers.embedding import to_patches

    class Perfect(MAE):
        def predict(self, images, masking):
            patches = to_patches(images, (8, 8))
            mean, std = statistics(patches)
            return (patches - mean) / std

    mae = Perfect(tiny(), MAEConfig(**SMALL)).eval()
    masked, filled = mae.reconstruct(images, torch.Generator().manual_seed(0))
    assert torch.allclose(filled, images, atol=1e-5)
    assert (masked == 0).float().mean() == pytest.approx(0.75, abs=0.01)
    masking = mae.mask(mae.draw(16, torch.Generator().manual_seed(0)))
    assert mae.loss(images, mae.predict(images, masking), masking).item() < 1e-10


@pytest.mark.parametrize(
    "overrides",
    [
        {"registers": 3},
        {"pooling": "mean", "class_token": False},
        {"position": {"kind": "sincos-2d"}},
        {"position": {"kind": "learned-2d"}},
        {"image_size": (24, 40)},
        {"image_size": 30, "edge": "pad"},
        {"channels": 1},
    ],
)
def test_other_models_work(tiny, overrides):
    model = tiny(**overrides)
    images = torch.rand(2, model.config.channels, *model.config.image_size)
    loss, _ = MAE(model, decoder_for(model.config))(images, torch.Generator().manual_seed(0))
    assert loss.isfinite()


@pytest.mark.parametrize(
    "position", [{"kind": "relative"}, {"kind": "rotary-2d"}, {"kind": "learned", "where": "every-layer"}]
)
def test_positions_that_count_all_tokens_are_refused(tiny, position):
    with pytest.raises(InputError, match="MAE removes tokens"):
        MAE(tiny(position=position))


@pytest.mark.parametrize(("width", "heads"), [(48, 3), (192, 3), (384, 6), (64, 1), (20, 5)])
def test_small_encoders_get_decoders_that_can_be_built(tiny, width, heads):
    model = tiny(width=width, heads=heads)
    mae = MAE(model, decoder_for(model.config))
    assert mae.config.decoder_width <= max(width, 4 * heads)


@pytest.mark.parametrize(("spread", "normalized"), [(2.0, False), (50.0, True)])
def test_the_target_follows_the_share_of_flat_patches(spread, normalized):
    """A patch of a plain ground with the noise of a sensor would be noise of unit variance."""
    rng = np.random.default_rng(0)
    pixels = np.clip(128 + spread * rng.standard_normal((20, 64, 64, 3)), 0, 255).astype(np.uint8)
    images = ArrayImages(pixels, np.zeros(20, dtype=np.int64), ("a", "b"), name="made")
    task = task_named("mae")
    config = task.rules(DataSummary(20, 2, 64, 64, 3, False))
    assert flat_share(images, config, config.model.patch_size) == pytest.approx(1 - normalized, abs=0.02)
    chosen = task.fitted(config, summarize(images)[0], images)
    assert chosen["pretraining"]["mae"]["normalize_pixels"] is normalized
    assert config.model.position.kind == "sincos-2d"
    assert config.augmentation.flip == (0.5, 0.0)


def test_flat_patches_are_counted_in_images_of_many_bands():
    rng = np.random.default_rng(0)
    pixels = np.clip(128 + 50 * rng.standard_normal((4, 64, 64, 5)), 0, 255).astype(np.uint8)
    pixels[:, :32] = 7
    images = ImageList(list(pixels))
    summary, _ = summarize(images)
    assert summary.channels == 5
    config = task_named("mae").rules(summary)
    assert flat_share(images, config, config.model.patch_size) == pytest.approx(0.5, abs=0.02)
