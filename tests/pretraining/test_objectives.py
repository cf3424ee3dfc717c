"""What every objective adds to a model: its weights follow the seed and nothing else."""

import pytest
import torch

import vitreous as vt
from vitreous.tasks.pretraining.dino import DINOConfig
from vitreous.tasks.pretraining.task import PretrainingConfig, build_objective

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
