"""Descriptions of image processors with one field changed or left out, beside transformers' own processor of
this class: the same pixels, a sentence that says what differs, or a refusal."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import vitreous as vt

pytestmark = [pytest.mark.slow, pytest.mark.peers]
NAMES = ("ViT", "DeiT", "Beit", "CLIP", "Siglip", "Bit", "ChineseCLIP", "Blip", "OwlViT", "Flava")
SQUARE: dict[str, Any] = {"height": 224, "width": 224}
SIZES = (
    *(224, {"shortest_edge": 224}, SQUARE, {"height": 224, "width": 180}, {"shortest_edge": 256}),
    *({"longest_edge": 224}, {"height": 256, "width": 256}, [224, 224], {"shortest_edge": 200}),
    {"shortest_edge": 224, "longest_edge": 300},
)
CROPS = (
    *(224, SQUARE, {"height": 256, "width": 256}, {"height": 200, "width": 200}),
    *({"height": 224, "width": 160}, [224, 224]),
)
OTHERS = {
    "rescale_factor": 1 / 127.5,
    "rescale_offset": True,
    "offset": True,
    "crop_pct": 0.9,
    "do_pad": True,
    "keep_aspect_ratio": True,
    "ensure_multiple_of": 14,
    "do_flip_channel_order": True,
    "size": None,
    "default_to_square": False,
    "image_mean": [0.1, 0.2, 0.3],
    "image_std": None,
    "resample": None,
    "do_thumbnail": True,
    "do_image_splitting": True,
    "size_divisor": 32,
    "max_num_patches": 49,
}


def changed(described: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The description, and with one field changed or left out."""
    yield described
    for field in described:
        yield {name: value for name, value in described.items() if name != field}
    for field in ("do_resize", "do_center_crop", "do_rescale", "do_normalize"):
        yield described | {field: not described.get(field)}
        yield described | {field: None}
    for size in SIZES:
        yield described | {"size": size}
        yield described | {"size": size, "do_center_crop": True, "crop_size": SQUARE}
    for crop in CROPS:
        yield described | {"do_center_crop": True, "crop_size": crop}
    for resample in range(6):
        yield described | {"resample": resample}
    for field, value in OTHERS.items():
        yield described | {field: value}


@pytest.mark.parametrize("name", NAMES)
def test_no_description_of_an_image_processor_is_misread(
    name: str, timm: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, program_beside: Any
) -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    photograph = program_beside("test_preprocessing").photograph

    sizes = {"image_size": 224, "patch_size": 32, "depth": 1, "width": 32, "heads": 2, "mlp_dim": 32}
    vt.save(vt.create("ViT-Ti/16", **sizes), tmp_path / "m", format="huggingface")
    images = [photograph((333, 500)), photograph((640, 427))]
    kind = getattr(transformers, f"{name}ImageProcessorPil")
    own = {key: v for key, v in json.loads(kind().to_json_string()).items() if v is not None}
    own = {key: v for key, v in own.items() if not key.startswith(("codebook", "_", "image_processor"))}
    if name in ("Blip", "OwlViT"):  # whose own images are larger
        own["size"] = SQUARE
    equal = 0
    for described in changed(own):
        file = tmp_path / "m" / "preprocessor_config.json"
        file.write_text(json.dumps({"image_processor_type": f"{name}ImageProcessorFast"} | described))
        caplog.clear()
        try:
            with caplog.at_level(logging.WARNING):
                look: Any = vt.load(tmp_path / "m").preprocessing
        except vt.InputError:
            continue
        said = any("assumed" in message for message in caplog.messages)
        try:
            peer = kind.from_dict(dict(described))
            theirs = [peer(image, return_tensors="pt")["pixel_values"][0] for image in images]
        except (ValueError, TypeError, KeyError):
            continue  # not even by the peer
        for image, pixels in zip(images, theirs, strict=True):
            found = look(image)
            same = found.shape == pixels.shape and torch.allclose(found, pixels.float(), atol=3e-6, rtol=3e-6)
            assert same or said, described
            equal += same
    assert equal >= 20


@pytest.mark.parametrize("name", [*NAMES, "DPT", "DINOv3ViT"])
def test_a_processor_of_torchvision_rounds_otherwise_and_does_the_same(
    name: str, timm: Any, tmp_path: Path, program_beside: Any
) -> None:
    """transformers 5's own classes resize tensors, where Pillow's arithmetic is followed here: a few of 255
    gray levels apart, and never a pixel."""
    photograph = program_beside("test_preprocessing").photograph
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    sizes = {"image_size": 224, "patch_size": 32, "depth": 1, "width": 32, "heads": 2, "mlp_dim": 32}
    vt.save(vt.create("ViT-Ti/16", **sizes), tmp_path / "m", format="huggingface")
    kind = getattr(transformers, f"{name}ImageProcessor")
    others = [SQUARE] if name in ("Blip", "OwlViT", "DPT", "DINOv3ViT") else [None, {"shortest_edge": 229}]
    for size in others:
        given = {"size": size} if size else {}
        peer = kind(**given)
        (tmp_path / "m" / "preprocessor_config.json").write_text(peer.to_json_string())
        try:
            look: Any = vt.load(tmp_path / "m").preprocessing
        except vt.InputError:
            assert size == {"shortest_edge": 229}  # without a crop
            continue
        for image in map(photograph, ((333, 500), (640, 427))):
            pixels = peer(image.convert("RGB"), return_tensors="pt")["pixel_values"][0]
            if pixels.shape == look(image).shape:
                assert (look(image) - pixels).abs().max() < 0.1
                assert (look(image) - pixels).abs().mean() < 0.01
