"""`vitreous verify`: a checkpoint beside the library that it was written for."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import vitreous as vt
from vitreous.cli import run
from vitreous.deployment import verification
from vitreous.deployment.verification import Peer

SIZES = {"image_size": 32, "patch_size": 16, "width": 32, "depth": 1, "heads": 2, "mlp_dim": 32}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A timm folder, its weights alone, and an image."""
    path = tmp_path_factory.mktemp("verify")
    model = vt.create("ViT-Ti/16", num_classes=7, **SIZES)
    with torch.no_grad():
        model.head.weight.normal_(generator=torch.Generator().manual_seed(0))
    model.labels = list("abcdefg")
    vt.save(model, path / "timm", format="timm")
    vt.save(model, path / "bare.pth", format="timm")
    vt.save(vt.load(path / "timm"), path / "own")
    Image.fromarray(np.arange(48 * 64 * 3, dtype=np.uint8).reshape(48, 64, 3)).save(path / "a.png")
    return path


def installed(monkeypatch: pytest.MonkeyPatch, error: float) -> None:
    """A library whose outputs are ours, but for `error`."""
    library = ModuleType("timm")
    library.__version__ = "9.9"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "timm", library)

    def open_peer(model: Any, path: Path, like: str | None) -> Peer:
        return Peer(
            lambda pixels: model(pixels) + error, lambda image: model.preprocessing(image)[None] + error
        )

    monkeypatch.setitem(verification.PEERS, "timm", ("timm", open_peer))


def test_both_are_asked_and_compared(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    installed(monkeypatch, 0.0)
    assert run(["verify", str(folder / "timm"), str(folder / "a.png")]) == 0
    out = capsys.readouterr().out
    assert "timm, vit_base_patch16_224" in out
    assert "compared with timm 9.9, which opened the same file" in out
    assert out.endswith("\nequal\n")
    installed(monkeypatch, 0.1)
    assert run(["verify", str(folder / "timm"), str(folder / "a.png"), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["outputs"] == pytest.approx(0.1, abs=1e-4)
    assert found["pixels"] == pytest.approx(0.1, abs=1e-4)
    assert found["equal"] is False
    model = vt.load(folder / "timm")
    best = model(model.preprocessing([folder / "a.png"])).topk(5).indices[0].tolist()
    assert [each["label"] for each in found["top"]] == [model.labels[number] for number in best]


def test_what_cannot_be_compared_is_said(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    found = vt.verify(folder / "timm", folder / "a.png")
    assert (found.equal, found.reason) == (None, "timm is not installed: pip install timm")
    assert len(found.top) == 5
    own = vt.verify(folder / "own", folder / "a.png")
    assert own.reason == "no other library that is known here opens the format vitreous"
    assert own.origin.format == "timm"
    like = vt.verify(folder / "bare.pth", folder / "a.png", settings={"model.heads": 2})
    assert "assumed, since the file does not say it: " in str(like)
    with pytest.raises(vt.InputError, match="there is no image"):
        vt.verify(folder / "own", "nothing.jpg")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["ViTForImageClassification", "CLIPVisionModelWithProjection", "Dinov2Model"]
)
def test_transformers_itself(name: str, folder: Path, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    kind = name.replace("ForImageClassification", "").replace("ModelWithProjection", "").replace("Model", "")
    sizes = {
        "hidden_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 3,
        "image_size": 64,
        "patch_size": 16,
    }
    config = getattr(transformers, f"{kind}Config")(**sizes)
    getattr(transformers, name)(config).save_pretrained(tmp_path)
    processor = {"CLIPVision": "CLIP", "Dinov2": "Bit"}.get(kind, kind) + "ImageProcessorPil"
    size = {"height": 64, "width": 64} if kind == "ViT" else {"shortest_edge": 73}
    crop = {} if kind == "ViT" else {"crop_size": {"height": 64, "width": 64}}
    getattr(transformers, processor)(size=size, **crop).save_pretrained(tmp_path)
    found = vt.verify(tmp_path, folder / "a.png")
    assert found.equal is True, found
    assert found.library.startswith("transformers ")
    assert found.pixels < 1e-5
