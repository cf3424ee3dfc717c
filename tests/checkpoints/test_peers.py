"""What is written here, the peers' own code loads, and computes the same. A peer that is not installed is
named by the test that needs it."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import vitreous as vt

pytestmark = [pytest.mark.slow, pytest.mark.peers]
TOLERANCE = 2e-5


BIASED = {"position": {"kind": "relative-bias"}}
AIMV2 = {
    "norm_kind": "rms",
    "norm_eps": 1e-5,
    "qkv_bias": False,
    "class_token": False,
    "pooling": "mean",
    "mlp": "swiglu",
    "stem": {"kind": "patch", "form": "linear", "norm_after": True},
}
HUGGINGFACE = {
    "ViTForImageClassification": {},
    "ViTModel with a pooler": {"num_classes": None, "representation_size": 24},
    "ViTModel": {"num_classes": None, "norm_eps": 1e-12},
    "ViT without biases": {"qkv_bias": False, "mlp": "gelu_tanh"},
    "ViT of oblong images": {"image_size": (24, 40)},
    "DeiT": {"pooling": "class+distillation"},
    "Dinov2": {"layer_scale": 0.1, "mlp_dim": 128, "pooling": "class+mean"},
    "Dinov2 by its class token": {"layer_scale": 0.1, "mlp_dim": 128},
    "Dinov2 by its mean": {"mlp_dim": 128, "pooling": "mean"},
    "Dinov2Model": {"layer_scale": 0.1, "mlp_dim": 128, "num_classes": None},
    "Dinov2WithRegisters": {"registers": 3, "mlp_dim": 128},
    "Dinov2 with SwiGLU": {"registers": 1, "mlp": "swiglu", "mlp_dim": 88},
    "CLIP with its projection": {"extra_norms": ("tokens",), "mlp": "quick_gelu"},
    "CLIP": {"extra_norms": ("tokens",), "num_classes": None, "norm_eps": 1e-5},
    "BEiT": BIASED | {"pooling": "mean", "final_norm": "pooled", "layer_scale": 0.1},
    "BEiT with one table, without LayerScale": BIASED
    | {"position": {"kind": "relative-bias", "shared": True}},
    "SigLIP": {"class_token": False, "pooling": "attention", "num_classes": None, "mlp": "gelu_tanh"},
}


@pytest.mark.parametrize(("patch_size", "image_size"), [(8, 32), (4, 16), (32, 64), (16, 48)])
@torch.no_grad()
def test_patches_and_positions_are_resampled_as_timm_does(
    patch_size: int, image_size: int, tiny: Any, tmp_path: Path, timm: ModuleType
) -> None:
    vt.save(tiny(patch_size=16, image_size=64), tmp_path / "m", format="timm")
    theirs = timm.create_model(
        f"local-dir:{tmp_path / 'm'}", pretrained=True, patch_size=patch_size, img_size=image_size
    ).eval()
    ours = vt.load(tmp_path / "m", patch_size=patch_size, image_size=image_size)
    images = torch.randn(2, 3, image_size, image_size)
    expected = theirs(images)
    assert (ours(images) - expected).abs().max() < TOLERANCE * expected.abs().max()


@pytest.mark.parametrize("name", HUGGINGFACE)
@torch.no_grad()
def test_transformers(name: str, tiny: Any, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    model = tiny(**HUGGINGFACE[name])
    if name == "CLIP with its projection":  # which has no bias
        torch.nn.init.zeros_(model.head.bias)
    vt.save(model, tmp_path / "m", format="huggingface")
    told = json.loads((tmp_path / "m" / "config.json").read_text())
    kind = getattr(transformers, told["architectures"][0])
    peer, report = kind.from_pretrained(tmp_path / "m", output_loading_info=True, attn_implementation="eager")
    missing = [key for key in report["missing_keys"] if "pooler" not in key and "mask_token" not in key]
    assert not missing, f"{name}: transformers misses {missing}"
    assert not report["unexpected_keys"]
    images = torch.randn(2, 3, *model.config.image_size)
    output = peer.eval()(pixel_values=images)
    if model.config.num_classes is not None:
        theirs = output.image_embeds if "image_embeds" in output else output.logits
    elif (
        model.config.representation_size
        or model.config.pooling.kind == "attention"
        or "tokens" in model.config.extra_norms
    ):
        theirs = output.pooler_output
    else:
        theirs = output.last_hidden_state[:, 0]
    assert (model(images) - theirs).abs().max() < TOLERANCE


@torch.no_grad()
def test_transformers_takes_an_aimv2(tiny: Any, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    model = tiny(**AIMV2, num_classes=None)
    for block in model.blocks:
        for part in (block.attention.out, block.mlp.gate_expand, block.mlp.contract):
            part.bias.zero_()
    vt.save(model, tmp_path / "m", format="aimv2")
    peer = transformers.Aimv2VisionModel.from_pretrained(tmp_path / "m").eval()
    images = torch.randn(2, 3, *model.config.image_size)
    assert (model.tokens(images) - peer(pixel_values=images).last_hidden_state).abs().max() < TOLERANCE


@torch.no_grad()
def test_transformers_takes_a_regression_model_for_one(tiny: Any, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    model = tiny(num_classes=2)
    model.task, model.labels = "regression", ["height", "weight"]
    vt.save(model, tmp_path / "m", format="huggingface")
    peer = transformers.AutoModelForImageClassification.from_pretrained(tmp_path / "m").eval()
    assert peer.config.problem_type == "regression"
    assert peer.config.id2label == {0: "height", 1: "weight"}
    images, values = torch.randn(3, 3, *model.config.image_size), torch.randn(3, 2)
    output = peer(pixel_values=images, labels=values)
    torch.testing.assert_close(output.logits, model(images), atol=TOLERANCE, rtol=0)
    torch.testing.assert_close(output.loss, torch.nn.functional.mse_loss(model(images), values))


@torch.no_grad()
def test_transformers_reads_preprocessing_and_labels(tiny: Any, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    model = tiny()
    model.labels = ["ant", "bee", "cat", "dog", "emu"]
    vt.save(model, tmp_path / "m", format="huggingface")
    peer = transformers.ViTForImageClassification.from_pretrained(tmp_path / "m")
    assert [peer.config.id2label[i] for i in range(5)] == model.labels
    assert vt.load(tmp_path / "m").labels == model.labels


TIMM = {
    "class token": {},
    "mean": {"pooling": "mean"},
    "mean of all": {"pooling": "mean-all"},
    "mean without class token": {"pooling": "mean", "class_token": False, "final_norm": "pooled"},
    "registers": {"registers": 3, "layer_scale": 0.1, "qkv_bias": False},
    "attention pooling": {"pooling": "attention", "class_token": False, "mlp": "gelu_tanh"},
    "qk-norm": {"qk_norm": "head", "final_norm": "none"},
    "CLIP": {"extra_norms": ("tokens",), "norm_eps": 1e-5, "mlp": "quick_gelu"},
    "SwiGLU": {"mlp": "swiglu", "layer_scale": 0.1},
    "DeiT": {"pooling": "class+distillation"},
    "oblong": {"image_size": (24, 40), "num_classes": None},
    "odd MLP": {"mlp_dim": 67},
    "BEiT": BIASED | {"pooling": "mean", "final_norm": "pooled", "layer_scale": 0.1},
    "BEiT with one table": BIASED
    | {"position": {"kind": "relative-bias", "shared": True}, "image_size": (24, 40)},
    "AIMv2": AIMV2,
}


@pytest.mark.parametrize("name", TIMM)
@torch.no_grad()
def test_timm(name: str, tiny: Any, timm: Any, tmp_path: Path) -> None:
    model = tiny(**TIMM[name])
    if name == "AIMv2":  # has no biases there
        for block in model.blocks:
            for part in (block.attention.out, block.mlp.gate_expand, block.mlp.contract):
                part.bias.zero_()
    vt.save(model, tmp_path / "m", format="timm")
    peer = timm.create_model(f"local-dir:{tmp_path / 'm'}", pretrained=True).eval()
    images = torch.randn(2, 3, *model.config.image_size)
    assert (model(images) - peer(images)).abs().max() < TOLERANCE


@pytest.mark.parametrize("name", ["R26+ViT-S/32", "R50+ViT-B/16", "R+ViT-Ti/16"])
@torch.no_grad()
def test_timm_hybrids(name: str, timm: Any, tmp_path: Path) -> None:
    stem = vt.create(name).config.stem.model_dump() | {
        "standardization": "variance",
        "standardization_eps": 1e-8,
        "norm_eps": 1e-5,
    }
    model = vt.create(name, depth=1, image_size=64, num_classes=5, stem=stem).eval()
    torch.nn.init.normal_(model.head.weight, std=0.01)
    vt.save(model, tmp_path / "m", format="timm")
    peer = timm.create_model(f"local-dir:{tmp_path / 'm'}", pretrained=True).eval()
    images = torch.randn(2, 3, 64, 64)
    assert (model(images) - peer(images)).abs().max() < TOLERANCE


@pytest.mark.parametrize("fields", [{}, {"representation_size": 24}])
@torch.no_grad()
def test_torchvision(fields: dict[str, Any], torchvision: Any, tiny: Any, tmp_path: Path) -> None:
    model = tiny(**fields)
    vt.save(model, tmp_path / "m.pth", format="torchvision")
    peer = torchvision.models.VisionTransformer(
        image_size=32,
        patch_size=8,
        num_layers=2,
        num_heads=4,
        hidden_dim=32,
        mlp_dim=64,
        num_classes=5,
        representation_size=fields.get("representation_size"),
    ).eval()
    state = torch.load(tmp_path / "m.pth", weights_only=True)
    peer.load_state_dict(state)
    images = torch.randn(2, 3, 32, 32)
    assert (model(images) - peer(images)).abs().max() < TOLERANCE


LUCID = {"norm_eps": 1e-5, "qkv_bias": False}
NORMS = {"kind": "patch", "form": "linear", "norm_before": True, "norm_after": True}
MEAN = {"class_token": False, "pooling": "mean"}


def vit_pytorch_or_skip(module: str) -> ModuleType:
    """One file of vit-pytorch, by itself: the package as a whole asks for more than that."""
    found = importlib.util.find_spec("vit_pytorch")
    if found is None or not found.submodule_search_locations:
        pytest.skip("vit-pytorch is not installed")
    path = Path(found.submodule_search_locations[0]) / f"{module}.py"
    spec = importlib.util.spec_from_file_location(module, path)
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("ViT", {}),
        ("ViT", {"head_dim": 16}),
        ("ViT", {"heads": 1, "head_dim": 16}),
        ("ViT", MEAN),
        ("SimpleViT", MEAN | {"position": {"kind": "sincos-2d"}}),
    ],
)
@torch.no_grad()
def test_vit_pytorch(kind: str, fields: dict[str, Any], tiny: Any, tmp_path: Path) -> None:
    peer_code = vit_pytorch_or_skip("vit" if kind == "ViT" else "simple_vit")
    model = tiny(**LUCID, stem=NORMS, **fields)
    if kind == "SimpleViT":  # it has no bias behind the heads
        for block in model.blocks:
            block.attention.out.bias.zero_()
    vt.save(model, tmp_path / "m.pt", format="vit-pytorch")
    config = model.config
    pool = {"pool": "mean" if config.pooling.kind == "mean" else "cls"} if kind == "ViT" else {}
    peer = getattr(peer_code, kind)(
        image_size=32,
        patch_size=8,
        num_classes=5,
        dim=32,
        depth=2,
        heads=config.heads,
        dim_head=config.resolved_head_dim,
        mlp_dim=64,
        **pool,
    ).eval()
    peer.load_state_dict(torch.load(tmp_path / "m.pt", weights_only=True))
    images = torch.randn(2, 3, 32, 32)
    assert (model(images) - peer(images)).abs().max() < TOLERANCE


@torch.no_grad()
def test_google_by_a_reader_of_its_own(tiny: Any, tmp_path: Path) -> None:
    """The published layout of vit_jax, computed in NumPy from its names alone, without any code of ours."""
    model = tiny(mlp="gelu_tanh", representation_size=24)
    vt.save(model, tmp_path / "m.npz", format="google")
    images = torch.randn(2, 3, 32, 32)
    with np.load(tmp_path / "m.npz", allow_pickle=False) as weights:
        theirs = vit_jax({name: weights[name].astype(np.float64) for name in weights.files}, images.double())
    assert (model(images) - theirs).abs().max() < TOLERANCE


def vit_jax(w: dict[str, Any], images: Tensor) -> Tensor:
    """models_vit.VisionTransformer of google-research/vision_transformer for a token classifier."""
    kernel = w["embedding/kernel"]  # (p, q, C, D)
    p, q, _, width = kernel.shape
    x = images.numpy().transpose(0, 2, 3, 1)
    batch, height, wide, _ = x.shape
    x = x.reshape(batch, height // p, p, wide // q, q, -1).transpose(0, 1, 3, 2, 4, 5)
    x = np.einsum("bhwpqc,pqcd->bhwd", x, kernel) + w["embedding/bias"]
    x = np.concatenate([np.tile(w["cls"], (batch, 1, 1)), x.reshape(batch, -1, width)], axis=1)
    x = x + w["Transformer/posembed_input/pos_embedding"]

    def norm(x: Any, name: str) -> Any:
        mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
        return (x - mean) / np.sqrt(variance + 1e-6) * w[f"{name}/scale"] + w[f"{name}/bias"]

    def dense(x: Any, name: str) -> Any:
        return x @ w[f"{name}/kernel"] + w[f"{name}/bias"]

    def gelu(x: Any) -> Any:
        return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))

    layer = 0
    while f"Transformer/encoderblock_{layer}/LayerNorm_0/scale" in w:
        block = f"Transformer/encoderblock_{layer}"
        attention = f"{block}/MultiHeadDotProductAttention_1"
        y = norm(x, f"{block}/LayerNorm_0")
        query, key, value = (
            np.einsum("btd,dke->bkte", y, w[f"{attention}/{part}/kernel"])
            + w[f"{attention}/{part}/bias"][:, None]
            for part in ("query", "key", "value")
        )
        logits = np.einsum("bkte,bkse->bkts", query, key) / np.sqrt(query.shape[-1])
        weights = np.exp(logits - logits.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        mixed = np.einsum("bkts,bkse->btke", weights, value)
        x = x + np.einsum("btke,ked->btd", mixed, w[f"{attention}/out/kernel"]) + w[f"{attention}/out/bias"]
        y = norm(x, f"{block}/LayerNorm_2")
        x = x + dense(gelu(dense(y, f"{block}/MlpBlock_3/Dense_0")), f"{block}/MlpBlock_3/Dense_1")
        layer += 1
    y = norm(x, "Transformer/encoder_norm")[:, 0]
    return torch.from_numpy(dense(np.tanh(dense(y, "pre_logits")), "head")).float()


@torch.no_grad()
def check_same_attention(peer: torch.nn.Module, size: int = 32) -> None:
    """Every layer and head of a model of another library, as it is, against the same weights here."""
    for name, parameter in peer.eval().named_parameters():
        std = 0.3 if parameter.ndim == 1 else 2 / parameter.shape[-1] ** 0.5
        parameter.copy_(std * torch.randn(parameter.shape) + ("norm" in name and name.endswith("weight")))
    before, hooks = {key: each.clone() for key, each in peer.state_dict().items()}, dict(peer.__dict__)
    images = torch.randn(2, 3, size, size)
    with vt.capture_attention(peer) as theirs:
        peer(images)
    assert peer.__dict__.keys() == hooks.keys()
    assert all(torch.equal(before[key], each) for key, each in peer.state_dict().items())
    own = vt.load(peer)
    with vt.capture_attention(own) as ours:
        own(images)
    assert len(ours.maps) == len(theirs.maps) == own.config.depth
    for mine, other in zip(ours.maps, theirs.maps, strict=True):
        assert (mine - other).abs().max() < 1e-5


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("vit_tiny_patch16_224", 32),
        ("deit_tiny_distilled_patch16_224", 32),
        ("vit_base_patch16_siglip_224", 32),
        ("vit_small_patch14_reg4_dinov2", 28),
    ],
)
def test_attention_of_timm_as_it_is(name: str, size: int, fused: bool, timm: Any) -> None:
    before = timm.layers.use_fused_attn()
    timm.layers.set_fused_attn(fused)
    try:
        peer = timm.create_model(name, img_size=size, depth=2, num_classes=5)
    finally:
        timm.layers.set_fused_attn(bool(before))
    check_same_attention(peer, size)


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("kind", ["ViT", "DeiT", "Dinov2", "CLIPVision", "SiglipVision"])
def test_attention_of_transformers_as_it_is(kind: str, implementation: str) -> None:
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    config = getattr(transformers, f"{kind}Config")(image_size=32, patch_size=8, **sizes)
    config._attn_implementation = implementation
    ending = "Model" if kind.endswith("Vision") else "ForImageClassification"
    check_same_attention(getattr(transformers, f"{kind}{ending}")(config))


def test_attention_of_torchvision_as_it_is(torchvision: Any) -> None:
    peer = torchvision.models.VisionTransformer(
        image_size=32, patch_size=8, num_layers=2, num_heads=4, hidden_dim=32, mlp_dim=64, num_classes=5
    )
    check_same_attention(peer)
