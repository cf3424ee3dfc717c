"""What the peers' own code writes, of every family that is read here, computes the same. A peer that is not
installed is named by the test that needs it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import vitreous as vt

pytestmark = [pytest.mark.slow, pytest.mark.peers]
TOLERANCE = 2e-5


@torch.no_grad()
def drawn(model: Any) -> Any:
    """Every weight drawn, none zero."""
    for name, parameter in model.named_parameters():
        one = parameter.ndim == 1 and "weight" in name and "norm" in name.lower()
        parameter.copy_(0.15 * torch.randn(parameter.shape) + float(one))
    return model.eval()


SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "image_size": 32,
    "patch_size": 8,
}
TEXT = {
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "vocab_size": 50,
}
DINO = {name: value for name, value in SIZES.items() if name != "intermediate_size"}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "ViTForImageClassification": ("ViTConfig", SIZES),
    "ViTModel": ("ViTConfig", SIZES | {"hidden_act": "gelu_new"}),
    "DeiTForImageClassification": ("DeiTConfig", SIZES),
    "DeiTForImageClassificationWithTeacher": ("DeiTConfig", SIZES),
    "Dinov2Model": ("Dinov2Config", DINO),
    "Dinov2ForImageClassification": ("Dinov2Config", DINO | {"use_swiglu_ffn": True}),
    "Dinov2WithRegistersModel": ("Dinov2WithRegistersConfig", DINO),
    "IJepaForImageClassification": ("IJepaConfig", SIZES),
    "ViTMAEModel": ("ViTMAEConfig", SIZES | {"mask_ratio": 0.0}),
    "CLIPVisionModel": ("CLIPVisionConfig", SIZES),
    "CLIPVisionModelWithProjection": ("CLIPVisionConfig", SIZES | {"projection_dim": 16}),
    "CLIPModel": ("CLIPConfig", {"vision_config": SIZES, "text_config": TEXT, "projection_dim": 16}),
    "SiglipVisionModel": ("SiglipVisionConfig", SIZES),
    "SiglipModel": ("SiglipConfig", {"vision_config": SIZES, "text_config": TEXT}),
    "SiglipForImageClassification": ("SiglipConfig", {"vision_config": SIZES, "text_config": TEXT}),
}


@pytest.mark.parametrize("name", FAMILIES)
@torch.no_grad()
def test_transformers(name: str, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    config, fields = FAMILIES[name]
    peer = drawn(getattr(transformers, name)(getattr(transformers, config)(**fields)))
    peer.save_pretrained(tmp_path)
    model = vt.load(tmp_path)
    images = torch.randn(2, 3, 32, 32)
    if name == "ViTMAEModel":  # its patches come out shuffled, its class token does not
        theirs = peer(pixel_values=images, noise=torch.rand(2, 16)).last_hidden_state[:, 0]
    elif name in ("CLIPModel", "SiglipModel"):
        theirs = peer.get_image_features(pixel_values=images)
        theirs = getattr(theirs, "pooler_output", theirs)
    else:
        output = peer(pixel_values=images)
        found = [output[key] for key in ("logits", "image_embeds", "pooler_output") if key in output]
        theirs = found[0]
    assert (model(images) - theirs).abs().max() < TOLERANCE


@pytest.mark.parametrize(
    "name", [name for name in FAMILIES if name not in ("ViTMAEModel", "CLIPModel", "SiglipModel")]
)
@torch.no_grad()
def test_the_names_that_transformers_has_in_memory(name: str, tmp_path: Path) -> None:
    """`torch.save(model.state_dict())` has others than `save_pretrained`, since transformers 5."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    config, fields = FAMILIES[name]
    peer = drawn(getattr(transformers, name)(getattr(transformers, config)(**fields)))
    peer.save_pretrained(tmp_path / "m")
    torch.save(peer.state_dict(), tmp_path / "m.pth")
    images = torch.randn(2, 3, 32, 32)
    if fields.get("use_swiglu_ffn"):
        with pytest.raises(vt.InputError, match="save_pretrained"):
            vt.load(tmp_path / "m.pth", like=str(tmp_path / "m"))
        return
    bare = vt.load(tmp_path / "m.pth", like=str(tmp_path / "m"))
    assert torch.equal(bare(images), vt.load(tmp_path / "m")(images))


SPARSE = (
    "ViT",
    "DeiT",
    "Dinov2",
    "Dinov2WithRegisters",
    "IJepa",
    "ViTMSN",
    "CLIPVision",
    "SiglipVision",
    "DINOv3ViT",
    "MLCDVision",
    "InternVLVision",
)
SIZES = {"MLCDVision": 336, "InternVLVision": 448}


@pytest.mark.parametrize("kind", SPARSE)
@torch.no_grad()
def test_a_config_that_has_only_what_is_not_the_default(kind: str, tmp_path: Path) -> None:
    """As releases of transformers write it: heads, activation, eps and size are the model_type's own."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    heads = getattr(transformers, f"{kind}Config")().num_attention_heads
    more = {"num_register_tokens": 4} if kind == "DINOv3ViT" else {}
    config = getattr(transformers, f"{kind}Config")(
        hidden_size=4 * heads, num_hidden_layers=2, intermediate_size=64, **more
    )
    peer = drawn(getattr(transformers, f"{kind}Model")(config)).double()
    for name, parameter in peer.named_parameters():
        if "embeddings" in name:
            parameter.mul_(0.01)  # so that an eps is seen
    peer.save_pretrained(tmp_path)
    usual = getattr(transformers, f"{kind}Config")().to_dict()
    entries = {key: value for key, value in config.to_dict().items() if usual.get(key) != value}
    assert not entries.keys() & {"num_attention_heads", "hidden_act", "layer_norm_eps", "image_size"}
    (tmp_path / "config.json").write_text(json.dumps(entries | {"model_type": config.model_type}))
    model = vt.load(tmp_path).double()
    images = torch.randn(1, 3, *model.config.image_size).double()
    theirs = peer(pixel_values=images)
    found = (
        theirs.pooler_output if theirs.get("pooler_output") is not None else theirs.last_hidden_state[:, 0]
    )
    if kind in ("IJepa", "InternVLVision"):
        found = theirs.last_hidden_state[:, int(model.config.class_token) :].mean(1)
    assert model.config.image_size == (SIZES.get(kind, 224),) * 2
    assert (model(images) - found).abs().max() < 1e-6


ARCHITECTURES: dict[str, dict[str, Any]] = {
    "vit_tiny_patch16_224": {},
    "deit_tiny_distilled_patch16_224": {},
    "deit3_small_patch16_224": {},
    "vit_base_patch32_clip_224": {},
    "vit_base_patch32_clip_quickgelu_224": {},
    "vit_base_patch16_siglip_224": {},
    "vit_so400m_patch16_siglip_256": {"embed_dim": 288, "mlp_ratio": 2.0, "num_heads": 4},
    "vit_giant_patch14_reg4_dinov2": {"embed_dim": 192, "num_heads": 3},
    "vit_little_patch16_reg4_gap_256": {},
    "flexivit_small": {},
    "vit_intern300m_patch14_448": {"embed_dim": 192, "num_heads": 3, "img_size": 112},
    "vit_tiny_r_s16_p8_224": {},
    "vit_small_r26_s32_224": {},
    "vit_base_r50_s16_224": {"embed_dim": 192, "num_heads": 3},
}


@pytest.mark.parametrize("name", ARCHITECTURES)
@torch.no_grad()
def test_timm(name: str, timm: Any, tmp_path: Path) -> None:
    args = {"depth": 2, "num_classes": 7} | ARCHITECTURES[name]
    if "patch14" not in name:
        args["img_size"] = 64
    peer = drawn(timm.create_model(name, **args))
    from safetensors.torch import save_file

    save_file(peer.state_dict(), tmp_path / "model.safetensors")
    told = {"architecture": name, "num_classes": 7, "model_args": args, "pretrained_cfg": {}}
    (tmp_path / "config.json").write_text(json.dumps(told))
    model = vt.load(tmp_path)
    images = torch.randn(2, 3, *model.config.image_size).double()  # a ResNet adds up much rounding in float32
    assert (model.double()(images) - peer.double()(images)).abs().max() < 1e-9
