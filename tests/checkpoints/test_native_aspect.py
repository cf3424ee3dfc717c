"""Images in their own aspect ratio: what a batch of several shapes gives is what each image gives alone, to
the model resized for it; and what timm's NaFlexViT and transformers' SigLIP 2 give."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

import vitreous as vt
from vitreous.models.config import Origin
from vitreous.models.preprocessing import NativePreprocessing, padded, unpadded
from vitreous.models.vit import ViT

SHAPES = [(4, 4), (2, 7), (5, 3), (1, 2)]  # in patches
FORMS: list[dict[str, Any]] = [
    {},
    {"registers": 2, "pooling": "mean", "final_norm": "pooled"},
    {"class_token": False, "pooling": "attention"},
    {"extra_norms": ("tokens",), "pooling": "class+mean"},
    {"stem": {"kind": "patch", "form": "linear", "norm_after": True}},
]


def images(patch: int = 8) -> list[torch.Tensor]:
    rng = torch.Generator().manual_seed(0)
    return [torch.randn(3, patch * rows, patch * columns, generator=rng) for rows, columns in SHAPES]


def photographs() -> list[Image.Image]:
    rng = np.random.default_rng(0)
    sizes = ((64, 64), (30, 90), (100, 20), (33, 47))
    return [Image.fromarray(rng.integers(0, 255, (*size, 3), dtype=np.uint8)) for size in sizes]


@pytest.mark.parametrize("fields", FORMS)
@pytest.mark.parametrize("interpolation", ["timm", "flexivit-square"])
@torch.no_grad()
def test_a_batch_of_several_shapes_gives_what_each_image_gives_alone(
    tiny: Callable[..., ViT], fields: dict[str, Any], interpolation: str
) -> None:
    model = tiny(**fields)
    native = vt.NativeAspect(model, interpolation=interpolation)
    found = native(padded(images()))
    for image, outputs in zip(images(), found, strict=True):
        alone = vt.resize(model, image_size=tuple(image.shape[1:]), interpolation=interpolation)
        assert torch.allclose(alone(image[None])[0], outputs, atol=2e-5)


def test_padding_is_taken_away_again() -> None:
    for image, again in zip(images(), unpadded(padded(images())), strict=True):
        assert torch.equal(image, again)


def test_images_get_as_many_whole_patches_as_are_allowed() -> None:
    look = NativePreprocessing(patch_size=(8, 8), patches=16)
    assert [look.size_of(size) for size in ((64, 64), (30, 90), (100, 20), (33, 47))] == [
        (32, 32),
        (16, 48),
        (64, 16),
        (24, 40),
    ]
    batch = look(photographs())
    assert batch.shape == (4, 3, 64, 48)
    with pytest.raises(vt.InputError, match=r"99999999x1 pixels is too long for 4 patches: allow more"):
        NativePreprocessing(patches=4, patch_size=(8, 8)).size_of((1, 99_999_999))


def test_predict_and_embed_take_images_in_their_own_aspect_ratio(
    tiny: Callable[..., ViT], tmp_path: Path
) -> None:
    model = tiny()
    model.labels = list("abcde")
    vt.save(model, tmp_path / "m")
    paths = [tmp_path / f"{number}.png" for number in range(4)]
    for path, image in zip(paths, photographs(), strict=True):
        image.save(path)
    (tmp_path / "bad.png").write_bytes(b"no image")
    native = vt.NativeAspect(model, patches=12)
    with torch.no_grad():
        logits = native(native.preprocessing(photographs()))
        features = native.features(native.preprocessing(photographs()))
    given = [*paths, tmp_path / "bad.png"]
    answers = vt.predict(tmp_path / "m", given, patches=12, batch_size=3, progress=False)
    expected = logits.softmax(dim=1).max(dim=1).values.tolist()
    assert [each.probability for each in answers.answers[:-1]] == pytest.approx(expected, abs=1e-6)
    assert answers.answers[-1].probability is None  # a row for each image
    assert list(answers.failed) == [str(tmp_path / "bad.png")]
    embedded = vt.embed(tmp_path / "m", given, patches=12, batch_size=3, progress=False)
    assert np.allclose(embedded.values[:-1], features.numpy(), atol=1e-5)
    with pytest.raises(vt.InputError, match="leave out `patches` or `tta`"):
        vt.predict(tmp_path / "m", paths, patches=12, tta=True)
    with pytest.raises(vt.InputError, match="`patches` 0 leaves nothing"):
        vt.embed(tmp_path / "m", paths, patches=0)


def test_models_whose_positions_are_inside_the_layers_are_refused(tiny: Callable[..., ViT]) -> None:
    with pytest.raises(vt.InputError, match="learned positions at the stem, not rotary-2d"):
        vt.NativeAspect(tiny(position="rotary-2d", width=32, heads=4))
    with pytest.raises(vt.InputError, match="whose patches are projected one by one"):
        vt.NativeAspect(tiny(stem={"kind": "convolution", "strides": (2, 2, 2), "widths": (8, 8, 8)}))


@pytest.mark.parametrize(
    ("architecture", "format", "interpolation", "fields"),
    [
        ("naflexvit_base_patch16_par_gap", "timm", "timm-square", {"pooling": "mean", "registers": 1}),
        ("Siglip2VisionModel", "huggingface", "flexivit", {"pooling": "attention", "num_classes": None}),
    ],
)
def test_what_came_as_naflex_is_written_as_naflex(
    tiny: Callable[..., ViT],
    tmp_path: Path,
    architecture: str,
    format: str,
    interpolation: str,
    fields: dict[str, Any],
) -> None:
    model = tiny(class_token=False, **fields)
    model.origin = Origin(
        source="a file", format=format, architecture=architecture, interpolation=interpolation
    )
    vt.save(model, tmp_path / "m", format=format)
    described = json.loads((tmp_path / "m" / "config.json").read_text())
    assert architecture in (described["architectures"] if format == "huggingface" else described.values())
    stem = "embeds.proj.weight" if format == "timm" else "embeddings.patch_embedding.weight"
    assert load_file(tmp_path / "m" / "model.safetensors")[stem].shape == (32, 192)
    again = vt.load(tmp_path / "m")
    native = vt.NativeAspect(again)
    assert native.interpolation == interpolation
    with torch.no_grad():
        expected = vt.NativeAspect(model, interpolation=interpolation)(images())
        assert torch.allclose(native(images()), expected, atol=2e-5)
    vt.save(again, tmp_path / "own")  # which remembers how
    assert vt.NativeAspect(vt.load(tmp_path / "own")).interpolation == interpolation


def naflex_batch(pixels: list[torch.Tensor], patch: int) -> dict[str, torch.Tensor]:
    """Images as timm's NaFlexViT takes them."""
    count = max(image.shape[1] * image.shape[2] for image in pixels) // patch**2
    patches = torch.zeros(len(pixels), count, 3 * patch**2)
    places, valid = torch.zeros(len(pixels), count, 2).long(), torch.zeros(len(pixels), count).bool()
    for row, image in enumerate(pixels):
        rows, columns = image.shape[1] // patch, image.shape[2] // patch
        cells = (
            image.reshape(3, rows, patch, columns, patch).permute(1, 3, 2, 4, 0).reshape(rows * columns, -1)
        )
        patches[row, : len(cells)], valid[row, : len(cells)] = cells, True
        grid = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
        places[row, : len(cells)] = torch.stack(grid, dim=-1).reshape(-1, 2)
    return {"patches": patches, "patch_coord": places, "patch_valid": valid}


def drawn(module: Any) -> Any:
    """The module with weights of which none is zero."""
    rng = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for each in module.parameters():
            one = 1.0 if each.ndim == 1 and each.min() == 1 else 0.0
            each.copy_(one + 0.15 * torch.randn(each.shape, generator=rng))
    return module.eval()


@pytest.mark.slow
@pytest.mark.peers
@torch.no_grad()
def test_every_naflexvit_of_timm_is_read_used_and_written(timm: ModuleType, tmp_path: Path) -> None:
    names = timm.list_models("naflexvit*")
    assert len(names) >= 14
    args = {"embed_dim": 64, "depth": 2, "num_heads": 4, "mlp_ratio": 2, "pos_embed_grid_size": [4, 4]}
    for name in names:
        classes = {} if "radio" in name else {"num_classes": 5}
        module = drawn(timm.create_model(name, **args, **classes))
        folder = tmp_path / name
        folder.mkdir()
        save_file({k: v.contiguous() for k, v in module.state_dict().items()}, folder / "model.safetensors")
        described = {"architecture": name, "model_args": args, "pretrained_cfg": module.pretrained_cfg}
        (folder / "config.json").write_text(json.dumps(described, default=list))
        expected = module(naflex_batch(images(16), 16))
        model = vt.load(folder)
        assert torch.allclose(vt.NativeAspect(model)(images(16)), expected, atol=2e-5), name
        wide = torch.randn(2, 3, 48, 96)
        assert torch.allclose(vt.load(folder, image_size=(48, 96))(wide), module(wide), atol=2e-5), name
        assert torch.allclose(vt.NativeAspect(vt.load(module))(images(16)), expected, atol=2e-5), name
        vt.save(model, tmp_path / "out" / name, format="timm")
        written = json.loads((tmp_path / "out" / name / "config.json").read_text())
        again = timm.create_model(written["architecture"], **written["model_args"]).eval()
        again.load_state_dict(load_file(tmp_path / "out" / name / "model.safetensors"))
        assert torch.allclose(again(naflex_batch(images(16), 16)), expected, atol=2e-5), name


@pytest.mark.slow
@pytest.mark.peers
@torch.no_grad()
def test_siglip_2_of_transformers_is_used_at_any_shape(timm: ModuleType, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.Siglip2VisionConfig(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        patch_size=8,
        num_patches=16,
    )
    module = drawn(transformers.Siglip2VisionModel(config))
    module.save_pretrained(tmp_path / "m")
    processor = transformers.Siglip2ImageProcessor(patch_size=8, max_num_patches=16)
    processor.save_pretrained(tmp_path / "m")
    prepared = processor(images=photographs(), return_tensors="pt")
    expected = module(**prepared).pooler_output
    native = vt.NativeAspect(vt.load(tmp_path / "m"))
    shapes = prepared["spatial_shapes"].tolist()
    sizes = [native.preprocessing.size_of((each.height, each.width)) for each in photographs()]
    assert sizes == [(8 * rows, 8 * columns) for rows, columns in shapes]
    pixels = [
        row[: rows * columns].reshape(rows, columns, 8, 8, 3).permute(4, 0, 2, 1, 3).reshape(3, 8 * rows, -1)
        for row, (rows, columns) in zip(prepared["pixel_values"], shapes, strict=True)
    ]
    assert torch.allclose(native(pixels), expected, atol=2e-5)
    vt.save(native.model, tmp_path / "out", format="huggingface")
    again = transformers.AutoModel.from_pretrained(tmp_path / "out").eval()
    processor = transformers.AutoImageProcessor.from_pretrained(tmp_path / "out")
    found = again(**processor(images=photographs(), return_tensors="pt")).pooler_output
    assert torch.allclose(found, expected, atol=2e-5)
