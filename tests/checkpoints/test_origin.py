"""Where weights come from, what was assumed of them, and files that are described by something else."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch

import vitreous as vt
from vitreous.checkpoints.formats.torchvision import PUBLISHED
from vitreous.checkpoints.resizing import with_head


def test_the_origin_of_a_timm_folder(tiny: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    vt.save(tiny(), tmp_path / "m", format="timm")
    file = tmp_path / "m" / "config.json"
    described = json.loads(file.read_text())
    described["pretrained_cfg"]["license"] = "apache-2.0"
    file.write_text(json.dumps(described))
    caplog.clear()
    origin = vt.load(tmp_path / "m").origin
    assert not caplog.messages, "config.json says everything"
    assert (origin.source, origin.format) == (str(tmp_path / "m"), "timm")
    assert (origin.architecture, origin.license) == ("vit_base_patch16_224", "apache-2.0")
    assert origin.assumed == ()


def test_the_origin_is_stored_and_comes_back(tiny: Any, tmp_path: Path) -> None:
    vt.save(tiny(), tmp_path / "m.pth", format="torchvision")
    model = vt.load(tmp_path / "m.pth", heads=4)
    assert "images of 32x32, a square of patches" in model.origin.assumed[0]
    assert "preprocessing as torchvision" in model.origin.assumed[1]
    for changed in (model, vt.resize(model, 48), with_head(model, 3)):
        assert changed.origin == model.origin
    vt.save(model, tmp_path / "own")
    assert vt.load(tmp_path / "own").origin == model.origin
    vt.save(tiny(), tmp_path / "fresh")
    assert vt.load(tmp_path / "fresh").origin is None
    assert "origin" not in json.loads((tmp_path / "fresh" / "config.json").read_text())


def test_the_license_of_a_card(tiny: Any, tmp_path: Path) -> None:
    vt.save(tiny(), tmp_path / "m", format="huggingface")
    (tmp_path / "m" / "README.md").write_text("---\nlicense: cc-by-nc-4.0\ntags: [vision]\n---\n# A model\n")
    origin = vt.load(tmp_path / "m").origin
    assert (origin.license, origin.architecture) == ("cc-by-nc-4.0", "ViTForImageClassification")


def test_a_state_dict_has_an_origin(tiny: Any, tmp_path: Path) -> None:
    vt.save(tiny(), tmp_path / "m.pth", format="timm")
    state = torch.load(tmp_path / "m.pth", weights_only=True)
    assert vt.load(state, heads=4).origin.source == "the state dict"


def test_the_card_of_a_folder(tiny: Any, tmp_path: Path) -> None:
    vt.save(tiny(), tmp_path / "m.pth", format="torchvision")
    model = vt.load(tmp_path / "m.pth", heads=4)
    model.labels = ["a|b", *"cdef"]
    for format, line in {
        "vitreous": "vt.load",
        "timm": "timm.create_model",
        "huggingface": "AutoModel",
    }.items():
        vt.save(model, tmp_path / format, format=format, license="cc-by-nc-4.0")
        card = (tmp_path / format / "README.md").read_text()
        assert "license: cc-by-nc-4.0\n" in card
        assert "| Weights from | `" in card
        assert "| Assumed of them | images of 32x32, a square of patches" in card
        assert "`a b`, `c`" in card
        assert line in card
    (tmp_path / "timm" / "README.md").write_text("my own")
    vt.save(model, tmp_path / "timm", format="timm", overwrite=True)
    assert (tmp_path / "timm" / "README.md").read_text() == "my own"
    with pytest.raises(vt.InputError, match="license 'a: b' is not a name"):
        vt.save(model, tmp_path / "other", license="a: b")


CLIP = {
    "extra_norms": ("tokens",),
    "norm_eps": 1e-5,
    "mlp": "quick_gelu",
    "width": 48,
    "heads": 12,
    "num_classes": None,
}


def test_a_bare_file_is_described_by_a_name_of_timm(
    tiny: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = tiny(**CLIP)
    vt.save(model, tmp_path / "m.pth", format="timm")
    with caplog.at_level(logging.WARNING):
        again = vt.load(
            tmp_path / "m.pth",
            like="timm:vit_base_patch16_clip_quickgelu_224.openai",
            image_size=32,
            heads=12,
        )
    assert not caplog.messages, "nothing is guessed"
    assert again.config.model_copy(update={"stem": model.config.stem}) == model.config
    assert again.preprocessing.mean == pytest.approx((0.48145466, 0.4578275, 0.40821073))
    assert again.origin.architecture == "vit_base_patch16_clip_quickgelu_224"
    with pytest.raises(vt.InputError, match="has no tag 'openay': did you mean 'openai'"):
        vt.load(tmp_path / "m.pth", like="timm:vit_base_patch16_clip_quickgelu_224.openay")
    with pytest.raises(
        vt.InputError, match="vit_dwee_patch16_reg1_gap_256 of timm has a part that is not supported"
    ):
        vt.load(tmp_path / "m.pth", like="timm:vit_dwee_patch16_reg1_gap_256")


def test_a_bare_file_is_described_by_a_name_of_torchvision(
    tiny: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = tiny(image_size=512, patch_size=128, heads=16)
    vt.save(model, tmp_path / "m.pth", format="torchvision")
    caplog.clear()
    again = vt.load(tmp_path / "m.pth", like="torchvision:vit_l_16.IMAGENET1K_SWAG_E2E_V1")
    assert not caplog.messages, "nothing is guessed"
    assert again.config == model.config
    look = again.preprocessing
    assert (look.size, look.enlarged, look.interpolation) == ((512, 512), (512, 512), "bicubic")
    assert (again.origin.architecture, again.origin.license, again.origin.assumed) == (
        "vit_l_16.IMAGENET1K_SWAG_E2E_V1",
        "cc-by-nc-4.0",
        (),
    )
    with pytest.raises(
        vt.InputError, match=r"like='torchvision:vit_l_16': did you mean 'vit_l_16\.IMAGENET1K_V1"
    ):
        vt.load(tmp_path / "m.pth", like="torchvision:vit_l_16")


@pytest.mark.slow
def test_the_published_weights_of_torchvision(torchvision: Any) -> None:
    """By its own table of them."""
    models, found = torchvision.models, {}
    for name in ("ViT_B_16", "ViT_B_32", "ViT_L_16", "ViT_L_32", "ViT_H_14"):
        for weights in getattr(models, f"{name}_Weights"):
            look = weights.transforms()
            key = f"{name.lower()}.{weights.name}"
            found[key] = (look.crop_size[0], look.resize_size[0], look.interpolation.value)
            assert ("SWAG" in key) == ("license" in weights.meta)
    assert found == PUBLISHED


def test_a_bare_file_is_described_by_a_folder(tiny: Any, tmp_path: Path) -> None:
    model = tiny(extra_norms=("tokens",), mlp="quick_gelu", norm_eps=1e-5, num_classes=None)
    vt.save(model, tmp_path / "m", format="huggingface")
    bare = tmp_path / "weights.safetensors"
    bare.write_bytes((tmp_path / "m" / "model.safetensors").read_bytes())
    again = vt.load(bare, like=tmp_path / "m")
    assert again.config == vt.load(tmp_path / "m").config
    with pytest.raises(
        vt.InputError, match=r"pass timm:NAME, torchvision:NAME, hf:org/name, or a folder with a config.json"
    ):
        vt.load(bare, like=str(tmp_path))


def test_a_bare_file_is_described_by_the_hub(
    tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose weights are not fetched."""
    import huggingface_hub

    asked: list[Any] = []

    def snapshot(name: str, *, allow_patterns: list[str], **options: Any) -> str:
        asked.extend(allow_patterns)
        return str(tmp_path / "m")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)  # the hub has this folder
    vt.save(tiny(), tmp_path / "m", format="huggingface")
    bare = (tmp_path / "m" / "model.safetensors").rename(tmp_path / "bare.safetensors")
    assert vt.load(bare, like="hf:org/name").config.heads == 4
    assert not any("safetensors" in pattern for pattern in asked)
