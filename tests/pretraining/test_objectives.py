"""What every objective adds to a model: its weights follow the seed and nothing else."""

from typing import Any

import pytest
import torch
from torch import Tensor

import vitreous as vt
from vitreous.layers.embedding import from_patches, to_patches
from vitreous.tasks.pretraining.dino import DINOConfig
from vitreous.tasks.pretraining.mae import MAE
from vitreous.tasks.pretraining.mae_decoder import decoder_for
from vitreous.tasks.pretraining.masked_patch import Corruption, MaskedPatchPrediction
from vitreous.tasks.pretraining.masking import Masking, SimMIM
from vitreous.tasks.pretraining.rules import PretrainingConfig
from vitreous.tasks.pretraining.task import build_objective

CONVOLUTIONS = {"kind": "convolution", "widths": (8, 8, 8), "strides": (2, 2, 2), "norm": "instance"}
SMALL = DINOConfig(prototypes=8, head_hidden=8, head_bottleneck=8)


@pytest.mark.parametrize("name", ["masked-patch", "mae", "simmim", "dino"])
def test_new_weights_follow_the_seed(name: str) -> None:
    def added(seed: int, disturbance: int) -> dict[str, torch.Tensor]:
        torch.manual_seed(disturbance)  # what the user's own generator holds makes no difference
        model = vt.create("ViT-Ti/8", image_size=32, num_classes=None, depth=1, width=24, heads=2, mlp_dim=24)
        own = {id(parameter) for parameter in model.parameters()}
        objective = build_objective(model, name, PretrainingConfig(dino=SMALL), steps=4, seed=seed)
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


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("masked-patch", {"masked_patch": {"target": "mean-color"}}),
        ("masked-patch", {"masked_patch": {"target": "small-colors"}}),
        ("masked-patch", {"masked_patch": {"target": "pixels"}}),
        ("mae", {}),
        ("mae", {"mae": {"normalize_pixels": False}}),
        ("simmim", {}),
    ],
)
def test_the_trivial_loss_is_that_of_the_best_constant(
    name: str, settings: dict[str, Any], images: Tensor
) -> None:
    """The objective's own loss, where its prediction is a constant that was fitted to the same targets."""
    model = vt.create("ViT-Ti/8", image_size=32, num_classes=None, depth=1, width=24, heads=2, mlp_dim=24)
    objective = build_objective(model, name, PretrainingConfig(**settings), steps=4)
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
        SimMIM(model): hidden.long(),
        MaskedPatchPrediction(model): Corruption(places, zeros, torch.zeros_like(places)),
    }
    for objective, mask in given.items():
        torch.testing.assert_close(objective.predict(others, mask), objective.predict(images, mask))
