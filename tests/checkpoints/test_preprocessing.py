"""Preprocessing of foreign checkpoints: the pixels that the peer's own transform makes of photographs."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import vitreous as vt
from vitreous.checkpoints.formats.timm_facts import registry
from vitreous.models.preprocessing import Preprocessing

SIZES = [(120, 80), (81, 240), (333, 500), (640, 427), (500, 375), (1023, 771), (299, 224)]  # (W, H)


def photograph(size: tuple[int, int]) -> Image.Image:
    """A JPEG with detail in every place."""
    rng = np.random.default_rng(0)
    small = Image.fromarray(rng.integers(0, 255, (size[1] // 4, size[0] // 4, 3), dtype=np.uint8))
    file = io.BytesIO()
    small.resize(size, Image.Resampling.BICUBIC).save(file, "JPEG")
    return Image.open(file)


def as_timm(image: Image.Image, cfg: dict[str, Any]) -> torch.Tensor:
    """timm.data.transforms_factory.transforms_imagenet_eval, with what torchvision does on a PIL image."""
    side = cfg["input_size"][-1]
    scale = math.floor(side / cfg["crop_pct"])
    resample = Image.Resampling[cfg["interpolation"].upper()]
    width, height = image.size
    if cfg["crop_mode"] == "squash":
        size = scale, scale
    else:
        short, long = min(width, height), max(width, height)
        longer = int(scale * long / short)
        size = (scale, longer) if width <= height else (longer, scale)
    image = image.resize(size, resample)
    left, top = round((size[0] - side) / 2.0), round((size[1] - side) / 2.0)
    pixels = np.asarray(image.crop((left, top, left + side, top + side)), np.float32) / 255
    return torch.from_numpy((pixels - np.float32(cfg["mean"])) / np.float32(cfg["std"])).permute(2, 0, 1)


def test_every_preprocessing_of_timm(tiny: Any, tmp_path: Path) -> None:
    vt.save(tiny(), tmp_path / "m", format="timm")
    file = tmp_path / "m" / "config.json"
    told = json.loads(file.read_text())
    checked = 0
    for cfg in registry()["preprocessing"]:
        if cfg["input_size"][-1] > 300 or cfg["crop_mode"] not in ("center", "squash"):
            continue
        file.write_text(json.dumps(told | {"pretrained_cfg": cfg}))
        preprocessing = vt.load(tmp_path / "m", image_size=cfg["input_size"][-1], edge="drop")
        for size in SIZES[:4]:
            image = photograph(size)
            difference = preprocessing.preprocessing(image) - as_timm(image, cfg)
            assert difference.abs().max() < 2e-6, (cfg, size)
        checked += 1
    assert checked >= 15


@pytest.mark.slow
@pytest.mark.peers
def test_every_preprocessing_of_timm_by_its_own_transform(
    torchvision: Any, timm: Any, tiny: Any, tmp_path: Path
) -> None:
    """Which needs the real torchvision, where the formula above does not."""
    vt.save(tiny(), tmp_path / "m", format="timm")
    file = tmp_path / "m" / "config.json"
    given = json.loads(file.read_text())
    images = {size: photograph(size).convert("RGB") for size in SIZES}
    for cfg in registry()["preprocessing"]:
        size = tuple(cfg["input_size"])
        file.write_text(json.dumps(given | {"pretrained_cfg": cfg}))
        ours = vt.load(tmp_path / "m", image_size=size[1:], edge="drop").preprocessing
        named = {key: tuple(v) if isinstance(v, list) else v for key, v in cfg.items() if key != "input_size"}
        theirs = timm.data.create_transform(size, is_training=False, **named)
        for shape, image in images.items():
            assert (ours(image) - theirs(image)).abs().max() < 2e-6, (cfg, shape)


def loaded(described: dict[str, Any], tiny: Any, folder: Path, **fields: Any) -> vt.Preprocessing:
    """The preprocessing of a model with this preprocessor_config.json."""
    vt.save(tiny(**fields), folder, format="huggingface")
    (folder / "preprocessor_config.json").write_text(json.dumps(described))
    return vt.load(folder).preprocessing


LOOK = {"image_mean": [0.5, 0.4, 0.3], "image_std": [0.2, 0.2, 0.3], "resample": 3}
CROP = {"do_center_crop": True, "crop_size": {"height": 32, "width": 32}}
PROCESSORS: dict[str, dict[str, Any]] = {
    "ViTImageProcessor": {"size": {"height": 32, "width": 32}},
    "DeiTImageProcessor": {"size": {"height": 37, "width": 37}, **CROP},
    "CLIPImageProcessor": {"size": {"shortest_edge": 32}, **CROP},
    "CLIPImageProcessor of one number": {"size": 32, "crop_size": 32, "do_center_crop": True},
    "BitImageProcessor": {"size": {"shortest_edge": 37}, **CROP},
    "BeitImageProcessor": {"size": {"height": 37, "width": 37}, **CROP},
    "ChineseCLIPImageProcessor": {"size": {"shortest_edge": 35}, **CROP},
    "SiglipImageProcessor": {"size": {"height": 32, "width": 32}, "rescale_factor": 1 / 127},
}


@pytest.mark.slow
@pytest.mark.peers
@pytest.mark.parametrize("name", PROCESSORS)
def test_the_processors_of_transformers(name: str, tiny: Any, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    kind = name.split()[0]
    described = {"image_processor_type": kind, **LOOK, **PROCESSORS[name]}
    preprocessing = loaded(described, tiny, tmp_path / "m")
    fields = {key: value for key, value in described.items() if key != "image_processor_type"}
    peer = getattr(transformers, f"{kind}Pil", getattr(transformers, kind))(**fields)
    for size in SIZES:
        theirs = peer(photograph(size), return_tensors="pt")["pixel_values"][0]
        assert (preprocessing(photograph(size)) - theirs).abs().max() < 2e-6, size


def test_one_number_is_the_shorter_side_of_a_clip(tiny: Any, tmp_path: Path) -> None:
    described = {"size": 32, "crop_size": 32, "do_center_crop": True, **LOOK}
    clip = loaded({"feature_extractor_type": "CLIPFeatureExtractor", **described}, tiny, tmp_path / "clip")
    assert (clip.resize, clip.crop_start) == ("crop", "floored")
    assert (
        loaded({"image_processor_type": "ViTImageProcessor", **described}, tiny, tmp_path / "vit").resize
        == "squash"
    )


def test_the_crop_begins_where_the_peer_begins_it() -> None:
    """Of 37 pixels less 32 half is 2.5: torchvision rounds to even, transformers down; of 7, 3.5."""
    for start, corners in {"rounded": (2, 4), "floored": (2, 3)}.items():
        preprocessing = vt.Preprocessing(size=32, crop_start=start)
        assert preprocessing.corner((37, 39)) == corners


def test_timm_rounds_the_size_before_the_crop_down() -> None:
    assert vt.Preprocessing(crop_fraction=0.9).enlarged == (248, 248)
    assert vt.Preprocessing(crop_fraction=0.875).enlarged == (256, 256)


def test_pixels_of_another_scale(tiny: Any, tmp_path: Path) -> None:
    described = {"size": {"height": 32, "width": 32}, **LOOK}
    plain = loaded(described, tiny, tmp_path / "a")
    assert plain.mean == (0.5, 0.4, 0.3)
    image = photograph((64, 48))
    double = loaded(described | {"rescale_factor": 2 / 255}, tiny, tmp_path / "b")
    pixels = plain(image) * torch.tensor(plain.std)[:, None, None] + torch.tensor(plain.mean)[:, None, None]
    expected = (2 * pixels - torch.tensor(plain.mean)[:, None, None]) / torch.tensor(plain.std)[:, None, None]
    torch.testing.assert_close(double(image), expected, atol=1e-5, rtol=0)


def test_a_crop_that_transformers_does_not_have_is_said(
    tiny: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its shortest_edge is one number: a 200x200 image becomes 96x96 there, and 160x160 here."""
    for size in ((32, 32), (32, 56), (56, 32)):
        model = tiny(image_size=size)
        model.preprocessing = vt.Preprocessing(size=size, crop_fraction=0.8, crop_start="floored")
        caplog.clear()
        vt.save(model, tmp_path / "m", format="huggingface", overwrite=True)
        words = f"images that are not of the shape {size[0]}x{size[1]} it sees another part, with"
        assert (words in caplog.text) == (size != (32, 32))
        assert vt.load(tmp_path / "m").preprocessing == model.preprocessing
        assert "center crop of" not in caplog.text
    model.preprocessing = vt.Preprocessing(size=size, resize="squash")
    caplog.clear()
    vt.save(model, tmp_path / "m", format="huggingface", overwrite=True)
    assert "transformers" not in caplog.text


def test_images_that_are_not_resized(tiny: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert loaded({"do_resize": False, **LOOK}, tiny, tmp_path / "m").resize == "squash"
    assert "images are resized to 32x32, where theirs must have this size" in caplog.text


def test_processor_config_json(tiny: Any, tmp_path: Path) -> None:
    """What transformers 5 writes for a model with two towers."""
    vt.save(tiny(), tmp_path / "m", format="huggingface")
    (tmp_path / "m" / "preprocessor_config.json").unlink()
    entries = {"processor_class": "CLIPProcessor", "image_processor": {"size": {"shortest_edge": 32}, **LOOK}}
    (tmp_path / "m" / "processor_config.json").write_text(json.dumps(entries))
    preprocessing = vt.load(tmp_path / "m").preprocessing
    assert (preprocessing.resize, preprocessing.mean) == ("crop", (0.5, 0.4, 0.3))


@pytest.mark.parametrize("target", [(48, 80), (80, 48), (224, 112)])
@pytest.mark.parametrize("fraction", [1.0, 0.9, 0.875])
def test_inputs_that_are_not_square_as_timm(target: tuple[int, int], fraction: float) -> None:
    """timm's ResizeKeepRatio to floor(size / crop_pct), rounded, then torchvision's CenterCrop."""
    preprocessing = vt.Preprocessing(size=target, crop_fraction=fraction, resize="crop")
    for size in SIZES:
        image = photograph(size)
        scale = [math.floor(side / fraction) for side in target]
        ratio = min(image.height / scale[0], image.width / scale[1])
        tall, wide = (round(side / ratio) for side in (image.height, image.width))
        resized = image.convert("RGB").resize((wide, tall), Image.Resampling.BICUBIC)
        top, left = round((tall - target[0]) / 2), round((wide - target[1]) / 2)
        expected = resized.crop((left, top, left + target[1], top + target[0]))
        assert np.array_equal(np.asarray(preprocessing.image(image)), np.asarray(expected)), size


@pytest.mark.slow
@pytest.mark.peers
def test_inputs_that_are_not_square_by_timm_itself(timm: Any) -> None:
    from timm.data.transforms_factory import transforms_imagenet_eval

    for target in ((48, 80), (80, 48), (224, 112)):
        for size in SIZES:
            options = {
                "interpolation": "bicubic",
                "use_prefetcher": False,
                "mean": (0.5,) * 3,
                "std": (0.5,) * 3,
            }
            theirs = transforms_imagenet_eval(img_size=target, crop_pct=0.9, crop_mode="center", **options)
            ours = vt.Preprocessing(size=target, crop_fraction=0.9, resize="crop")
            image = photograph(size).convert("RGB")
            assert (theirs(image) - ours(image)).abs().max() < 1e-6, (size, target)


def test_of_a_very_long_image_the_middle_alone_is_resized() -> None:
    pixels = np.zeros((8, 400_000), dtype=np.uint8)
    middle = slice(199_950, 200_050)
    pixels[:, middle] = np.random.default_rng(0).integers(0, 256, (8, 100))
    preprocessing = Preprocessing(size=(64, 64), channels=1)
    whole, part = (preprocessing.image(Image.fromarray(each)) for each in (pixels, pixels[:, middle]))
    assert np.abs(np.asarray(whole, np.int16) - np.asarray(part, np.int16)).max() <= 1
