"""Small files in the forms in which codebases publish them (`published_files.py` made them)."""

from __future__ import annotations

import json
import pickle
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import vitreous as vt

FOLDER = Path(__file__).parent / "data" / "published"
X = torch.zeros(16, dtype=torch.long)
FORMS: dict[str, dict[str, Any]] = {
    "pretrained_vit": {"heads": 2},
    "jeonsworld": {"heads": 2},
    "monai_classifier": {"heads": 2},
    "monai_encoder": {"heads": 2},
    "aimv2_apple": {},
    "mmpretrain_vit": {"heads": 2},
    "mmpretrain_deit": {"heads": 2},
    "mmpretrain_mae": {"heads": 2},
    "mmpretrain_both_norms": {"heads": 2},
    "mmpretrain_swiglu": {"heads": 2},
    "mmpretrain_beit": {"heads": 2},
    "mmseg": {"heads": 2},
}


def file_of(name: str) -> Path:
    return FOLDER / f"{name}.safetensors"


@torch.no_grad()
def compared(name: str) -> tuple[torch.Tensor, torch.Tensor]:
    """What the model of a file gives, and what its codebase gives."""
    model: Any = vt.load(file_of(name), **FORMS[name])
    made = json.loads(file_of(name).with_suffix(".json").read_text())
    images, expected = torch.tensor(made["images"]), torch.tensor(made["outputs"])
    found = model(images) if expected.ndim == 2 else model.tokens(images)
    if expected.ndim == 4:  # a map of the patches
        expected = expected.flatten(2).mT
        found = found[:, -expected.shape[1] :]
    # the Tanh is said, and not a part of ours
    return found.tanh() if name == "monai_classifier" else found, expected


@pytest.mark.parametrize("name", FORMS)
def test_a_published_file_gives_what_its_codebase_gives(name: str) -> None:
    found, expected = compared(name)
    assert (found - expected).abs().max() < 2e-5 * expected.abs().max()


def test_what_is_not_in_the_file_is_asked_for_or_said(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    with pytest.raises(vt.InputError, match="does not store the number of heads"):
        vt.load(file_of("pretrained_vit"))
    vt.load(file_of("monai_classifier"), heads=2)
    assert "the head's logits, before the Tanh" in caplog.text
    vt.load(file_of("aimv2_apple"))
    assert "1 heads, of 128 channels as Apple's" in caplog.text
    state = load_file(file_of("monai_encoder"))
    state["patch_embedding.patch_embeddings.weight"] = torch.randn(16, 1, 4, 4, 4)
    save_file(state, tmp_path / "volumes.safetensors")
    with pytest.raises(vt.InputError, match=r"takes volumes \(spatial_dims=3\), not images"):
        vt.load(tmp_path / "volumes.safetensors", heads=2)


def test_a_folder_of_sentence_transformers_is_opened_at_its_first_module(tmp_path: Path) -> None:
    model = vt.create("ViT-Ti/16", image_size=32, depth=1, num_classes=None, norm_eps=1e-5, mlp="quick_gelu")
    vt.save(model, tmp_path / "m" / "0_CLIPModel", format="huggingface")
    modules = tmp_path / "m" / "modules.json"
    modules.write_text(json.dumps([{"idx": 0, "name": "0", "path": "0_CLIPModel", "type": "CLIPModel"}]))
    images = torch.rand(1, 3, 32, 32)
    with torch.no_grad():
        assert torch.allclose(vt.load(tmp_path / "m")(images), model(images), atol=1e-5)
    modules.write_text(json.dumps([{"path": "../elsewhere"}]))
    with pytest.raises(vt.InputError, match=r"modules\.json is not valid"):
        vt.load(tmp_path / "m")


@pytest.mark.parametrize(
    ("more", "kind"),
    [
        ("tokens_to_token.attention1.w", "a T2T-ViT"),
        ("channel_embed", "a model of groups of channels"),
        ("token_type_embeddings.weight", "a ViLT"),
        ("interactions.0.injector.gamma", "a ViT-Adapter"),
        ("blocks.0.attn.qkv.SCB", "a quantized model: pass its weights before quantization"),
        ("blocks_token_only.0.norm1.weight", "a CaiT, whose class attention"),
        ("blocks.0.attn.rel_pos_h", "an encoder with windowed attention"),
    ],
)
def test_a_part_that_is_not_known_is_named_also_where_a_format_recognizes_the_file(
    more: str, kind: str, tmp_path: Path
) -> None:
    vt.save(vt.create("ViT-Ti/16", image_size=32, depth=1), tmp_path / "m.safetensors", format="timm")
    state = load_file(tmp_path / "m.safetensors") | {more: torch.ones(4)}
    with pytest.raises(vt.InputError, match=kind):
        vt.load(state, heads=3)


def test_a_description_of_another_model_is_refused_also_where_its_weights_look_like_timms(
    tmp_path: Path,
) -> None:
    vt.save(vt.create("ViT-Ti/16", image_size=32, depth=1), tmp_path / "m", format="timm")
    (tmp_path / "m" / "config.json").write_text(json.dumps({"model_type": "qwen2_vl_vision"}))
    with pytest.raises(
        vt.InputError, match="qwen2_vl_vision of transformers has a part that is not supported"
    ):
        vt.load(tmp_path / "m", heads=3)


def test_counters_beside_an_encoder_are_not_a_head(tmp_path: Path) -> None:
    model = vt.create("ViT-Ti/16", image_size=32, depth=1, num_classes=5)
    vt.save(model, tmp_path / "m.safetensors", format="timm")
    state = {f"model.{name}": tensor for name, tensor in load_file(tmp_path / "m.safetensors").items()}
    state |= {"train_acc.correct": torch.tensor(3), "criterion.weight": torch.ones(5)}
    images = torch.rand(1, 3, 32, 32)
    with torch.no_grad():
        assert torch.allclose(vt.load({"state_dict": state}, heads=3)(images), model(images), atol=1e-5)


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"\x08\x08\x12\x07pytorch" + bytes(50), "an ONNX program: vitreous.predict takes it"),
        (b"\x81\xa6params\x80", "a msgpack file, as Flax writes them"),
        (b"", "is empty: its download may have failed"),
        (b"\xff\xd8\xff\xe0" + bytes(20), "a JPEG image, not a checkpoint"),
        (b'{"model_type": "vit"}', "text in JSON, which may describe a model"),
        (b"\x1c\0\0\0TFL3" + bytes(20), "a TensorFlow Lite program"),
        (b"<!DOCTYPE html><html></html>", "a web page, not a checkpoint: the download failed"),
        (b'<?xml version="1.0"?><net/>', "an XML file, as exported programs have it"),
        (b"\x1f\x8b\x08" + bytes(20), "compressed with gzip: unpack it"),
        (pickle.dumps({"a": np.zeros(3)}, protocol=2), "a pickle of NumPy arrays, as PaddlePaddle"),
    ],
)
def test_files_that_are_not_checkpoints_are_named(content: bytes, kind: str, tmp_path: Path) -> None:
    (tmp_path / "m.bin").write_bytes(content)
    with pytest.raises(vt.InputError, match=kind):
        vt.load(tmp_path / "m.bin")


def test_a_tar_archive_is_to_be_unpacked(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "m.tar", "w") as archive:
        archive.add(file_of("pretrained_vit"), "m.safetensors")
    with pytest.raises(vt.InputError, match="a tar archive: unpack it"):
        vt.load(tmp_path / "m.tar")


def test_a_swin_of_torchvision_is_called_one() -> None:
    state = {"features.0.0.weight": torch.ones(4, 3, 4, 4), "features.1.0.attn.relative_position_index": X}
    with pytest.raises(vt.InputError, match="this is a Swin Transformer"):
        vt.load(state)


@pytest.mark.parametrize("name", ["model.ckpt.index", "model.ckpt.data-00000-of-00001"])
def test_checkpoints_of_tensorflow_are_named(name: str, tmp_path: Path) -> None:
    for each in ("model.ckpt.index", "model.ckpt.data-00000-of-00001"):
        (tmp_path / each).write_bytes(bytes(40))
    for path in (tmp_path, tmp_path / name):
        with pytest.raises(vt.InputError, match="a checkpoint of TensorFlow"):
            vt.load(path)


@pytest.mark.parametrize(
    ("names", "kind"),
    [
        (("blocks.0.local_mp.conv1.weight", "cls_attn_blocks.0.norm1.weight"), "an XCiT"),
        (("block1.0.attn.sr.weight", "patch_embed2.proj.weight"), "a PVT"),
        (("stages.0.blocks.0.attn_grid.attn.qkv.weight",), "a MaxViT"),
        (("MixerBlock_0.token_mixing.Dense_0.kernel",), "an MLP-Mixer"),
        (("params/vit/encoder/layer/0/output/dense/kernel",), "a model of Flax under other names"),
        (("blocks.0.attn.qkv.zero_point", "cls_token"), "a quantized model"),
        (("transformer.layers.0.0.reattn_weights",), "a DeepViT"),
    ],
)
def test_other_networks_are_called_by_their_names(names: tuple[str, ...], kind: str) -> None:
    with pytest.raises(vt.InputError, match=f"this is {kind}"):
        vt.load({name: torch.ones(4, 4) for name in names})


@pytest.fixture
def encoder(tmp_path: Path) -> tuple[dict[str, torch.Tensor], torch.Tensor, torch.Tensor]:
    """The weights of an encoder under timm's names, images, and its features of them."""
    model = vt.create("ViT-Ti/16", image_size=32, depth=1, num_classes=None)
    vt.save(model, tmp_path / "e.safetensors", format="timm")
    images = torch.rand(1, 3, 32, 32)
    with torch.no_grad():
        return load_file(tmp_path / "e.safetensors"), images, model(images)


Encoder = tuple[dict[str, torch.Tensor], torch.Tensor, torch.Tensor]


def test_a_head_in_a_mapping_of_its_own_is_the_head(encoder: Encoder) -> None:
    state, images, features = encoder
    matrix = torch.randn(7, 192)
    model = vt.load({"backbone": state, "head": {"weight": matrix}, "optimizer": {"m": matrix}}, heads=3)
    with torch.no_grad():
        torch.testing.assert_close(model(images), features @ matrix.T, atol=1e-5, rtol=1e-5)


def test_decoders_of_maps_and_metrics_beside_an_encoder_are_not_heads(encoder: Encoder) -> None:
    state, images, features = encoder
    whole = {f"pretrained.model.{name}": tensor for name, tensor in state.items()}
    whole |= {"pretrained.act_postprocess1.0.project.0.weight": torch.ones(192, 384), "acc.tp": torch.ones(5)}
    whole |= {"pretrained.act_postprocess1.3.weight": torch.ones(8, 192, 1, 1)}
    whole |= {"scratch.refinenet1.out_conv.weight": torch.ones(8, 8, 1, 1)}
    with torch.no_grad():
        torch.testing.assert_close(vt.load(whole, heads=3)(images), features)
    stem = {"stem.weight": torch.ones(3, 12, 1, 1)}  # which makes the channels that the encoder takes
    with pytest.raises(vt.InputError, match=r"weights left over.*: stem\.weight"):
        vt.load(whole | stem, heads=3)


def test_names_of_sharded_and_recomputed_modules_inside(encoder: Encoder) -> None:
    state, images, features = encoder
    names = {name: name.replace("blocks.0.", "blocks.0._checkpoint_wrapped_module.") for name in state}
    whole = {f"_fsdp_wrapped_module.{names[name]}": tensor for name, tensor in state.items()}
    with torch.no_grad():
        torch.testing.assert_close(vt.load(whole, heads=3)(images), features)


def test_patches_of_several_images_are_named(encoder: Encoder) -> None:
    state, _, _ = encoder
    with pytest.raises(vt.InputError, match=r"patches of several images \(a video\)"):
        vt.load(state | {"patch_embed.proj.weight": torch.ones(192, 3, 2, 16, 16)}, heads=3)


def test_a_norm_after_a_layer_is_not_before_a_head(encoder: Encoder) -> None:
    state, images, features = encoder
    whole = {f"encoder.{name}": tensor for name, tensor in state.items()}
    matrix, ones, zeros = torch.randn(192, 192), torch.ones(192), torch.zeros(192)
    after = {"out.0.weight": matrix, "out.1.weight": ones, "out.1.bias": zeros}
    with pytest.raises(vt.InputError, match=r"weights left over.*: out\.0\.weight"):
        vt.load(whole | after, heads=3)
    before = {"out.0.weight": ones, "out.0.bias": zeros, "out.1.weight": matrix}
    with torch.no_grad():
        expected = torch.nn.functional.layer_norm(features, (192,), eps=1e-6) @ matrix.T
        torch.testing.assert_close(vt.load(whole | before, heads=3)(images), expected, atol=1e-4, rtol=1e-4)
