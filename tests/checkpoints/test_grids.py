"""Images that are not square, and images that are not a multiple of the patch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import vitreous as vt
from vitreous.checkpoints.format import checkpoint_formats

WIDE = {"image_size": (72, 128), "patch_size": 8}  # 9 x 16 = 144 = 12 x 12 patches
FORMATS = {
    "vitreous": ("m", {}),
    "timm": ("m", {}),
    "timm, a state dict": ("m.pth", {}),
    "huggingface": ("m", {}),
    "google": ("m.npz", {"mlp": "gelu_tanh"}),
    "torchvision": ("m.pth", {}),
    "dinov2": ("m.pth", {"num_classes": None, "layer_scale": 0.1}),
    "frankzvit": ("m.pt", {"norm_eps": 1e-5, "pooling": "mean-all", "final_norm": "pooled"}),
    "open-clip": ("m.pt", {"norm_eps": 1e-5, "extra_norms": ("tokens",)}),
    "vit-pytorch": (
        "m.pt",
        {
            "norm_eps": 1e-5,
            "qkv_bias": False,
            "stem": {"kind": "patch", "norm_before": True, "norm_after": True},
        },
    ),
}


@pytest.mark.parametrize("name", FORMATS)
@torch.no_grad()
def test_a_wide_model_whose_patches_are_a_square_number(name: str, tiny: Any, tmp_path: Path) -> None:
    file, fields = FORMATS[name]
    model = tiny(**WIDE, **fields)
    format = name.split(",")[0]
    if format == "open-clip":  # its projection has no bias
        torch.nn.init.zeros_(model.head.bias)
    vt.save(model, tmp_path / file, format=format)  # which reads it back and compares
    told = {"heads": 4} if file.endswith((".pth", ".pt")) else {}
    told |= {"mlp": "gelu"} if format == "open-clip" else {}
    stored = {} if file == "m" else {"stored_image_size": (72, 128)}
    again = vt.load(tmp_path / file, format=format, **told, **stored)
    assert again.config.grid == (9, 16)
    images = torch.randn(2, 3, 72, 128)
    torch.testing.assert_close(again(images), model(images), atol=2e-5, rtol=0)


def test_a_table_of_a_square_number_with_its_class_token(tiny: Any, tmp_path: Path) -> None:
    """5 x 7 patches and a class token are 36 positions."""
    model = tiny(image_size=(40, 56))
    vt.save(model, tmp_path / "m.pth", format="timm")
    again = vt.load(tmp_path / "m.pth", heads=4, stored_image_size=(40, 56), mlp="gelu")
    assert again.config.grid == (5, 7)
    images = torch.randn(1, 3, 40, 56)
    torch.testing.assert_close(again(images), model(images), atol=2e-5, rtol=0)


@pytest.mark.parametrize("name", FORMATS)
@torch.no_grad()
def test_a_told_size_with_as_many_patches(name: str, tiny: Any, tmp_path: Path) -> None:
    """A model for 32x32 pixels at 16x64: 16 patches both. Where the file states its size, it is resampled; a
    file that states none is of the size that the user says, as its owner would build the model."""
    file, fields = FORMATS[name]
    model = tiny(**fields)
    format = name.split(",")[0]
    if format == "open-clip":  # its projection has no bias
        torch.nn.init.zeros_(model.head.bias)
    vt.save(model, tmp_path / file, format=format)
    told = {"heads": 4} if file.endswith((".pth", ".pt")) else {}
    told |= {"mlp": "gelu"} if format == "open-clip" else {}
    own = checkpoint_formats()[format].interpolation
    for wished in ((16, 64), (64, 16), (8, 128)):
        loaded: Any = vt.load(tmp_path / file, format=format, image_size=wished, **told)
        again: Any = vt.load(tmp_path / file, format=format, stored_image_size=32, image_size=wished, **told)
        resized = vt.resize(vt.load(tmp_path / file, format=format, **told), wished, interpolation=own)
        images = torch.randn(2, 3, *wished)
        assert torch.equal(again(images), resized(images)), wished
        difference = (loaded.tokens(images) - again.tokens(images)).abs().max()
        # frankzvit's mean over random tokens hardly sees positions
        assert (difference > 1e-3) == (file != "m") or format == "frankzvit", wished


@pytest.mark.parametrize(("rows", "columns"), [(5, 7), (9, 16), (16, 9), (32, 8), (2, 8)])
@pytest.mark.parametrize("form", ["timm", "vit-pytorch", "hybrid"])
@torch.no_grad()
def test_a_told_size_that_fits_exactly_is_the_file_s(
    form: str, rows: int, columns: int, tiny: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Also where the positions, with that of the class token or without, would be those of a square."""
    fields = FORMATS["vit-pytorch"][1] if form == "vit-pytorch" else {}
    if form == "hybrid":
        stem = {"kind": "resnet", "layers": (1,), "width_factor": 0.5, "standardization": "variance"}
        fields = {"stem": stem | {"standardization_eps": 1e-8, "norm_eps": 1e-5}}
    model = tiny(image_size=(8 * rows, 8 * columns), **fields)
    format = "timm" if form == "hybrid" else form
    vt.save(model, tmp_path / "m.pth" if format == "timm" else tmp_path / "m.pt", format=format)
    file = next(tmp_path.glob("m.*"))
    caplog.clear()
    again: Any = vt.load(file, format=format, heads=4, image_size=(8 * rows, 8 * columns))
    images = torch.randn(1, 3, 8 * rows, 8 * columns)
    torch.testing.assert_close(again(images), model(images), atol=2e-5, rtol=0)
    square = rows * columns in (16, 144, 256) or (format == "timm" and rows * columns + 1 == 36)
    assert caplog.text.count("as many patches as it has positions") == square


def test_a_stored_size_that_cannot_be(tiny: Any, tmp_path: Path) -> None:
    vt.save(tiny(), tmp_path / "m.pth", format="torchvision")
    with pytest.raises(vt.InputError, match=r"stored_image_size=\(40, 40\) has 25 patches .* 16 positions"):
        vt.load(tmp_path / "m.pth", heads=4, stored_image_size=40)


def test_the_users_size_is_resampled_to_where_it_does_not_fit(tiny: Any, tmp_path: Path) -> None:
    vt.save(tiny(), tmp_path / "m.pth", format="torchvision")
    assert vt.load(tmp_path / "m.pth", heads=4, image_size=(24, 40)).config.grid == (3, 5)


@pytest.mark.parametrize("format", ["timm", "huggingface", "google", "vitreous"])
@torch.no_grad()
def test_what_fills_no_patch_is_dropped(format: str, tiny: Any, tmp_path: Path) -> None:
    """As every other library's convolution does it: SigLIP so400m/14 sees 378 of 384 pixels."""
    fields = {"mlp": "gelu_tanh"} if format == "google" else {}
    model = tiny(image_size=35, edge="drop", **fields)
    file = tmp_path / ("m.npz" if format == "google" else "m")
    vt.save(model, file, format=format)
    again = vt.load(file, **({"image_size": 35} if format == "google" else {}))
    assert again.config.image_size == (35, 35)
    assert again.config.grid == (4, 4)
    images = torch.randn(2, 3, 35, 35)
    torch.testing.assert_close(again(images), model(images), atol=2e-5, rtol=0)
    changed = images.clone()
    changed[..., 32:, :] = 5
    changed[..., 32:] = 5
    assert torch.equal(model(changed), model(images))


def test_dropping_is_asked_for(tiny: Any, tmp_path: Path) -> None:
    with pytest.raises(vt.InputError, match=r"use 40, or edge='pad' .*, or edge='drop'"):
        tiny(image_size=35)
    with pytest.raises(vt.InputError, match="less than one patch"):
        tiny(image_size=7, edge="drop")
    with pytest.raises(vt.InputError, match="pixels without a class"):
        vt.create("Seg-Ti/16", image_size=35, edge="drop")
    with pytest.raises(vt.InputError, match="torchvision cannot hold edge=drop"):
        vt.save(tiny(image_size=35, edge="drop"), tmp_path / "m.pth", format="torchvision")
    vt.save(tiny(), tmp_path / "m", format="huggingface")
    assert vt.load(tmp_path / "m", image_size=50, edge="drop").config.grid == (6, 6)


def test_a_published_size_that_is_no_multiple(tiny: Any, tmp_path: Path) -> None:
    """config.json of SigLIP so400m says 384 and 14."""
    vt.save(tiny(), tmp_path / "m", format="huggingface")
    described = json.loads((tmp_path / "m" / "config.json").read_text())
    (tmp_path / "m" / "config.json").write_text(json.dumps(described | {"image_size": 38}))
    config = vt.load(tmp_path / "m").config
    assert (config.image_size, config.grid, config.edge) == ((38, 38), (4, 4), "drop")


@torch.no_grad()
def test_a_hybrid_of_an_odd_size_has_the_cells_of_same_padding() -> None:
    """The ResNet's convolutions pad, so each halving rounds up; only patches of cells drop what is left."""
    model = vt.create("R+ViT-Ti/16", depth=1, image_size=50, edge="drop", num_classes=3).eval()
    cells = model.stem.backbone(torch.randn(1, 3, 50, 50)).shape[-1]
    assert cells == 13
    assert model.config.grid == (3, 3)
    assert model(torch.randn(1, 3, 50, 50)).shape == (1, 3)


@pytest.mark.slow
@pytest.mark.peers
@pytest.mark.parametrize(("name", "size"), [("R26+ViT-S/32", 232), ("R50+ViT-B/16", 56)])
def test_timm_keeps_the_odd_size_of_a_hybrid(
    name: str, size: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """232 pixels are 8 cells of stride 32, 56 pixels 4 of stride 16."""
    stem = {"standardization": "variance", "standardization_eps": 1e-8, "norm_eps": 1e-5}
    stem = vt.create(name).config.stem.model_dump() | stem
    fields = {"depth": 1, "image_size": size, "edge": "drop", "num_classes": 3}
    model = vt.create(name, **fields, stem=stem).eval()
    vt.save(model, tmp_path / "m", format="timm")  # which reads it back and compares
    assert vt.load(tmp_path / "m").config.image_size == (size, size)
    assert "assumed: images" not in caplog.text
    vt.save(model, tmp_path / "m.pth", format="timm")
    again = vt.load(tmp_path / "m.pth", heads=model.config.heads, image_size=size)
    assert again.config.image_size == (size, size)


def test_transformers_families_of_square_images_are_said(
    tiny: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Their code resamples the positions as if they were a square's, or fails."""
    vt.save(tiny(image_size=(24, 40)), tmp_path / "vit", format="huggingface")
    assert "square" not in caplog.text
    vt.save(tiny(image_size=(24, 40), mlp_dim=128, layer_scale=0.1), tmp_path / "m", format="huggingface")
    assert "transformers' Dinov2ForImageClassification takes only square images" in caplog.text
