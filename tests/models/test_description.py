"""`describe`: the stages are those of the paper, and add up to the model and to published figures."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from vitreous.addons.text.config import CaptionerConfig, DecoderConfig, TransformerConfig
from vitreous.addons.text.transformer import Captioner, Transformer
from vitreous.models.config import ViTConfig
from vitreous.models.config_parts import Config
from vitreous.models.description import Description, describe
from vitreous.models.model import build_model
from vitreous.models.names import config_of
from vitreous.models.vit import ViT

# Written by the second implementation of each architecture that `describe` was until version 0.2.
EXPECTED = json.loads(Path(__file__).with_name("descriptions.json").read_text())

HYBRID = {"kind": "resnet", "layers": (1, 1), "widths": (128, 256)}
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "linear stem": {"stem": {"kind": "patch", "form": "linear", "norm_before": True}},
    "convolution stem": {"stem": {"kind": "convolution", "widths": (4, 6, 8), "strides": (2, 2, 2)}},
    "hybrid": {"stem": HYBRID},
    "no class token": {"class_token": False, "pooling": "mean"},
    "registers, padded": {"registers": 3, "edge": "pad", "image_size": (30, 17), "pooling": "mean-all"},
    "attention pooling": {"pooling": "attention", "class_token": False},
    "distilled": {"pooling": "class+distillation"},
    "two pooled": {"pooling": "class+mean", "final_norm": "pooled", "representation_size": 9},
    "no head": {"num_classes": None, "final_norm": "none"},
    "post-norm": {"norm": "post", "extra_norms": ("tokens",)},
    "swiglu": {"mlp": "swiglu", "layer_scale": 0.1, "drop_path": 0.2, "dropout": 0.1},
    "qk-norm, relative": {"qk_norm": "head", "position": {"kind": "relative"}},
    "relative, shared": {"position": {"kind": "relative", "shared": True}},
    "rotary": {"position": {"kind": "rotary-2d"}},
    "every layer": {"position": {"where": "every-layer"}},
    "every layer, shared": {"position": {"where": "every-layer-shared", "kind": "learned-2d"}},
}
SMALL = {"image_size": (32, 24), "patch_size": (8, 8), "width": 12, "depth": 3, "heads": 3, "mlp_dim": 20}


CONFIGS: dict[str, Config] = {
    name: ViTConfig(**{**SMALL, "num_classes": 5, **fields}) for name, fields in VARIANTS.items()
} | {
    "BiT post": config_of("BiT-R50x1", order="post-activation", standardization="std", num_classes=None),
    "Seg cells": config_of("Seg-Ti-Mask/16", image_size=(32, 48), cells=4, class_token=False, edge="pad"),
}


LARGE = {"ViT-L/16", "ViT-H/14", "R50+ViT-B/16", "R26+ViT-S/32"}  # whose description takes a second
NAMES = [pytest.param(name, marks=pytest.mark.slow if name in LARGE else ()) for name in EXPECTED]


@cache
def described(name: str) -> Description:
    """Of a variant or a model's name."""
    return describe(CONFIGS.get(name) or config_of(name))


@pytest.mark.parametrize("name", NAMES)
def test_numbers_of_every_variant(name: str) -> None:
    found = described(name)
    expected = EXPECTED[name]
    rows = [
        [stage.name, stage.equation, stage.written_shape, stage.times, stage.parameters, stage.macs]
        for stage in found.stages
    ]
    assert rows == expected["rows"]
    assert (found.parameters, found.macs) == (expected["parameters"], expected["macs"])
    assert list(found.sequence) == expected["sequence"]


@pytest.mark.skipif(
    hasattr(ViT.forward, "__wrapped__"), reason="checked functions hold their arguments longer"
)
@pytest.mark.parametrize("name", NAMES)
def test_memory_of_every_variant(name: str) -> None:
    """Every change of it shows here: less is progress, and the number of the file follows."""
    assert list(described(name).memory) == EXPECTED[name]["memory"]


@pytest.mark.parametrize("variant", VARIANTS)
def test_stages_add_up_to_the_model(variant: str) -> None:
    model = build_model(CONFIGS[variant])
    found = describe(model)
    assert found.parameters == sum(p.numel() for p in model.parameters())
    assert found.stages[-1].shape == tuple(model(torch.zeros(1, 3, *model.config.image_size)).shape[1:])
    assert not any("described" in vars(module) for module in model.modules())


def test_a_description_prints_as_tables() -> None:
    found = describe(config_of("ViT-Ti/16"), batch_size=3)
    lines = str(found).splitlines()
    columns = ["stage", "in the paper", "shape", "layers", "parameters", "MACs"]
    assert re.split("  +", lines[0].strip()) == columns
    assert re.split("  +", lines[2].strip())[:3] == ["image", "x", "1x3x224x224"]
    assert lines[lines.index("") - 1].split() == ["total", "5,717,416", "1.26", "G"]
    assert any(line.startswith("memory, fp32, 3 images") for line in lines)


def test_models_that_write_text_add_up() -> None:
    decoder = DecoderConfig(vocabulary=30, width=8, depth=2, heads=2, mlp_dim=16, max_length=7)
    captioner = Captioner(CaptionerConfig(encoder=ViTConfig(**SMALL, num_classes=None), decoder=decoder))
    transformer = Transformer(TransformerConfig(**{**decoder.model_dump(), "source_vocabulary": 9}))
    for model in (captioner, transformer):
        found = describe(model)
        assert found.parameters == sum(p.numel() for p in model.parameters())
        assert found.stages[-1].name == "logits"
        assert found.stages[-1].shape == (7, 30)


def test_a_batch_needs_more_memory_for_activations_only() -> None:
    one, two = (describe(CONFIGS["plain"], batch_size=size) for size in (1, 2))
    assert two.memory.activations == 2 * one.memory.activations
    assert (two.memory.weights, two.macs) == (one.memory.weights, one.macs)


@pytest.mark.parametrize(
    ("name", "millions", "gmacs"),
    [
        ("ViT-Ti/16", 5.72, 1.26),
        ("ViT-S/16", 22.05, 4.61),
        ("ViT-B/16", 86.57, 17.58),
        ("ViT-B/32", 88.2, 4.41),
        pytest.param("ViT-L/16", 304.3, 61.6, marks=pytest.mark.slow),
        pytest.param("ViT-H/14", 632, 167.4, marks=pytest.mark.slow),
    ],
)
def test_published_figures(name: str, millions: float, gmacs: float) -> None:
    stages = described(name).stages
    digits = len(f"{millions}".partition(".")[2]) if millions != 632 else 0
    assert round(sum(stage.parameters for stage in stages) / 1e6, digits) == millions
    digits = len(f"{gmacs}".partition(".")[2])
    assert round(sum(stage.macs for stage in stages) / 1e9, digits) == gmacs


def test_each_step_of_vit_b_16_costs_what_one_computes_by_hand() -> None:
    layers, tokens, width, wide, heads, head_dim = 12, 197, 768, 3072, 12, 64
    normalization = 2 * width, 5 * tokens * width
    map_macs = heads * tokens * tokens * head_dim
    steps = {
        "x_p E, Eq. 1": (768 * width + width, 196 * 768 * width),
        "+ E_pos, Eq. 1": (tokens * width, 0),
        "LN(z), Eq. 2": normalization,
        "z U_qkv, Eq. 5": (3 * (width * width + width), 3 * tokens * width * width),
        "A, Eq. 6": (0, map_macs),
        "A v, Eq. 7": (0, map_macs),
        "... U_msa, Eq. 8": (width * width + width, tokens * width * width),
        "LN(z'), Eq. 3": normalization,
        "MLP, wide": (width * wide + wide, tokens * width * wide),
        "MLP, back": (wide * width + width, tokens * wide * width),
        "LN, Eq. 4": normalization,
        "head": (width * 1000 + 1000, width * 1000),
    }
    found = {name: each for each in described("ViT-B/16").stages for name in (each.equation, each.name)}
    for name, numbers in steps.items():
        step = found[name]
        assert step.times in (1, layers)
        assert (step.parameters, step.macs) == tuple(step.times * number for number in numbers), name
    assert described("ViT-B/16").macs == sum(found[name].times * macs for name, (_, macs) in steps.items())


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
    shapes = [stage.written_shape for stage in describe(config).stages]
    wanted = ["1x3x32x32", "4x768", "4x3", "5x3", "3 heads of 5x4", "5x12", "5x3"]
    found = iter(shapes)
    assert all(shape in found for shape in wanted), shapes  # in this order
    assert shapes[-2:] == ["3", "1000"]


def test_saved_activations_are_those_of_a_real_backward_pass() -> None:
    """Counted on the meta device with attention fused; measured here with the fused kernel of the CPU."""
    config = ViTConfig(**SMALL, num_classes=5, drop_path=0.0)
    model = build_model(config).train()
    known = {tensor.data_ptr() for tensor in (*model.parameters(), *model.buffers())}
    saved: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = model(torch.zeros(1, 3, *config.image_size))
    assert result.requires_grad  # the graph keeps what was saved
    assert describe(config).memory.activations == pytest.approx(sum(saved.values()), rel=0.02)


def test_memory_counts_each_part() -> None:
    config = config_of("ViT-B/16")
    found = describe(config).memory
    parameters = 86_567_656
    assert found.weights == found.gradients == 4 * parameters
    assert found.optimizer == 8 * parameters
    widest = 4 * 197 * 3072
    assert 2 * widest < found.working < 4 * widest  # GELU's input and output, and the residual
    assert found.training > found.inference
