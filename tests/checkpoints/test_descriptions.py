"""What a description beside the weights says is read, or known to change nothing, or refused by its name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import vitreous as vt
from vitreous.checkpoints.formats.huggingface_configs import INTERNVIT, IRRELEVANT, READ, SHOWN, defaults

FAMILIES = Path(__file__).parent / "data" / "families"


def described(folder: Path, copy: Path, **fields: Any) -> Path:
    """A copy of a folder with fields of its config.json changed; those of a dict are merged, None removes."""
    copy.mkdir()
    for file in folder.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    config = json.loads((copy / "config.json").read_text())
    for name, value in fields.items():
        config[name] = {**config.get(name, {}), **value} if isinstance(value, dict) else value
    config = {name: value for name, value in config.items() if value is not None}
    (copy / "config.json").write_text(json.dumps(config))
    return copy


def outputs(path: Path, **told: Any) -> torch.Tensor:
    model: Any = vt.load(path, **told)
    images = torch.linspace(-2, 2, 3 * model.config.image_size[0] * model.config.image_size[1])
    return model.tokens(images.reshape(1, 3, *model.config.image_size))


@pytest.mark.parametrize("activation", ["gelu", "gelu_pytorch_tanh", "quick_gelu", "relu"])
def test_the_gate_of_an_mlp_has_the_activation_that_is_stated(activation: str, tmp_path: Path) -> None:
    gated = FAMILIES / "transformers-dinov3-gated"
    changed = described(gated, tmp_path / "m", hidden_act=activation)
    model: Any = vt.load(changed)
    weights = load_file(changed / "model.safetensors")
    name = next(name for name in weights if name.endswith("layer.0.mlp.gate_proj.weight"))
    z = torch.randn(2, 3, weights[name].shape[1])
    mlp = {
        part: torch.nn.functional.linear(z, weights[name.replace("gate_proj", part)], weights[bias])
        for part in ("gate_proj", "up_proj")
        for bias in [name.replace("gate_proj.weight", f"{part}.bias")]
    }
    act = {
        "gelu": torch.nn.functional.gelu,
        "gelu_pytorch_tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
        "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),
        "relu": torch.relu,
    }[activation]
    last = name.replace("gate_proj", "down_proj")
    expected = (act(mlp["gate_proj"]) * mlp["up_proj"]) @ weights[last].T
    expected = expected + weights[last.replace("weight", "bias")]
    torch.testing.assert_close(model.blocks[0].mlp(z), expected, atol=1e-5, rtol=0)
    vt.save(model, tmp_path / "written", format="huggingface")
    assert json.loads((tmp_path / "written" / "config.json").read_text())["hidden_act"] == activation
    with pytest.raises(vt.InputError, match="cannot hold mlp="):
        vt.save(model, tmp_path / "timm", format="timm")


def test_a_field_that_changes_the_function_is_refused_by_its_name(tmp_path: Path) -> None:
    changed = described(FAMILIES / "mlcd", tmp_path / "m", num_key_value_groups=2)
    with pytest.raises(vt.InputError, match=r"num_key_value_groups=2 .* not supported, only 1"):
        vt.load(changed)
    changed = described(FAMILIES / "timm-dinov3", tmp_path / "timm", model_args={"rope_grid_offset": 0.5})
    with pytest.raises(vt.InputError, match=r"rope_grid_offset=0\.5 with rope_type='dinov3' is not"):
        vt.load(changed)


@pytest.mark.parametrize(
    ("family", "fields", "message"),
    [
        ("timm-dinov3", {"model_args": ["rope_type"]}, r"model_args=\['rope_type'\] .* is not an object"),
        (
            "mlcd",
            {"rope_theta": None, "rope_parameters": "default"},
            "rope_parameters='default' .* not an object",
        ),
        (
            "transformers-dinov3-gated",
            {"rope_parameters": None, "rope_theta": [9]},
            r"rope_theta=\[9\] is not a number",
        ),
        (
            "timm-dinov3",
            {"model_args": {"rope_temperature": "warm"}},
            "rope_temperature='warm' is not a number",
        ),
    ],
)
def test_a_field_of_another_type_is_refused_by_its_name(
    family: str, fields: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(vt.InputError, match=message):
        vt.load(described(FAMILIES / family, tmp_path / "m", **fields))


def test_a_number_may_be_written_as_text_or_with_a_point(tmp_path: Path) -> None:
    gated = FAMILIES / "transformers-dinov3-gated"
    expected = outputs(described(gated, tmp_path / "number", rope_parameters=None, rope_theta=50))
    assert not torch.equal(expected, outputs(gated))
    for name, written in {"text": "50", "point": 50.0}.items():
        changed = described(gated, tmp_path / name, rope_parameters=None, rope_theta=written)
        torch.testing.assert_close(outputs(changed), expected, atol=0, rtol=0)


def test_a_field_of_an_unknown_kind_is_read_or_refused_by_its_name(tiny: Any, tmp_path: Path) -> None:
    vt.save(tiny(num_classes=None), tmp_path / "m", format="huggingface")
    own = described(tmp_path / "m", tmp_path / "own", model_type="my_vit")
    with pytest.raises(vt.InputError, match="pass format='huggingface'"):
        vt.load(own)
    assert vt.load(own, format="huggingface").config.heads == 4
    changed = described(own, tmp_path / "changed", experts=4)
    with pytest.raises(vt.InputError, match=r"experts=4 in the config\.json of a my_vit is not supported"):
        vt.load(changed, format="huggingface")
    contradicting = described(own, tmp_path / "contradicting", model_type="vit", num_channels=1)
    with pytest.raises(vt.InputError, match=r"images of 3 channels, but config\.json says num_channels=1"):
        vt.load(contradicting)


def test_labels_of_a_configuration_of_timm_before_0_8(tiny: Any, tmp_path: Path) -> None:
    vt.save(tiny(num_classes=2), tmp_path / "m.safetensors", format="timm")
    (tmp_path / "config.json").write_text(
        json.dumps({"architecture": "vit_tiny_patch16_224", "labels": ["cat", "dog"], "num_classes": 2})
    )
    (tmp_path / "m.safetensors").rename(tmp_path / "model.safetensors")
    assert vt.load(tmp_path, heads=4).labels == ["cat", "dog"]


def test_every_field_of_the_table_is_read_or_shown_by_the_weights() -> None:
    """A field of a newer transformers is neither until someone has decided."""
    assert not set(READ) & set(SHOWN)
    assert not {*READ, *SHOWN} & set(IRRELEVANT)
    undecided = {name for fields in defaults().values() for name in fields} - {*READ, *SHOWN}
    assert undecided == {"num_key_value_groups", "is_hybrid", "backbone_config"}
    assert INTERNVIT.keys() <= set(READ)


@pytest.mark.slow
@pytest.mark.peers
def test_the_table_is_that_of_transformers(timm: Any, program_beside: Any) -> None:
    pytest.importorskip("transformers")
    registry = program_beside("huggingface_registry")
    assert registry.TABLE.read_text(encoding="utf-8") == registry.as_text(registry.registry())


def test_what_a_description_leaves_out_is_its_own_default(tiny: Any, tmp_path: Path) -> None:
    """vit_msn's eps is not vit's; the tower's model_type tells whose it is."""
    vt.save(
        tiny(num_classes=None, heads=4, width=48), tmp_path / "m", format="huggingface", drop=("norm_eps",)
    )
    for kind, eps in {"vit": 1e-12, "vit_msn": 1e-6}.items():
        bare = described(
            tmp_path / "m", tmp_path / kind, model_type=kind, layer_norm_eps=None, num_attention_heads=None
        )
        config = vt.load(bare).config
        assert (config.norm_eps, config.heads) == (eps, 12)


def test_the_tower_of_a_larger_model_is_described_inside(tiny: Any, tmp_path: Path) -> None:
    """As the backbone of Depth Anything, and under format= as well."""
    model = tiny(num_classes=None, layer_scale=0.5, norm_eps=1e-5, mlp_dim=128)
    vt.save(model, tmp_path / "tower", format="huggingface")
    config = json.loads((tmp_path / "tower" / "config.json").read_text())
    folder = tmp_path / "m"
    folder.mkdir()
    weights = load_file(tmp_path / "tower" / "model.safetensors")
    save_file({f"backbone.{name}": each for name, each in weights.items()}, folder / "model.safetensors")
    whole = {"model_type": "depth_anything", "backbone_config": config, "image_size": 999}
    (folder / "config.json").write_text(json.dumps(whole))
    images = torch.randn(1, 3, 32, 32)
    for told in ({}, {"format": "huggingface"}):
        loaded: Any = vt.load(folder, **told)
        torch.testing.assert_close(loaded.tokens(images), model.tokens(images), atol=2e-5, rtol=0)


def test_a_pooler_beside_a_classifier_is_not_used(
    tiny: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """ViTForImageClassification has none: it is left over from the model that was fine-tuned."""
    model = tiny()
    vt.save(model, tmp_path / "m", format="huggingface", drop=())
    weights = load_file(tmp_path / "m" / "model.safetensors")
    weights |= {"vit.pooler.dense.weight": torch.randn(32, 32), "vit.pooler.dense.bias": torch.randn(32)}
    save_file(weights, tmp_path / "m" / "model.safetensors")
    images = torch.randn(1, 3, 32, 32)
    torch.testing.assert_close(vt.load(tmp_path / "m")(images), model(images), atol=2e-5, rtol=0)
    assert "left out: pooler.dense.bias, pooler.dense.weight" in caplog.text


def open_clip_folder(tiny: Any, folder: Path, vision: dict[str, Any], **fields: Any) -> Any:
    model = tiny(norm_eps=1e-5, extra_norms=("tokens",), **fields)
    torch.nn.init.zeros_(model.head.bias)  # which its projection has not
    folder.mkdir()
    vt.save(model, folder / "open_clip_model.safetensors", format="open-clip", drop=("norm_eps", "mlp"))
    described = {"model_cfg": {"vision_cfg": {"head_width": 8, "image_size": 32, "patch_size": 8, **vision}}}
    (folder / "open_clip_config.json").write_text(json.dumps(described))
    return vt.load(folder)


def test_arguments_of_open_clip(tiny: Any, tmp_path: Path) -> None:
    loaded = open_clip_folder(tiny, tmp_path / "a", {"norm_kwargs": {"eps": 1e-3}})
    assert loaded.config.norm_eps == 1e-3
    loaded = open_clip_folder(tiny, tmp_path / "b", {"act_kwargs": {"approximate": "tanh"}})
    assert loaded.config.mlp == "gelu_tanh"
    loaded = open_clip_folder(tiny, tmp_path / "c", {"head_width": 8.0})
    assert loaded.config.heads == loaded.config.width // 8
    for name, value in {"head_width": "wide", "norm_kwargs": [1e-3]}.items():
        with pytest.raises(vt.InputError, match=f"{name}=.* is not "):
            open_clip_folder(tiny, tmp_path / name, {name: value})
    for number, (name, value) in enumerate({"scale_fc": True, "norm_kwargs": {"bias": False}}.items()):
        with pytest.raises(vt.InputError, match=f"{name}=.* of open_clip is not supported"):
            open_clip_folder(tiny, tmp_path / str(number), {name: value})


def test_numbers_that_are_not_finite(tiny: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """They are said when a file is read, and no answer is made of them."""
    from PIL import Image

    vt.save(tiny(), tmp_path / "m.pth", format="torchvision")
    for number in (float("nan"), float("inf")):
        weights = torch.load(tmp_path / "m.pth", weights_only=True)
        weights["encoder.ln.weight"][3] = number
        torch.save(weights, tmp_path / "m.pth")
        caplog.clear()
        model = vt.load(tmp_path / "m.pth", heads=4)
        assert "weights are NaN or infinite, and so will outputs be: norm.weight" in caplog.text
        image = Image.new("RGB", (32, 32), "red")
        for ask in (vt.predict, vt.embed):
            with pytest.raises(vt.InputError, match="outputs are NaN or infinite"):
                ask(model, [image])


def preprocessor(tiny: Any, folder: Path, **fields: Any) -> Any:
    """The preprocessing that is read of a folder whose preprocessor_config.json says this alone."""
    vt.save(tiny(image_size=16), folder, format="huggingface")
    (folder / "preprocessor_config.json").write_text(json.dumps(fields))
    return vt.load(folder).preprocessing


def test_fields_left_out_are_the_defaults_of_their_own_processor(tiny: Any, tmp_path: Path) -> None:
    size, crop = {"height": 16, "width": 16}, {"height": 16, "width": 16}
    clip = preprocessor(
        tiny, tmp_path / "clip", image_processor_type="CLIPFeatureExtractor", size=20, crop_size=16
    )
    assert (clip.resize, clip.crop_fraction, clip.interpolation) == ("crop", 0.8, "bicubic")
    assert clip.mean == (0.48145466, 0.4578275, 0.40821073)
    vit = preprocessor(tiny, tmp_path / "vit", image_processor_type="ViTImageProcessorFast", size=size)
    assert (vit.resize, vit.crop_fraction, vit.interpolation) == ("squash", 1.0, "bilinear")
    deit = preprocessor(
        tiny, tmp_path / "deit", image_processor_type="DeiTImageProcessor", size=20, crop_size=crop
    )
    assert (deit.resize, deit.crop_fraction, deit.interpolation) == ("squash", 0.8, "bicubic")


def test_a_processor_that_is_not_known_is_refused_by_its_name(tiny: Any, tmp_path: Path) -> None:
    square = {"height": 16, "width": 16}
    cases: list[tuple[str, dict[str, Any]]] = [
        ("the ConvNextImageProcessor of", {"image_processor_type": "ConvNextImageProcessor"}),
        ("keep_aspect_ratio=True", {"image_processor_type": "DPTImageProcessor", "keep_aspect_ratio": True}),
        ("crop_size=.* no larger", {"do_center_crop": True, "size": square, "crop_size": 20}),
        (
            "crop_size=.* of the same shape",
            {"do_center_crop": True, "size": {"height": 20, "width": 24}, "crop_size": square},
        ),
        ("size=.* is not supported", {"size": {"longest_edge": 16}}),
    ]
    for number, (sentence, fields) in enumerate(cases):
        with pytest.raises(vt.InputError, match=sentence):
            preprocessor(tiny, tmp_path / str(number), **fields)


def test_dinov2_is_used_with_the_size_that_its_preprocessing_makes(
    tiny: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As transformers does: facebook/dinov2-* have positions of 518 pixels and a crop of 224."""
    model = tiny(num_classes=None, layer_scale=0.5, mlp_dim=128, image_size=56)
    vt.save(model, tmp_path / "m", format="huggingface")
    looks = {"image_processor_type": "BitImageProcessor", "size": {"shortest_edge": 40}, "crop_size": 32}
    (tmp_path / "m" / "preprocessor_config.json").write_text(json.dumps({**looks, "do_center_crop": True}))
    loaded: Any = vt.load(tmp_path / "m")
    assert (loaded.config.image_size, loaded.preprocessing.size) == ((32, 32), (32, 32))
    assert loaded.preprocessing.crop_fraction == 0.8
    assert "for positions of (56, 56)" in caplog.text
    images = torch.randn(1, 3, 32, 32)
    resized = vt.resize(model, 32, interpolation="huggingface")
    torch.testing.assert_close(loaded.tokens(images), resized.tokens(images), atol=2e-5, rtol=0)
    assert vt.load(tmp_path / "m", image_size=56).config.image_size == (56, 56)


def test_names_of_other_libraries_are_answered_with_the_right_call() -> None:
    for name, call in {
        "vit_base_patch16_224": r"vt\.create\('ViT-B/16'\) .* vt\.load\('hf:timm/vit_base_patch16_224'\)",
        "google/vit-base-patch16-224": r"vt\.load\('hf:google/vit-base-patch16-224'\)",
    }.items():
        with pytest.raises(vt.InputError, match=call):
            vt.create(name)
    with pytest.raises(vt.InputError, match=r"no pretrained=.* vt\.load"):
        vt.create("ViT-B/16", pretrained=True)
    with pytest.raises(vt.InputError, match=r"did you mean hf:google/vit-base-patch16-224"):
        vt.load("google/vit-base-patch16-224")
    with pytest.raises(vt.InputError, match=r"vt\.create\('ViT-B/16'\) makes one"):
        vt.load("ViT-B/16")


def test_a_live_module_that_is_no_vision_transformer_is_said() -> None:
    class Swin(torch.nn.Module):
        """As timm's: it has a configuration, and no blocks."""

        def __init__(self) -> None:
            super().__init__()
            self.pretrained_cfg = {"architecture": "swin_tiny_patch4_window7_224"}
            self.layers = torch.nn.ModuleList([torch.nn.Module()])
            self.layers[0].downsample = torch.nn.Linear(3, 3)

    with pytest.raises(vt.InputError, match="this is a Swin Transformer"):
        vt.load(Swin())
    with pytest.raises(vt.InputError, match="the ReLU has no weights"):
        vt.load(torch.nn.ReLU())


def test_an_open_clip_folder_names_the_architecture_of_timm(tiny: Any, tmp_path: Path) -> None:
    """45 of open_clip's own configurations do: its heads, activation and pooling follow."""
    model = tiny(
        width=768, heads=12, class_token=False, pooling="attention", mlp="gelu_tanh", num_classes=None
    )
    vt.save(model, tmp_path / "bare.safetensors", format="timm")
    weights = load_file(tmp_path / "bare.safetensors")
    folder = tmp_path / "m"
    folder.mkdir()
    trunk = {f"visual.trunk.{name}": each for name, each in weights.items()}
    text = {"text.transformer.resblocks.0.ln_1.weight": torch.ones(3), "logit_scale": torch.ones(1)}
    projection = {"visual.head.proj.weight": torch.randn(7, 768) / 100}
    save_file(trunk | text | projection, folder / "open_clip_model.safetensors")
    vision = {"image_size": 32, "timm_model_name": "vit_base_patch16_siglip_gap_224", "timm_pool": "map"}
    look = {"mean": [0.4] * 3, "std": [0.6] * 3, "interpolation": "bicubic", "resize_mode": "squash"}
    vision["timm_model_name"] = "vit_base_patch16_siglip_224"
    described = {"model_cfg": {"vision_cfg": vision, "embed_dim": 7}, "preprocess_cfg": look}
    (folder / "open_clip_config.json").write_text(json.dumps(described))
    loaded: Any = vt.load(folder, mlp="gelu_tanh")
    images = torch.randn(1, 3, 32, 32)
    expected = model(images) @ projection["visual.head.proj.weight"].T
    torch.testing.assert_close(loaded(images), expected, atol=2e-5, rtol=0)
    assert (loaded.preprocessing.resize, loaded.preprocessing.mean) == ("squash", (0.4, 0.4, 0.4))
    vision["timm_pool"] = "abs_attn"
    (folder / "open_clip_config.json").write_text(json.dumps(described))
    with pytest.raises(vt.InputError, match="timm_pool='abs_attn' of open_clip is not supported"):
        vt.load(folder)


@torch.no_grad()
def test_the_scale_of_frankzvit_is_said_and_taken_when_told(
    tiny: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The README divides after the softmax, the notebook before it, by sqrt(D) both."""
    model = tiny(norm_eps=1e-5, pooling="mean-all", final_norm="pooled")
    vt.save(model, tmp_path / "m.pt", format="frankzvit")
    caplog.clear()
    vt.load(tmp_path / "m.pt", heads=4)
    assert "pass scale_after_softmax=False" in caplog.text
    caplog.clear()
    readme: Any = vt.load(tmp_path / "m.pt", heads=4, scale_after_softmax=True)
    notebook: Any = vt.load(tmp_path / "m.pt", heads=4, scale_after_softmax=False)
    assert "scale_after_softmax" not in caplog.text
    z = torch.randn(1, 17, 32)
    q, k, v = (
        each.unflatten(-1, (4, 8)).transpose(1, 2)
        for each in readme.blocks[0].attention.qkv(z).chunk(3, dim=-1)
    )
    q, v = q / 8**0.5, v * 32**0.5  # theirs
    for loaded, context in (
        (readme, (q @ k.mT).softmax(-1) / 32**0.5 @ v),
        (notebook, (q @ k.mT / 32**0.5).softmax(-1) @ v),
    ):
        out = loaded.blocks[0].attention.out(context.transpose(1, 2).flatten(2))
        torch.testing.assert_close(loaded.blocks[0].attention(z), out, atol=1e-5, rtol=1e-5)


def test_folders_and_files_of_other_kinds_are_named(tiny: Any, tmp_path: Path) -> None:
    for file, what in {
        "adapter_config.json": "an adapter of PEFT",
        "flax_model.msgpack": "the weights of Flax",
        "tf_model.h5": "the weights of TensorFlow",
        "_CHECKPOINT_METADATA": r"a checkpoint of orbax \(JAX\): restore it there",
        "manifest.ocdbt": "a checkpoint of orbax",
        ".metadata": "in shards: write one file of it with python -m",
    }.items():
        folder = tmp_path / file.strip(".")
        folder.mkdir()
        (folder / file).write_bytes(b"{}")
        with pytest.raises(vt.InputError, match=what):
            vt.load(folder)
    for beginning, what in {
        b"\x89HDF\r\n\x1a\n\0": "a model of Keras, which is not read here",
        b"GGUF\3\0\0\0\0": "a GGUF file",
    }.items():
        (tmp_path / "file").write_bytes(beginning)
        with pytest.raises(vt.InputError, match=what):
            vt.load(tmp_path / "file")
    model = tiny()
    for step in (5, 500, 60):
        vt.save(
            tiny() if step != 500 else model, tmp_path / "out" / f"checkpoint-{step}", format="huggingface"
        )
    images = torch.randn(1, 3, 32, 32)
    torch.testing.assert_close(vt.load(tmp_path / "out")(images), model(images), atol=2e-5, rtol=0)
