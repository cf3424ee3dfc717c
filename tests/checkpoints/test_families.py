"""Tiny models of each family of Vision Transformers, in the files of its own codebase, compute what that
codebase computed (`peer_families.py` wrote both), and survive what a user does with them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import vitreous as vt
from vitreous.checkpoints.format import checkpoint_formats
from vitreous.checkpoints.source import DESCRIPTIONS
from vitreous.tasks.pretraining.rules import MAEConfig

HERE = Path(__file__).parent
TOLERANCE = 2e-5

# What the files of a case do not tell: said by keyword, as a user would.
GIVEN: dict[str, dict[str, Any]] = {
    "frankzvit-apart": {"heads": 2},
    "siglip2-naflex": {},
    "vit-pytorch-qk-norm": {"heads": 2, "image_size": 12},
    "vit-pytorch-registers": {"heads": 2, "image_size": 12},
    "timm-aimv2": {},
    "aimv2": {},
    "aimv2-native": {},
    "tipsv2": {},
    "internvl": {},
    "internvl-rms": {},
    "internvit": {},
    "internvit-6b": {},
    "mlcd": {},
    "vit5": {},
    "timm-beit": {},
    "timm-beit-shared": {},
    "beit": {},
    "beit-pretrained": {},
    "beit-absolute": {},
    "timm-beit-absolute": {},
    "timm-avgmax": {},
    "timm-max": {},
    "timm-parallel-branches": {},
    "timm-parallel-parts": {},
    "timm-parallel-parts-gap": {},
    "vit-pytorch-parallel": {"heads": 2},
    "data2vec": {},
    "open-clip": {"heads": 2, "mlp": "gelu"},
    "openai-clip": {"heads": 2, "mlp": "quick_gelu"},
    "dinov3": {"image_size": 12},
    "dinov3-swiglu": {"image_size": 12},
    "transformers-dinov3": {},
    "transformers-dinov3-gated": {},
    "mae": {"heads": 2},
    "timm-dinov3": {},
    "timm-pe-core": {},
    "timm-pe-lang": {},
    "timm-eva02": {},
    "timm-eva02-post-norm": {},
    "timm-rope-mixed": {},
}
WHOLE = {"decoder_heads": 2, "normalize_pixels": True}
# Of these, what is written has the same names and numbers as what was read.
EXACT = ("tipsv2", "internvl", "internvl-rms", "internvit", "internvit-6b")
# The formats of its codebase that a case is written in; what is written is read back and compared.
WRITTEN = {
    "siglip2-naflex": "huggingface",
    "timm-aimv2": "timm",
    "timm-beit": "timm",
    "aimv2": "aimv2",
    "aimv2-native": "aimv2",
    "timm-beit-shared": "timm",
    "beit": "huggingface",
    "mlcd": "huggingface",
    "vit5": "vit-5",
    "beit-pretrained": "huggingface",
    "data2vec": "huggingface",
    "beit-absolute": "huggingface",
    "timm-beit-absolute": "timm",
    "timm-avgmax": "timm",
    "timm-max": "timm",
    "open-clip": "open-clip",
    "openai-clip": "open-clip",
    "frankzvit-apart": "frankzvit",
    "tipsv2": "huggingface",
    "internvl": "huggingface",
    "internvl-rms": "huggingface",
    "internvit": "huggingface",
    "internvit-6b": "huggingface",
    "vit-pytorch-qk-norm": "vit-pytorch",
    "vit-pytorch-registers": "vit-pytorch",
}


def test_every_case_is_compared(peer_families: ModuleType) -> None:
    assert {*GIVEN} == {*peer_families.CASES}, "-> edit GIVEN of tests/checkpoints/test_families.py"


def largest_difference(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert value.shape == other[name].shape, name
    return max((value - other[name]).abs().max().item() for name, value in one.items())


def computed(model: Any, images: torch.Tensor, names: Any) -> dict[str, torch.Tensor]:
    ours = {"tokens": model.tokens, "output": model}
    return {name: ours[name](images) for name in names}


@pytest.mark.parametrize("name", GIVEN)
@torch.no_grad()
def test_equals_its_own_codebase(name: str, peer_families: ModuleType, tmp_path: Path) -> None:
    folder = HERE / "data" / "families" / name
    model, expected = vt.load(weights_of(folder), **GIVEN[name]), load_file(folder / "expected.safetensors")
    images = peer_families.images(model.config.image_size)
    if (prediction := expected.pop("prediction", None)) is not None:
        mae: Any = vt.MAE.load(weights_of(folder), **GIVEN[name] | WHOLE)
        masking = mae.mask(peer_families.noise())
        assert (mae.predict(images, masking) - prediction).abs().max() < TOLERANCE
        loss = mae.loss(images, mae.predict(images, masking), masking)
        assert (loss - expected.pop("loss")).abs() < TOLERANCE
    if (resized := expected.pop("resized", None)) is not None:
        size = peer_families.OTHERS.get(name, peer_families.OTHER)
        other = vt.load(weights_of(folder), **GIVEN[name] | {"image_size": size})
        assert (other(peer_families.images(size)) - resized).abs().max() < TOLERANCE
    assert largest_difference(computed(model, images, expected), expected) < TOLERANCE

    # what is written here is the same model
    vt.save(model, tmp_path / "native")
    again = vt.load(tmp_path / "native")
    assert again.config == model.config
    assert largest_difference(computed(again, images, expected), expected) < TOLERANCE

    if format := WRITTEN.get(name):
        suffixes = checkpoint_formats()[format].suffixes or ("",)
        vt.save(model, tmp_path / f"written{suffixes[0]}", format=format)
    if name in EXACT:
        theirs, again = (load_file(each / "model.safetensors") for each in (folder, tmp_path / "written"))
        same = [key for key in theirs if key != "mask_token"]  # which no output needs
        assert again.keys() == theirs.keys()
        assert all(torch.equal(again[key], theirs[key]) for key in same)
        named = (json.loads((each / "config.json").read_text()) for each in (folder, tmp_path / "written"))
        assert len({told["model_type"] for told in named}) == 1

    # another size
    larger = vt.resize(model, image_size=16)
    assert larger.tokens(peer_families.images((16, 16))).isfinite().all()

    # attention
    with vt.capture_attention(model) as attention:
        model(images)
    rows = attention.maps[0].sum(-1)
    torch.testing.assert_close(rows, torch.ones_like(rows), atol=1e-5, rtol=0)


def test_a_whole_mae_is_written_as_it_was_read(tmp_path: Path) -> None:
    mae: Any = vt.MAE.load(HERE / "data" / "families" / "mae" / "model.pth", **GIVEN["mae"] | WHOLE)
    vt.save(mae, tmp_path / "mae.pth", format="timm")
    theirs, again = (
        torch.load(path, weights_only=False)["model"]
        for path in (HERE / "data" / "families" / "mae" / "model.pth", tmp_path / "mae.pth")
    )
    assert again.keys() == theirs.keys()
    assert all(torch.equal(again[key], theirs[key]) for key in theirs)

    vt.save(mae, tmp_path / "mae", format="huggingface", license="cc-by-nc-4.0")
    same: Any = vt.MAE.load(tmp_path / "mae")
    assert same.config == mae.config
    assert all(torch.equal(value, mae.state_dict()[key]) for key, value in same.state_dict().items())
    assert "license: cc-by-nc-4.0" in (tmp_path / "mae" / "README.md").read_text()


def test_what_an_mae_cannot_be_saved_as(tmp_path: Path) -> None:
    small = {"image_size": 12, "patch_size": 4, "width": 16, "depth": 1, "heads": 2, "num_classes": None}
    mae = vt.MAE(
        vt.create("ViT-Ti/16", mlp_dim=32, **small),
        tiny := MAEConfig(decoder_width=8, decoder_depth=1, decoder_heads=2, decoder_mlp_dim=8),
    )
    with pytest.raises(vt.InputError, match="has one MLP ratio for encoder and decoder: use format='hugg"):
        vt.save(mae, tmp_path / "mae.pth", format="timm")
    for path, format in (("mae", "timm"), ("mae.pth", "huggingface"), ("mae", "vitreous")):
        with pytest.raises(vt.InputError, match="a whole MAE is saved with format='timm' as a"):
            vt.save(mae, tmp_path / path, format=format)
    with pytest.raises(vt.InputError, match="MAE is saved as a whole: leave out drop"):
        vt.save(mae, tmp_path / "mae", format="huggingface", drop=("head",))
    wide = vt.MAE(vt.create("ViT-Ti/16", mlp_dim=32, **small | {"image_size": (8, 12)}), tiny)
    with pytest.raises(vt.InputError, match=r"not square: save mae\.encoder"):
        vt.save(wide, tmp_path / "mae", format="huggingface")
    assert not list(tmp_path.iterdir())
    (tmp_path / "mae").mkdir()
    (tmp_path / "mae" / "config.json").touch()
    with pytest.raises(vt.InputError, match="already exists"):
        vt.save(mae, tmp_path / "mae", format="huggingface")


def prediction_of_its_own_code(peers: ModuleType, path: Path) -> torch.Tensor:
    """What transformers, or the authors' code, makes of an MAE that was written."""
    if path.is_dir():
        import transformers

        peer = transformers.ViTMAEForPreTraining.from_pretrained(path).eval()
        return peer(pixel_values=peers.images(), noise=peers.noise()).logits
    case = peers.CASES["mae"]()
    case.module.load_state_dict(torch.load(path, weights_only=True)["model"])
    return case.compute(peers.images())["prediction"]


@pytest.mark.parametrize(
    ("name", "format"),
    [
        ("dinov3", "dinov3"),
        ("dinov3-swiglu", "huggingface"),
        ("transformers-dinov3", "dinov3"),
        ("transformers-dinov3-gated", "timm"),
        ("timm-pe-core", "timm"),
        ("timm-eva02", "timm"),
        ("timm-eva02-post-norm", "timm"),
        ("timm-rope-mixed", "timm"),
    ],
)
def test_rotary_models_are_written(name: str, format: str, tmp_path: Path) -> None:
    """What is written is read back and compared by `vt.save`."""
    model: Any = vt.load(weights_of(HERE / "data" / "families" / name), **GIVEN[name])
    assert vt.save(model, tmp_path / ("model.pth" if format == "dinov3" else "m"), format=format) < TOLERANCE


@pytest.mark.parametrize("reference", [None, (3, 3)])
def test_a_null_of_model_args_undoes_what_the_architecture_has(reference: Any, tmp_path: Path) -> None:
    """The architecture of timm that such a model is written as has a reference size of 16 x 16 patches."""
    position = {"kind": "rotary-2d", "rotary": {"reference": reference}}
    model = vt.create("ViT-Ti/16", image_size=64, depth=1, num_classes=2, position=position)
    assert vt.save(model, tmp_path / "m", format="timm") < TOLERANCE
    assert vt.load(tmp_path / "m").config.rotary.reference == reference


def test_rounded_wavelengths(tmp_path: Path) -> None:
    """Meta's files have them, and other codebases compute them: the model is another by as much."""
    model: Any = vt.load(weights_of(HERE / "data" / "families" / "dinov3"), image_size=12)
    assert model.config.rotary.periods == (1.0, 3.15625, 10.0, 31.625)
    with pytest.raises(vt.InputError, match=r"cannot hold position\.rotary\.periods; leave it out"):
        vt.save(model, tmp_path / "m", format="huggingface")
    vt.save(model, tmp_path / "m", format="huggingface", drop=("position.rotary.periods",))
    assert "embeddings.mask_token" in load_file(tmp_path / "m" / "model.safetensors")
    exact: Any = vt.load(tmp_path / "m")
    images = torch.randn(2, 3, 12, 12)
    assert 0 < (exact(images) - model(images)).abs().max() < 0.05


@pytest.mark.slow
def test_the_names_of_vit5_are_the_models_of_its_code(peer_families: ModuleType) -> None:
    try:
        peer_families.vit5()
    except ImportError as error:
        pytest.skip(str(error))
    code = sys.modules["models_vit5"]
    for size in ("small", "base"):
        state = getattr(code, f"vit5_{size}")(img_size=32).state_dict()
        ours = vt.create(f"ViT-5-{size[0].upper()}/16", image_size=32).config
        assert vt.load(state).config == ours.model_copy(update={"layer_scale": 1.0})


def test_a_bare_file_of_eva_is_not_guessed(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    for name in ("timm-dinov3", "timm-pe-core", "timm-pe-lang", "timm-eva02"):
        folder = HERE / "data" / "families" / name
        save_file(load_file(folder / "model.safetensors"), tmp_path / f"{name}.safetensors")
        with pytest.raises(vt.InputError, match="does not store its rotary positions: pass like='timm:NAME'"):
            vt.load(tmp_path / f"{name}.safetensors", heads=2, mlp="gelu", image_size=12)


def weights_of(folder: Path) -> Path:
    """The folder, or the one file of weights in it where nothing describes it."""
    named = {path.name for path in folder.glob("*.json")}
    unread = ", ".join(named - {*DESCRIPTIONS})
    assert not unread, f"{folder.name}: -> edit `sidecars` of the row in FORMATS, which has no {unread}"
    if named:
        return folder
    return next(path for path in sorted(folder.iterdir()) if path.name != "expected.safetensors")


@pytest.mark.slow
@pytest.mark.parametrize("name", GIVEN)
@torch.no_grad()
def test_the_golden_files_are_those_of_the_installed_codebase(
    name: str, peer_families: ModuleType, tmp_path: Path
) -> None:
    try:
        peer_families.write(name, tmp_path)
    except ImportError as error:
        pytest.skip(str(error))
    expected = load_file(tmp_path / "expected.safetensors")
    kept = load_file(HERE / "data" / "families" / name / "expected.safetensors")
    assert largest_difference(expected, kept) < 5e-6  # another processor adds up in another order
    for more in ("resized", "prediction", "loss"):
        expected.pop(more, None)
    model = vt.load(weights_of(tmp_path), **GIVEN[name])
    images = peer_families.images(model.config.image_size)
    assert largest_difference(computed(model, images, expected), expected) < TOLERANCE


def test_the_table_of_families_is_what_was_measured() -> None:
    """`benchmarks/checkpoint_families.py` has every row, and none is far from its codebase."""
    stored = HERE.parents[1] / "benchmarks" / "results" / "checkpoint_families.json"
    measured = json.loads(stored.read_text(encoding="utf-8"))["families"]
    listed = vt.list_families()
    assert {name: set(rows) for name, rows in listed.items()} == {
        name: set(rows) for name, rows in measured.items()
    }, "-> run benchmarks/checkpoint_families.py, which measures what the formats list as their `families`"
    formats = vt.list_formats()
    for family, rows in listed.items():
        for format, ways in rows.items():
            assert format in formats
            assert ("out" in ways) == ("out" in measured[family][format]), (family, format)
            assert "out" not in ways or "(only read)" not in formats[format]
            assert max(measured[family][format][way] for way in ways.split(", ")) < TOLERANCE


@pytest.mark.slow
def test_the_families_are_measured_again(tmp_path: Path) -> None:
    """With the codebases that are installed."""
    program = HERE.parents[1] / "benchmarks" / "checkpoint_families.py"
    subprocess.run([sys.executable, str(program), "--out", str(tmp_path)], check=True, capture_output=True)
    measured = json.loads((tmp_path / "checkpoint_families.json").read_text(encoding="utf-8"))["families"]
    rows = [row for formats in measured.values() for row in formats.values()]
    assert max(row[way] for row in rows for way in ("in", "out") if way in row) < TOLERANCE
    for family in ("MAE, with its decoder", "TIPSv2", "MLCD", "I-JEPA"):
        assert measured[family]["huggingface"]["by"] == "transformers"
