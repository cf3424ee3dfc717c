"""Modules of other libraries, live or stored whole: their attributes say what no weight shows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import vitreous as vt

pytestmark = pytest.mark.slow
SIZES = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 96}


def compare(theirs: Callable[[Any], Any], source: Any, **changes: Any) -> Any:
    loaded: Any = vt.load(source, **changes)
    images = torch.randn(2, 3, *loaded.config.image_size)
    with torch.no_grad():
        expected = theirs(images)
        torch.testing.assert_close(loaded(images), expected, atol=2e-5, rtol=2e-5)
    return loaded


def test_models_of_transformers(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.ViTConfig(
        **SIZES, image_size=32, patch_size=8, hidden_act="gelu_new", layer_norm_eps=1e-4, num_labels=4
    )
    model = transformers.ViTForImageClassification(config).eval()
    torch.save(model, tmp_path / "vit.pt")
    torch.save({"epoch": 1, "model": model}, tmp_path / "inside.pt")
    for path in (tmp_path / "vit.pt", tmp_path / "inside.pt"):
        compare(lambda images: model(images).logits, path)
    config = transformers.Aimv2VisionConfig(**SIZES, image_size=32, patch_size=8, use_head=True)
    pooled = transformers.Aimv2VisionModel(config).eval()
    for parameter in pooled.parameters():
        nn.init.normal_(parameter, std=0.3)
    pooled.save_pretrained(tmp_path / "aimv2")
    for source in (pooled, tmp_path / "aimv2"):
        compare(lambda images: pooled(images).pooler_output, source)


def test_models_of_timm(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    timm = pytest.importorskip("timm")
    sizes = {"depth": 2, "embed_dim": 48, "num_heads": 3, "num_classes": 5}
    for name, more in (
        ("vit_tiny_patch16_224", {"global_pool": "avg", "act_layer": "quick_gelu", "img_size": 32}),
        ("beit_base_patch16_224", {"img_size": 32}),
        ("eva02_tiny_patch14_224", {"img_size": 32}),
    ):
        model = timm.create_model(name, **sizes, patch_size=8, **more).eval()
        torch.save(model, tmp_path / "m.pt")
        compare(model, tmp_path / "m.pt")
        assert "timm.create_model" not in caplog.text
    for name in ("flexivit_small", "vit_tiny_patch16_224"):  # which timm resamples in two ways
        model = timm.create_model(name, **sizes, img_size=48, patch_size=16).eval()
        timm.models.save_for_hf(model, tmp_path / name)
        address = f"local-dir:{tmp_path / name}"
        other = timm.create_model(address, pretrained=True, img_size=48, patch_size=8).eval()
        compare(other, tmp_path / name, patch_size=8)
    model.blocks[0] = nn.Identity()
    with pytest.raises(vt.InputError, match="its first layer has no weights"):
        vt.load(model)


@pytest.mark.parametrize("quick", [False, True])
def test_models_of_open_clip(quick: bool, tmp_path: Path) -> None:
    open_clip = pytest.importorskip("open_clip")
    vision = {"image_size": 32, "layers": 2, "width": 64, "head_width": 32, "patch_size": 8, "mlp_ratio": 2.0}
    text = {"context_length": 8, "vocab_size": 30, "width": 32, "heads": 2, "layers": 1}
    model = open_clip.CLIP(embed_dim=16, vision_cfg=vision, text_cfg=text, quick_gelu=quick).eval()
    torch.save(model, tmp_path / "m.pt")
    for source in (model, model.visual, tmp_path / "m.pt"):
        loaded = compare(model.encode_image, source)
        assert (loaded.config.mlp, loaded.config.heads) == ("quick_gelu" if quick else "gelu", 2)
