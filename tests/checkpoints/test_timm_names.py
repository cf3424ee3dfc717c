"""What the name of a timm architecture tells, and what is refused by name."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import vitreous as vt
from vitreous.checkpoints.formats.timm_facts import registry


def described(model: vt.ViT, folder: Path, **changes: Any) -> Path:
    """A timm folder of `model` whose config.json has some entries changed; None takes one away."""
    vt.save(model, folder, format="timm")
    file = folder / "config.json"
    entries = json.loads(file.read_text()) | changes
    file.write_text(json.dumps({name: value for name, value in entries.items() if value is not None}))
    return folder


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("vit_large_patch16_sapiens2", "grouped-query attention"),
        ("vit_dwee_patch16_reg1_gap_256", "differential attention"),
        ("cait_s24_224", "class attention"),
    ],
)
def test_an_architecture_with_an_unknown_part(name: str, part: str, tiny: Any, tmp_path: Path) -> None:
    folder = described(tiny(), tmp_path / "m", architecture=name)
    with pytest.raises(vt.InputError, match=f"{name} of timm has a part that is not supported: .*{part}"):
        vt.load(folder)


def test_an_unknown_architecture_and_unknown_arguments(tiny: Any, tmp_path: Path) -> None:
    with pytest.raises(
        vt.InputError,
        match=r"vit_basic_patch16_224 is not among the Vision Transformers of timm .* did you mean",
    ):
        vt.load(described(tiny(), tmp_path / "a", architecture="vit_basic_patch16_224"))
    args = {"num_heads": 4, "rope_type": "axial"}
    with pytest.raises(
        vt.InputError, match=r"rope_type='axial' of config.json's model_args is not supported"
    ):
        vt.load(described(tiny(), tmp_path / "b", model_args=args))


@pytest.mark.parametrize("pool", ["prr", "map"])
def test_poolings_that_are_not_those_of_the_weights(pool: str, tiny: Any, tmp_path: Path) -> None:
    folder = described(tiny(), tmp_path / "m", global_pool=pool, model_args={"num_heads": 4})
    with pytest.raises(vt.InputError, match=f"global_pool='{pool}' is not supported"):
        vt.load(folder)


def test_a_name_tells_everything_and_nothing_is_said(
    tiny: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clip = {"extra_norms": ("tokens",), "norm_eps": 1e-5, "mlp": "quick_gelu", "width": 48, "heads": 12}
    folder = described(
        tiny(**clip),
        tmp_path / "m",
        architecture="vit_base_patch16_clip_quickgelu_224",
        model_args={"embed_dim": 48},
    )
    caplog.clear()
    config = vt.load(folder).config
    assert (config.heads, config.mlp, config.norm_eps) == (12, "quick_gelu", 1e-5)
    assert not caplog.messages


def test_a_bare_state_dict_says_what_is_assumed(
    tiny: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    vt.save(tiny(), tmp_path / "m.pth", format="timm")
    with caplog.at_level(logging.WARNING):
        vt.load(tmp_path / "m.pth", heads=4)
    assert "assumed: images of 32x32, a square of patches (or pass stored_image_size=)" in caplog.text
    assert "; mlp=gelu, norm_eps=1e-06, pooling=class (or pass like='timm:NAME'" in caplog.text
    vt.save(tiny(extra_norms=("tokens",), norm_eps=1e-5), tmp_path / "clip.pth", format="timm")
    with pytest.raises(vt.InputError, match="a CLIP does not store its activation: pass mlp='gelu' or"):
        vt.load(tmp_path / "clip.pth", heads=4)
    assert vt.load(tmp_path / "clip.pth", heads=4, mlp="gelu").config.norm_eps == 1e-5


def test_the_size_of_the_file_wins_over_that_of_the_architecture(tiny: Any, tmp_path: Path) -> None:
    """9 x 16 patches, told by pretrained_cfg alone, of an architecture whose images are square."""
    model = tiny(image_size=(72, 128), patch_size=8)
    folder = described(model, tmp_path / "m", model_args={"num_heads": 4})
    assert vt.load(folder).config.grid == (9, 16)


def test_attention_pooling_with_registers_is_written(tiny: Any, tmp_path: Path) -> None:
    model = tiny(pooling="attention", class_token=False, registers=2)
    vt.save(model, tmp_path / "m", format="timm")
    assert vt.load(tmp_path / "m").config.registers == 2


def test_no_published_tag_was_silently_wrong() -> None:
    """What `timm_tags.py` has found."""
    kept = json.loads(Path(__file__).with_name("data").joinpath("timm_tags.json").read_text())
    assert kept["timm"] == registry()["timm"]
    assert len(kept["tags"]) == sum(kept["counts"].values()) == 476
    assert kept["counts"]["wrong"] == 0
    # of the largest NaFlexViTs the names alone; test_native_aspect.py compares the outputs of each
    named = {name.split("_")[0] for name, found in kept["tags"].items() if "names" in found}
    assert named <= {"naflexvit"}
    assert kept["counts"]["names"] <= 6
    right = [name for name, found in kept["tags"].items() if "right" in found]
    assert len(right) == kept["counts"]["right"] >= 429
    assert {name.split(".")[0] for name in right} <= registry()["read"].keys()


@pytest.mark.slow
@pytest.mark.peers
def test_the_table_is_what_the_registry_says(timm: Any, timm_registry: ModuleType) -> None:
    table = registry()
    if timm.__version__ != table["timm"]:
        pytest.skip(f"the table is of timm {table['timm']}, installed is {timm.__version__}")
    assert timm_registry.registry(timm) == table
    kept = json.loads(Path(__file__).with_name("data").joinpath("timm_tags.json").read_text())["tags"]
    refused = {name.split(".")[0] for name, found in kept.items() if "refused" in found}
    assert not refused & table["read"].keys(), "run timm_tags.py with these names"
    tags = sum(len(timm.list_models(module=each, pretrained=True)) for each in timm_registry.MODULES)
    assert tags == 476


@pytest.mark.slow
@pytest.mark.peers
@torch.no_grad()
@pytest.mark.parametrize("name", registry()["read"])
def test_every_architecture_that_is_read(
    name: str, timm: Any, timm_registry: ModuleType, tmp_path: Path
) -> None:
    """By its name alone, with random weights and two layers, in images of its own size."""
    from safetensors.torch import save_file

    peer = timm.create_model(name, depth=2, num_classes=7).eval()
    for parameter in peer.parameters():
        torch.nn.init.normal_(parameter, std=0.05, generator=torch.Generator().manual_seed(parameter.numel()))
    save_file(peer.state_dict(), tmp_path / "model.safetensors")
    told = {"architecture": name, "num_classes": 7, "pretrained_cfg": {}}
    (tmp_path / "config.json").write_text(json.dumps(told))
    model = vt.load(tmp_path)
    images = torch.randn(1, 3, *model.config.image_size)  # NaFlexViT takes any
    if hasattr(peer, "patch_embed"):
        assert model.config.image_size == tuple(peer.patch_embed.img_size)
    if model.config.stem.kind == "resnet":  # which adds up much rounding in float32
        model, peer, images = model.double(), peer.double(), images.double()
    ours, theirs = model(images), peer(images)
    assert (ours - theirs).abs().max() < 2e-5 * max(1, theirs.abs().max().item())


@pytest.mark.slow
@pytest.mark.peers
@pytest.mark.parametrize("name", [name for names in registry()["refused"].values() for name in names])
def test_every_architecture_that_is_refused(name: str, timm: Any, tmp_path: Path) -> None:
    """By one sentence, whatever its weights are called."""
    assert name in timm.list_models(name)
    state = {
        "patch_embed.proj.weight": torch.zeros(8, 3, 4, 4),
        "blocks.0.attn.qkv.weight": torch.zeros(24, 8),
    }
    torch.save(state, tmp_path / "pytorch_model.bin")
    (tmp_path / "config.json").write_text(json.dumps({"architecture": name}))
    with pytest.raises(vt.InputError, match=f"{name} of timm has a part that is not supported"):
        vt.load(tmp_path)


OTHER_ARCHITECTURES = {
    "xcit_nano_12_p16_224": "an XCiT",
    "mixer_s32_224": "an MLP-Mixer",
    "levit_128s": "a LeViT",
    "maxvit_pico_rw_256": "a MaxViT",
    "pvt_v2_b0": "a PVT",
    "volo_d1_224": "a VOLO",
    "crossvit_9_240": "a CrossViT",
    "tnt_s_patch16_224": "a TNT",
    "coat_tiny": "a CoaT",
    "mobilevit_xxs": "a MobileViT",
    "efficientnet_b0": "an EfficientNet",
    "twins_svt_small": "a Twins",
    "nest_tiny": "a NesT",
    "pit_ti_224": "a PiT",
    "hiera_tiny_224": "a Hiera",
}


@pytest.mark.slow
@pytest.mark.peers
@pytest.mark.parametrize("name", OTHER_ARCHITECTURES)
def test_a_state_dict_of_another_architecture_is_called_by_its_name(name: str, timm: Any) -> None:
    with pytest.raises(vt.InputError, match=f"this is {OTHER_ARCHITECTURES[name]}"):
        vt.load(timm.create_model(name).state_dict(), heads=4)
