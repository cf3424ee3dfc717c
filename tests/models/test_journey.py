"""`describe`: the stages add up to the model, and to the figures that were published."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from vitreous.models.config import ViTConfig
from vitreous.models.costs import describe, layer_costs, memory
from vitreous.models.counting import CountMacs, SavedBytes
from vitreous.models.journey import journey, on_meta
from vitreous.models.names import build_model, config_of

HYBRID = {"kind": "resnet", "layers": (1, 1), "widths": (128, 256)}
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "linear stem": {"stem": {"kind": "patch", "form": "linear", "norm_before": True}},
    "convolution stem": {"stem": {"kind": "convolution", "widths": (4, 6, 8), "strides": (2, 2, 2)}},
    "hybrid": {"stem": HYBRID},
    "no class token": {"class_token": False, "pooling": "mean"},
    "registers, padded": {"registers": 3, "pad": True, "image_size": (30, 17), "pooling": "mean-all"},
    "attention pooling": {"pooling": "attention", "class_token": False},
    "distilled": {"pooling": "class+distillation", "distillation_token": True},
    "two pooled": {"pooling": "class+mean", "final_norm": "pooled", "representation_size": 9},
    "no head": {"num_classes": None, "final_norm": "none"},
    "post-norm": {"norm": "post", "embedding_norm": True},
    "swiglu": {"mlp": "swiglu", "layer_scale": 0.1, "drop_path": 0.2, "dropout": 0.1},
    "qk-norm, relative": {"qk_norm": True, "position": {"kind": "relative"}},
    "relative, shared": {"position": {"kind": "relative", "where": "every-layer-shared"}},
    "rotary": {"position": {"kind": "rotary-2d"}},
    "every layer": {"position": {"where": "every-layer"}},
    "every layer, shared": {"position": {"where": "every-layer-shared", "kind": "learned-2d"}},
}
SMALL = {"image_size": (32, 24), "patch_size": (8, 8), "width": 12, "depth": 3, "heads": 3, "mlp_dim": 20}


@pytest.mark.parametrize("variant", VARIANTS)
def test_stages_add_up_to_the_model(variant: str) -> None:
    config = ViTConfig(**{**SMALL, "num_classes": 5, **VARIANTS[variant]})
    stages = journey(config)
    model, images = on_meta(config)
    with torch.no_grad(), CountMacs() as count:
        logits = model(images)
    assert sum(stage.parameters for stage in stages) == sum(p.numel() for p in model.parameters())
    assert sum(stage.macs for stage in stages) == count.macs
    assert stages[-1].shape == tuple(logits.shape[1:])


@pytest.mark.parametrize("name", ["BiT-R50x1", "R+ViT-Ti/16", "R26+ViT-S/32"])
def test_named_models_with_a_resnet_add_up(name: str) -> None:
    description = describe(config_of(name))
    model, _ = on_meta(config_of(name))
    assert description.parameters == sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize(
    ("name", "millions", "gmacs"),
    [
        ("ViT-Ti/16", 5.72, 1.26),
        ("ViT-S/16", 22.05, 4.61),
        ("ViT-B/16", 86.57, 17.58),
        ("ViT-B/32", 88.2, 4.41),
        ("ViT-L/16", 304.3, 61.6),
        ("ViT-H/14", 632, 167.4),
    ],
)
def test_published_figures(name: str, millions: float, gmacs: float) -> None:
    stages = journey(config_of(name))
    digits = len(f"{millions}".partition(".")[2]) if millions != 632 else 0
    assert round(sum(stage.parameters for stage in stages) / 1e6, digits) == millions
    digits = len(f"{gmacs}".partition(".")[2])
    assert round(sum(stage.macs for stage in stages) / 1e9, digits) == gmacs


def test_the_journey_that_one_can_follow_by_hand() -> None:
    config = config_of(
        "ViT-Ti/16",
        image_size=32,
        width=3,
        heads=3,
        head_dim=4,
        mlp_dim=4,
        stem={"kind": "patch", "norm_before": True, "norm_after": True},
    )
    shapes = [stage.written_shape for stage in journey(config)]
    wanted = ["1x3x32x32", "4x768", "4x3", "5x3", "3 heads of 5x4", "5x12", "5x3"]
    found = iter(shapes)
    assert all(shape in found for shape in wanted), shapes  # in this order
    assert shapes[-2:] == ["3", "1000"]


def test_saved_activations_are_those_of_a_real_backward_pass() -> None:
    """Counted on the meta device with attention fused; measured here with the fused kernel of the CPU."""
    config = ViTConfig(**SMALL, num_classes=5, drop_path=0.0)
    model = build_model(config).train()
    saved = SavedBytes([*model.parameters(), *model.buffers()])
    with torch.autograd.graph.saved_tensors_hooks(saved.pack, lambda tensor: tensor):
        model(torch.zeros(1, 3, *config.image_size))
    assert memory(config).activations == pytest.approx(saved.bytes, rel=0.02)


def test_memory_counts_each_part() -> None:
    config = config_of("ViT-B/16")
    found = memory(config)
    parameters = 86_567_656
    assert found.weights == found.gradients == 4 * parameters
    assert found.optimizer == 8 * parameters
    widest = 4 * 197 * 3072
    assert 2 * widest < found.working < 4 * widest  # GELU's input and output, and the residual
    assert found.training > found.inference


def test_the_three_costs() -> None:
    attention, recurrent, convolution = layer_costs(197, 768)
    assert (attention.work, attention.sequential, attention.path) == (197**2 * 768, 1, 1)
    assert (recurrent.work, recurrent.sequential, recurrent.path) == (197 * 768**2, 197, 197)
    assert (convolution.work, convolution.sequential, convolution.path) == (3 * 197 * 768**2, 1, 5)
