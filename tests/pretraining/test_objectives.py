"""What every objective adds to a model: its weights follow the seed and nothing else."""

from typing import Any

import pytest
import torch
from torch import Tensor

import vitreous as vt
from vitreous.layers.embedding import ConvolutionStem, from_patches, to_patches
from vitreous.tasks import task_named
from vitreous.tasks.pretraining.mae import MAE
from vitreous.tasks.pretraining.mae_decoder import decoder_for
from vitreous.tasks.pretraining.masked_patch import Corruption, MaskedPatchPrediction
from vitreous.tasks.pretraining.masking import Masking, visible_norm, visible_tokens
from vitreous.tasks.pretraining.rules import sampled_images
from vitreous.tasks.pretraining.task import build_objective

CONVOLUTIONS = {"kind": "convolution", "widths": (8, 8, 8), "strides": (2, 2, 2), "norm": "instance"}
DECODER = {"decoder_width": 16, "decoder_depth": 1, "decoder_heads": 2}
SMALL = {"dino": {"prototypes": 8, "head_hidden": 8, "head_bottleneck": 8}, "mae": DECODER}


@pytest.mark.parametrize("name", ["masked-patch", "mae", "dino", "contrastive"])
def test_new_weights_follow_the_seed(name: str) -> None:
    def added(seed: int, disturbance: int) -> dict[str, torch.Tensor]:
        torch.manual_seed(disturbance)  # what the user's own generator holds makes no difference
        model = vt.create("ViT-Ti/8", image_size=32, num_classes=None, depth=1, width=24, heads=2, mlp_dim=24)
        own = {id(parameter) for parameter in model.parameters()}
        objective = build_objective(model, name, SMALL.get(name), steps=4, seed=seed)
        return {
            key: parameter.detach().clone()
            for key, parameter in objective.named_parameters()
            if id(parameter) not in own and parameter.numel() > 1 and parameter.detach().std() > 0
        }

    first, again, other = added(3, 1), added(3, 2), added(4, 1)
    drawn = [key for key in first if not key.startswith("teacher.")]
    assert drawn
    for key in first:
        assert torch.equal(first[key], again[key]), key
    for key in drawn:
        assert not torch.equal(first[key], other[key]), key


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("masked-patch", {"target": "mean-color"}),
        ("masked-patch", {"target": "small-colors"}),
        ("masked-patch", {"target": "pixels"}),
        ("mae", {}),
        ("mae", {"normalize_pixels": False}),
    ],
)
def test_the_trivial_loss_is_that_of_the_best_constant(
    name: str, settings: dict[str, Any], images: Tensor
) -> None:
    """The objective's own loss, where its prediction is a constant that was fitted to the same targets."""
    model = vt.create("ViT-Ti/8", image_size=32, num_classes=None, depth=1, width=24, heads=2, mlp_dim=24)
    objective = build_objective(model, name, settings, steps=4)
    images = torch.cat(
        [images[:4], torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(3)) / 2]
    )
    prediction = objective.decoder.prediction if name == "mae" else objective.prediction
    torch.nn.init.zeros_(prediction.weight)
    optimizer = torch.optim.LBFGS([prediction.bias], max_iter=30, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        found, _ = objective(images, torch.Generator().manual_seed(0))
        found.backward(inputs=[prediction.bias])
        return found

    optimizer.step(loss)
    trivial = objective.trivial_loss(images, torch.Generator().manual_seed(0)).item()
    best = loss().item()
    assert trivial == pytest.approx(best, rel=0.01)
    assert trivial <= best + 1e-4, "no constant is better"


@pytest.mark.parametrize("stem", [{"kind": "patch"}, CONVOLUTIONS])
def test_no_pixel_of_a_hidden_patch_is_seen(tiny, images, stem):
    """A stem of convolutions sees the neighbors of a patch: they must not bring its pixels in."""
    model, generator = tiny(stem=stem), torch.Generator().manual_seed(0)
    hidden = torch.zeros(len(images), 16, dtype=torch.bool)
    hidden[:, [1, 6, 7, 9, 12, 14]] = True
    noise = torch.randn(images.shape, generator=generator)
    others = from_patches(
        torch.where(hidden.unsqueeze(-1), to_patches(noise, (8, 8)), to_patches(images, (8, 8))),
        (4, 4),
        (8, 8),
    )
    places = hidden.nonzero()[:, 1].view(len(images), -1)
    order = torch.cat([(~hidden).nonzero()[:, 1].view(len(images), -1), places], dim=1)
    zeros = torch.zeros(places.shape)
    given = {
        MAE(model, decoder_for(model.config)): Masking(order, 10),
        MaskedPatchPrediction(model): Corruption(places, zeros, torch.zeros_like(places)),
    }
    for objective, mask in given.items():
        torch.testing.assert_close(objective.predict(others, mask), objective.predict(images, mask))


@pytest.mark.parametrize("norm", ["instance", "layer"])
def test_a_stem_of_convolutions_normalizes_by_what_is_visible(norm: str) -> None:
    """Statistics that count hidden patches are those of no whole image, on which the encoder is used."""
    rng = torch.Generator().manual_seed(0)
    stem = ConvolutionStem(3, 8, widths=(8, 8), strides=(2, 2), norm=norm)
    for parameter in stem.parameters():
        torch.nn.init.normal_(parameter, std=0.3, generator=rng)
    images, visible = torch.randn(4, 3, 32, 32, generator=rng), torch.ones(4, 8, 8, dtype=torch.bool)
    torch.testing.assert_close(visible_tokens(stem, images, visible), stem(images))
    visible[:, :, 4:] = False
    half = visible_tokens(stem, images, visible).unflatten(1, (8, 8))[:, :, :3]  # without those at the border
    alone = stem(images[..., :16]).unflatten(1, (8, 4))[:, :, :3]
    torch.testing.assert_close(half, alone, rtol=0.2, atol=0.2)
    shares = torch.full((4, 1, 1, 1), 0.5)
    z = torch.randn(4, 8, 6, 10, generator=rng) + 3
    affine = torch.nn.GroupNorm(8 if norm == "instance" else 1, 8)
    torch.nn.init.normal_(affine.weight, generator=rng)
    torch.nn.init.normal_(affine.bias, generator=rng)
    seen = torch.cat([z[..., :5], torch.zeros(4, 8, 6, 5)], dim=3)
    found = visible_norm(affine, seen, shares)[..., :5]
    torch.testing.assert_close(found, affine(z[..., :5]), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("mae", {"normalize_pixels": False, **DECODER}),
        ("masked-patch", {"target": "pixels"}),
        ("masked-patch", {}),
    ],
)
def test_what_the_stem_takes_away_is_not_to_be_predicted(tiny, images, name, settings) -> None:
    """A norm of each channel removes the brightness and contrast of an image: no token knows them."""
    objective = build_objective(tiny(stem=CONVOLUTIONS), name, settings, steps=1).eval()
    first, other = (
        objective(each, torch.Generator().manual_seed(0))[0] for each in (images, 0.3 * images - 0.7)
    )
    torch.testing.assert_close(first, other, rtol=0.01, atol=0.01)
    dark, bright = (
        objective.reconstruct(each, torch.Generator().manual_seed(0)).reconstructed
        for each in (images, 3 * images)
    )
    torch.testing.assert_close(3 * dark, bright, rtol=0.02, atol=0.02)


@pytest.mark.parametrize("name", ["masked-patch", "mae"])
def test_a_run_starts_at_the_best_constant(name: str) -> None:
    """Else the tokens learn first what all images share, and what they tell of their image shrinks."""
    task = task_named(name)
    planned = task.plan("world:shapes:200@32,test=64", {"training": {"batch_size": 64}})
    objective = task.build(planned.config, planned.data, steps=1)
    images = sampled_images(planned.data.train, planned.config)
    loss, _ = objective(images, torch.Generator().manual_seed(0))
    trivial = objective.trivial_loss(images, torch.Generator().manual_seed(0)).item()
    assert trivial <= loss.item() < 1.05 * trivial


@pytest.mark.parametrize(("name", "recipe"), [("masked-patch", "paper-masked-patch"), ("mae", "mae")])
def test_the_recipe_of_a_paper_starts_as_its_code_does(name: str, recipe: str) -> None:
    task = task_named(name)
    small = {"model": {"name": "ViT-Ti/16", "image_size": 32}}
    planned = task.plan("synthetic:40@32", small, recipe=recipe)
    assert task.build(planned.config, planned.data, steps=1).last_layer.weight.abs().sum() > 0
