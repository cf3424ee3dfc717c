"""Fresh weights: reproducible, the same through the meta device, and those of each scheme's namesake."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

import vitreous as vt
from vitreous.addons.text.config import CaptionerConfig, DecoderConfig, TransformerConfig
from vitreous.addons.text.transformer import Captioner, Transformer
from vitreous.layers.block import LayerScale
from vitreous.layers.initialization import TimmInit, init_weights
from vitreous.models.config import ViTConfig
from vitreous.models.model import build_model
from vitreous.models.names import create
from vitreous.rng import torch_generator

SMALL: dict[str, Any] = {
    "image_size": 32, "patch_size": 8, "width": 24, "depth": 2, "heads": 2, "mlp_dim": 32, "num_classes": 5,
}  # fmt: skip
DECODER = DecoderConfig(vocabulary=20, width=8, depth=1, heads=2, mlp_dim=8, max_length=6, logits_bias=True)
MODELS = {
    "vit": lambda seed: build_model(ViTConfig(**SMALL, layer_scale=0.1), seed=seed),
    "rotary, MAP": lambda seed: build_model(
        ViTConfig(**SMALL, position={"kind": "rotary-2d"}, pooling="attention", class_token=False), seed=seed
    ),
    "relative": lambda seed: build_model(ViTConfig(**SMALL, position={"kind": "relative"}), seed=seed),
    "shared sincos": lambda seed: build_model(
        ViTConfig(**SMALL, position={"kind": "sincos-2d", "where": "every-layer-shared"}), seed=seed
    ),
    "BiT": lambda seed: create("BiT-R50x1", layers=(1, 1), image_size=(32, 32), num_classes=2, seed=seed),
    "segmenter": lambda seed: create("Seg-Ti-Mask/16", image_size=32, depth=1, num_classes=3, seed=seed),
    "captioner": lambda seed: Captioner(
        CaptionerConfig(encoder=ViTConfig(**{**SMALL, "num_classes": None}), decoder=DECODER), seed=seed
    ),
    "transformer": lambda seed: Transformer(
        TransformerConfig(**{**DECODER.model_dump(), "position": "learned", "encoder_depth": 1}), seed=seed
    ),
}


def everything(model: nn.Module) -> dict[str, torch.Tensor]:
    return dict(model.named_parameters()) | dict(model.named_buffers())


@pytest.mark.parametrize("kind", MODELS)
def test_a_seed_means_the_same_weights_through_the_meta_device_as_well(kind: str) -> None:
    make = MODELS[kind]
    state = torch.get_rng_state()
    first, other = everything(make(3)), everything(make(4))
    assert torch.equal(state, torch.get_rng_state())  # nothing comes from the global generator
    assert any(not torch.equal(first[name], other[name]) for name in first)
    with torch.device("meta"):
        model = make(0)
    assert all(tensor.is_meta for tensor in everything(model).values())
    model.to_empty(device="cpu")
    for tensor in everything(model).values():
        tensor.data.zero_()
    init_weights(model, torch_generator(3, "weights"))
    for name, tensor in everything(model).items():
        assert torch.equal(tensor, first[name]), name


def test_create_takes_a_seed() -> None:
    a, b, c = (create("ViT-Ti/16", depth=1, seed=seed).blocks[0].mlp.expand.weight for seed in (1, 1, 2))
    assert torch.equal(a, b)
    assert not torch.equal(a, c)


def test_a_module_without_a_rule_is_an_error() -> None:
    with pytest.raises(TypeError, match="PReLU has parameters"):
        init_weights(nn.PReLU(), torch_generator(0, "weights"))


# Standard deviations of a fresh timm 1.0 VisionTransformer; `test_the_installed_timm` measures them.
TIMM = {
    "stem.projection.weight": 0.02083,  # nn.Conv2d's own: uniform within 1 / sqrt(fan_in)
    "stem.projection.bias": 0.02083,
    "position.table": 0.02,
    "blocks.0.attention.qkv.weight": 0.02,
    "blocks.0.attention.out.weight": 0.02,
    "blocks.0.mlp.expand.weight": 0.02,
    "head.weight": 0.02,
    "prefix": 1e-6,
}
# Those of big_vision: Xavier, LeCun; flax's probe of shape (1, 1, D) has the fans 1 and D.
GOOGLE = {
    "stem.projection.weight": 768**-0.5,
    "position.table": 0.02,
    "blocks.0.attention.qkv.weight": (2 / (768 + 768)) ** 0.5,
    "blocks.0.mlp.expand.weight": (2 / (768 + 3072)) ** 0.5,
    "pool.probe": (2 / 769) ** 0.5,
}
ZERO = {
    "google": ("stem.projection.bias", "head.weight", "head.bias", "blocks.0.mlp.expand.bias"),
    "timm": ("head.bias", "blocks.0.attention.qkv.bias"),
}


@pytest.mark.parametrize(("scheme", "expected"), [("google", GOOGLE), ("timm", TIMM)])
def test_a_scheme_is_its_namesakes(scheme: Any, expected: dict[str, float]) -> None:
    pooled = {"pooling": "attention", "class_token": False} if scheme == "google" else {}
    model = create("ViT-B/16", depth=1, **pooled)
    for parameter in model.parameters():
        parameter.data.fill_(math.nan)  # each is drawn
    init_weights(model, torch_generator(0, "weights"), scheme)
    weights = dict(model.named_parameters())
    for name, std in expected.items():
        assert weights[name].std().item() == pytest.approx(std, rel=0.06), name
    for name in ZERO[scheme]:
        assert not weights[name].any(), name


def test_timms_probe_is_cut_at_two_deviations() -> None:
    probe = torch.empty(1, 1, 10_000)
    TimmInit(torch_generator(0, "weights")).probe(probe)
    assert (probe.min().item(), probe.max().item()) == pytest.approx((-0.02, 0.02), rel=0.01)


@pytest.mark.slow
@pytest.mark.peers
def test_the_installed_timm() -> None:
    timm = pytest.importorskip("timm")
    torch.manual_seed(0)
    theirs = timm.create_model("vit_base_patch16_224", depth=1).state_dict()
    names = {
        "stem.projection": "patch_embed.proj",
        "position.table": "pos_embed",
        "prefix": "cls_token",
        "blocks.0.attention.qkv": "blocks.0.attn.qkv",
        "blocks.0.attention.out": "blocks.0.attn.proj",
        "blocks.0.mlp.expand": "blocks.0.mlp.fc1",
    }
    for name, std in TIMM.items():
        part = next((ours for ours in names if name.startswith(ours)), None)
        their = theirs[name.replace(part, names[part]) if part else name]
        assert their.std().item() == pytest.approx(std, rel=0.06), name
        assert bool(their.abs().max() > 2 * std) == ("stem" not in name)  # a uniform distribution


def test_layer_scale_begins_at_its_value() -> None:
    model = build_model(ViTConfig(**SMALL, layer_scale=0.25))
    scales = [module for module in model.modules() if isinstance(module, LayerScale)]
    assert len(scales) == 4
    assert all(torch.equal(s.gamma, torch.full((24,), 0.25)) for s in scales)


def test_a_model_without_prefix_tokens_has_no_empty_parameter() -> None:
    for position in ("learned", "learned-2d"):
        model = build_model(
            ViTConfig(**SMALL, class_token=False, pooling="mean", position={"kind": position})
        )
        assert model.prefix is None
        assert all(parameter.numel() for parameter in model.parameters())
        assert "prefix" not in model.state_dict()


def test_vt_has_the_seed() -> None:
    assert torch.equal(
        vt.create("ViT-Ti/16", depth=1, seed=5).stem.projection.weight,
        vt.create("ViT-Ti/16", depth=1, seed=5).stem.projection.weight,
    )
