"""What a file says, wherever it says it, is read as its owner's code reads it; and what is refused is named:
kinds of files that people hold, each with what must come of it."""

from __future__ import annotations

import json
import zipfile
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import vitreous as vt

State = dict[str, Tensor]
TINY = {"width": 192, "heads": 3, "mlp_dim": 768}  # of vit_tiny, which names say


def same(model: Any, source: Any, **told: Any) -> Any:
    """Whether what is loaded gives the outputs of the model; returns it."""
    loaded: Any = vt.load(source, **told)
    images = torch.randn(2, 3, *model.config.image_size)
    with torch.no_grad():
        torch.testing.assert_close(loaded(images), model(images), atol=2e-5, rtol=0)
        torch.testing.assert_close(loaded.tokens(images), model.tokens(images), atol=2e-5, rtol=0)
    return loaded


def state_of(model: Any, folder: Path, format: str = "timm") -> State:
    vt.save(model, folder / "plain.pth", format=format, overwrite=True)
    return dict(torch.load(folder / "plain.pth"))


def change(path: Path, *, without: tuple[str, ...] = (), **fields: Any) -> None:
    """Change fields of a description."""
    described = json.loads(path.read_text()) if path.is_file() else {}
    described = {name: value for name, value in described.items() if name not in without}
    path.write_text(json.dumps(described | fields))


# ---- transformers


@pytest.mark.parametrize("wrong", ["heads", "activation", "default"])
def test_vision_config_dict_wins_as_in_transformers(
    wrong: str, tiny: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = tiny(
        extra_norms=("tokens",), norm_eps=1e-5, mlp="gelu" if wrong == "activation" else "quick_gelu"
    )
    nn.init.zeros_(model.head.bias)
    vt.save(model, tmp_path / "m", format="huggingface")
    path = tmp_path / "m" / "config.json"
    right = json.loads(path.read_text())
    tower = {name: value for name, value in right.items() if name not in ("architectures", "model_type")}
    stated = tower | ({"num_attention_heads": 2} if wrong == "heads" else {"hidden_act": "relu"})
    inside = dict(tower)
    if wrong == "default":  # that of the class, where the dictionary leaves it out
        inside.pop("hidden_act")
    change(path, without=tuple(right), model_type="clip", vision_config=stated, vision_config_dict=inside)
    caplog.clear()
    same(model, tmp_path / "m")
    assert "of vision_config_dict is taken, as transformers does, not" in caplog.text


def test_a_processor_has_the_defaults_of_its_class(tiny: Any, tmp_path: Path) -> None:
    """BitImageProcessor crops unless it is told not to."""
    model = tiny(mlp_dim=128, layer_scale=0.1, image_size=48)
    vt.save(model, tmp_path / "m", format="huggingface")
    size, crop = {"shortest_edge": 40}, {"height": 32, "width": 32}
    for stated, expected in (({}, 32), ({"do_center_crop": True}, 32)):
        path = tmp_path / "m" / "preprocessor_config.json"
        path.write_text(json.dumps({"image_processor_type": "BitImageProcessor"} | stated))
        change(path, size=size, crop_size=crop)
        loaded = vt.load(tmp_path / "m")
        assert loaded.preprocessing.size == loaded.config.image_size == (expected, expected)
        assert loaded.preprocessing.crop_fraction == pytest.approx(32 / 40)
    change(tmp_path / "m" / "preprocessor_config.json", image_mean=0.25, image_std=0.5)
    assert vt.load(tmp_path / "m").preprocessing.mean == (0.25, 0.25, 0.25)


def test_a_description_beside_weights_of_another_name(
    tiny: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = tiny(norm_eps=1e-3, mlp="relu", num_classes=None)
    vt.save(model, tmp_path / "m", format="huggingface")
    (tmp_path / "m" / "model.safetensors").rename(tmp_path / "m" / "weights.safetensors")
    caplog.clear()
    same(model, tmp_path / "m" / "weights.safetensors")
    assert "does not say" not in caplog.text
    assert "not read" not in caplog.text
    # but of two files it may be the other's, which is said
    save_file({"a": torch.zeros(1)}, tmp_path / "m" / "other.safetensors")
    with pytest.raises(vt.InputError, match="does not store the number of heads"):
        vt.load(tmp_path / "m" / "weights.safetensors")
    assert "they may be of another file (config.json, preprocessor_config.json): pass like=" in caplog.text
    caplog.clear()
    same(model, tmp_path / "m" / "weights.safetensors", like=tmp_path / "m")
    assert "not read" not in caplog.text


@pytest.mark.parametrize("file", ["timm", "plain.pth"])
def test_one_output_is_a_number(
    file: str, tiny: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As the only class it had a probability of 1, whatever the image shows."""
    model = tiny(num_classes=1)
    model.task = "regression"
    vt.save(model, tmp_path / file, format="timm")
    assert "has no place for the task" not in caplog.text
    again = same(model, tmp_path / file, **({"heads": model.config.heads} if "." in file else {}))
    assert again.task == "regression"
    assert "a model for regression, as it has one output" in caplog.text
    image = np.zeros((32, 32, 3), np.uint8)
    (answer,) = vt.predict(again, [image])
    with torch.inference_mode():
        assert answer.value == pytest.approx(again(again.preprocessing([image])).item(), abs=1e-5)


# ---- timm and training programs


def test_a_pooling_that_timm_does_not_read_is_named(
    tiny: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = tiny(pooling="mean")
    vt.save(model, tmp_path / "m", format="timm")
    path = tmp_path / "m" / "config.json"
    args = json.loads(path.read_text())["model_args"]
    args.pop("global_pool")
    change(path, model_args=args, global_pool="avg")
    caplog.clear()
    same(model, tmp_path / "m")
    assert "timm.create_model does not read it there and pools by 'token'" in caplog.text
    # where timm reads it, nothing is said
    described = json.loads(path.read_text())
    look = described["pretrained_cfg"] | {"global_pool": "avg"}
    change(path, without=("global_pool",), pretrained_cfg=look)
    caplog.clear()
    same(model, tmp_path / "m")
    assert "timm.create_model" not in caplog.text


def test_a_file_of_timm_s_train_py_says_everything(
    tiny: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = tiny(**TINY, image_size=48, patch_size=16, pooling="mean")
    args = Namespace(model="vit_tiny_patch16_224", gp="avg", img_size=48, mean=[0.1, 0.2, 0.3], std=None)
    saved = {"epoch": 3, "arch": "vit_tiny_patch16_224", "state_dict": state_of(model, tmp_path)}
    torch.save(saved | {"args": args, "version": 2, "metric": 71.2}, tmp_path / "m.pth.tar")
    caplog.clear()
    loaded = same(model, tmp_path / "m.pth.tar")
    assert loaded.preprocessing.mean == (0.1, 0.2, 0.3)
    assert loaded.preprocessing.std == (0.5, 0.5, 0.5)  # of the published model of this name
    assert "does not say" not in caplog.text
    assert same(model, saved | {"args": args}).config.heads == 3
    # a name of another width says nothing of these weights
    other = tiny(width=96, heads=6)
    saved |= {"state_dict": state_of(other, tmp_path)}
    with pytest.raises(vt.InputError, match="does not store the number of heads"):
        vt.load(saved)


SIZES = {"img_size": None, "input_size": [3, 32, 64]}, {"img_size": [32, 64]}, {"image_size": (32, 64)}


@pytest.mark.parametrize("stated", SIZES)
def test_the_size_that_a_training_program_says(
    stated: dict[str, Any], tiny: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Of eight patches in four rows or one in two rows, and not a square where there could be one."""
    for size, said in (((32, 64), stated), ((16, 256), {"img_size": [16, 256]})):
        model = tiny(**TINY, image_size=size, patch_size=16)
        args = Namespace(model="vit_tiny_patch16_224", gp="avg" if size[0] == 16 else None, **said)
        torch.save({"state_dict": state_of(model, tmp_path), "args": args}, tmp_path / "m.pth")
        caplog.clear()
        loaded = vt.load(tmp_path / "m.pth", pooling="class")
        assert loaded.config.image_size == size
        assert "square" not in caplog.text
        assert "beside model_args" not in caplog.text  # which are of a config.json


def test_the_size_of_images_beside_names_of_transformers(
    tiny: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A Lightning module around a model of transformers, of whose config.json nothing is left."""
    model = tiny(image_size=(16, 64), norm_eps=1e-12)
    vt.save(model, tmp_path / "m", format="huggingface")
    state = {f"net.{name}": each for name, each in load_file(tmp_path / "m" / "model.safetensors").items()}
    stated = {"image_size": [16, 64], "num_heads": 4}
    torch.save({"state_dict": state, "hyper_parameters": stated}, tmp_path / "m.ckpt")
    caplog.clear()
    same(model, tmp_path / "m.ckpt")
    assert "square" not in caplog.text


def test_an_architecture_whose_width_a_training_program_changes(
    tiny: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = tiny(width=48, heads=6)
    kwargs = {"model_kwargs": {"embed_dim": 48, "num_heads": 6}, "img_size": 32}
    args = Namespace(model="vit_tiny_patch16_224", **kwargs)
    caplog.clear()
    same(model, {"state_dict": state_of(model, tmp_path), "args": args})
    assert "does not say" not in caplog.text


@pytest.mark.parametrize("name", ["args.yaml", "../hparams.yaml"])
def test_settings_beside_a_checkpoint(name: str, tiny: Any, tmp_path: Path) -> None:
    """As timm's train.py and Lightning write them; objects of Python in them are not made."""
    pytest.importorskip("yaml")
    model, folder = tiny(**TINY, image_size=48, patch_size=16, pooling="mean"), tmp_path / "checkpoints"
    folder.mkdir()
    torch.save(state_of(model, tmp_path), folder / "m.pth")
    settings = "model: vit_tiny_patch16_224\ngp: avg\nimg_size: 48\nmean:\n- 0.1\n- 0.2\n- 0.3\n"
    (folder / name).write_text(settings)
    assert same(model, folder / "m.pth").preprocessing.mean == (0.1, 0.2, 0.3)
    (folder / name).write_text(settings + "optimizer: !!python/object/apply:os.getcwd []\n")
    with pytest.raises(vt.InputError, match="does not store the number of heads"):
        vt.load(folder / "m.pth")


def test_a_name_of_another_width_is_refused(tiny: Any, tmp_path: Path) -> None:
    """A published name with other weights: heads and norms would be those of another model."""
    model = tiny(width=48, heads=6)
    vt.save(model, tmp_path / "m", format="timm")
    path = tmp_path / "m" / "config.json"
    args = {"img_size": 32, "patch_size": 8}
    change(path, architecture="vit_tiny_patch16_224", model_args=args)
    with pytest.raises(vt.InputError, match=r"width of 48.* vit_tiny_patch16_224, whose width is 192"):
        vt.load(tmp_path / "m")
    same(model, tmp_path / "m", heads=6)
    change(path, model_args=args | {"embed_dim": 48, "num_heads": 6})
    same(model, tmp_path / "m")


def test_labels_of_another_number_are_left_out(
    tiny: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = tiny()
    vt.save(model, tmp_path / "m", format="timm")
    change(tmp_path / "m" / "config.json", label_names=["cat", "dog"])
    loaded = same(model, tmp_path / "m")
    assert loaded.labels is None
    assert "its labels are 2, and its head has 5 outputs: they are left out" in caplog.text
    vt.save(loaded, tmp_path / "again")


def test_the_images_and_classes_of_mmengine(tiny: Any, tmp_path: Path) -> None:
    """mmpretrain's `meta`: nested arguments, colors of 0 to 255, the names of classes."""
    model = tiny()
    names = {"patch_embed.proj": "patch_embed.projection", "blocks.": "layers.", "norm1": "ln1"}
    names |= {"norm2": "ln2", "mlp.fc1": "ffn.layers.0.0", "mlp.fc2": "ffn.layers.1"}
    state = {}
    for name, tensor in state_of(model, tmp_path).items():
        for ours, theirs in names.items():
            name = name.replace(ours, theirs)
        name = f"ln1.{name.removeprefix('norm.')}" if name.startswith("norm.") else name
        inside = f"head.layers.head.{name.removeprefix('head.')}"
        state[inside if name.startswith("head.") else f"backbone.{name}"] = tensor
    program = "model = dict(backbone=dict(arch=dict(embed_dims=32, num_heads=4), img_size=32))\n"
    program += "data_preprocessor = dict(mean=[51.0, 102.0, 153.0], std=[51.0, 51.0, 51.0])"
    meta = {"cfg": program, "dataset_meta": {"classes": list("abcde")}}
    loaded = same(model, {"state_dict": state, "meta": meta})
    assert loaded.preprocessing.mean == pytest.approx((0.2, 0.4, 0.6))
    assert loaded.labels == list("abcde")


MMENGINE = """
default_scope = 'mmpretrain'
model = dict(backbone=dict(arch='deit-tiny', img_size=48, patch_size=16, type='VisionTransformer'),
             head=dict(num_classes=5), type='ImageClassifier')
print(open('anything'))
"""
TRAINING = {
    "DINO": {"args": Namespace(arch="vit_tiny", patch_size=16)},
    "MAE, fine-tuned": {"args": Namespace(model="vit_tiny_patch16", global_pool=False)},
    "MoCo v3": {"arch": "vit_tiny"},
    "Lightning": {"hyper_parameters": {"model_name": "vit_tiny_patch16_224", "lr": 0.1}},
    "Lightning, heads": {"hyper_parameters": {"depth": 2, "num_heads": 3}},
    "solo-learn": {"hyper_parameters": {"backbone": {"name": "vit_tiny", "kwargs": {"patch_size": 16}}}},
    "mmengine": {"meta": {"cfg": MMENGINE, "epoch": 3}},
    "DINOv2": {"config": {"student": {"arch": "vit_tiny", "patch_size": 16}}},
}


@pytest.mark.parametrize("program", TRAINING)
def test_the_heads_that_a_training_program_says(program: str, tiny: Any, tmp_path: Path) -> None:
    model = tiny(**TINY, image_size=48, patch_size=16)
    prefix = "module.base_encoder." if program == "MoCo v3" else ""
    state = {f"{prefix}{name}": tensor for name, tensor in state_of(model, tmp_path).items()}
    torch.save({"model": state, **TRAINING[program]}, tmp_path / "m.pth")
    same(model, tmp_path / "m.pth")


def test_a_small_model_of_moco_has_twelve_heads(tiny: Any, tmp_path: Path) -> None:
    for prefix, heads in (("module.base_encoder.", 12), ("", 6)):
        model = tiny(width=384, heads=heads, mlp_dim=64)
        state = {f"{prefix}{name}": tensor for name, tensor in state_of(model, tmp_path).items()}
        same(model, {"arch": "vit_small", "state_dict": state})


def test_every_token_of_a_pathology_encoder(tiny: Any, tmp_path: Path) -> None:
    """global_pool='' is what they are published with; what is pooled can be told."""
    model = tiny(num_classes=None, registers=4)
    vt.save(model, tmp_path / "m", format="timm")
    path = tmp_path / "m" / "config.json"
    args = json.loads(path.read_text())["model_args"] | {"global_pool": ""}
    change(path, model_args=args, global_pool="")
    same(model, tmp_path / "m")
    assert vt.load(tmp_path / "m", pooling="mean").config.pooling.kind == "mean"
    # a head on every token is another function
    headed = tiny()
    vt.save(headed, tmp_path / "headed", format="timm")
    change(tmp_path / "headed" / "config.json", model_args=args)
    with pytest.raises(vt.InputError, match="logits of every token"):
        vt.load(tmp_path / "headed")
    same(headed, tmp_path / "headed", pooling="class")


# ---- open_clip


def test_preprocess_cfg_is_taken_field_by_field(
    tiny: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = tiny(extra_norms=("tokens",), norm_eps=1e-5, heads=1, width=64)
    nn.init.zeros_(model.head.bias)
    vt.save(model, tmp_path / "open_clip_model.safetensors", format="open-clip")
    described = {
        "model_cfg": {"vision_cfg": {"image_size": 32, "head_width": 64}},
        "preprocess_cfg": {"resize_mode": "squash", "interpolation": "bilinear"},
    }
    (tmp_path / "open_clip_config.json").write_text(json.dumps(described))
    caplog.clear()
    look = same(model, tmp_path).preprocessing
    assert (look.resize, look.interpolation, look.mean[0]) == ("squash", "bilinear", 0.48145466)
    assert "does not say" not in caplog.text


# ---- forms of weights


def pruned(state: State) -> State:
    masks = {name: (torch.rand_like(w) > 0.5).float() for name, w in state.items() if w.ndim == 2}
    found = {name: w for name, w in state.items() if name not in masks}
    for name, mask in masks.items():
        found |= {f"{name}_orig": state[name] + (1 - mask) * 7, f"{name}_mask": mask}
        state[name].mul_(mask)
    return found


def normalized(state: State) -> State:
    """A head under weight_norm, of older releases and of newer ones."""
    weight = state["head.weight"]
    rest = {name: each for name, each in state.items() if name != "head.weight"}
    length = weight.norm(dim=1, keepdim=True)
    return rest | {"head.weight_g": length, "head.weight_v": weight * 3}


def parametrized(state: State) -> State:
    names = {"_g": ".parametrizations.weight.original0", "_v": ".parametrizations.weight.original1"}
    found = normalized(state)
    for ending, name in names.items():
        found[f"head{name}"] = found.pop(f"head.weight{ending}")
    return found


def arrays(state: State) -> dict[str, Any]:
    return {name: tensor.numpy() for name, tensor in state.items()}


@pytest.mark.parametrize("form", [pruned, normalized, parametrized, arrays])
def test_forms_in_which_weights_are_kept(
    form: Callable[[State], dict[str, Any]], tiny: Any, tmp_path: Path
) -> None:
    model = tiny()
    state = state_of(model, tmp_path)
    torch.save(form(state), tmp_path / "m.pth")
    vt.load(state, heads=4)
    expected: Any = vt.load(state, heads=4)
    same(expected, tmp_path / "m.pth", heads=4)


def test_the_names_of_eva_02_s_own_code(tiny: Any, tmp_path: Path) -> None:
    """Of EVA-02-CLIP, whose rotary positions no weight shows."""
    rotary = {"offset": 0.0, "reference": (16, 16), "axes": "yx", "temperature": 10000.0}
    fields = {"position": {"kind": "learned", "rotary": rotary}, "extra_norms": ("attention", "mlp")}
    model = tiny(width=768, heads=12, mlp_dim=64, depth=1, mlp="swiglu", num_classes=7, **fields)
    names = {".attn.norm.": ".attn.inner_attn_ln.", ".mlp.norm.": ".mlp.ffn_ln.", ".mlp.fc2.": ".mlp.w3."}
    state: State = {"text.ln_final.weight": torch.zeros(3), "visual.rope.freqs_cos": torch.zeros(4, 64)}
    vt.save(model, tmp_path / "m", format="timm")
    for name, tensor in load_file(tmp_path / "m" / "model.safetensors").items():
        for theirs, own in names.items():
            name = name.replace(theirs, own)
        parts = {name: tensor}
        if ".attn.qkv." in name:
            thirds = zip("qkv", tensor.chunk(3), strict=True)
            parts = {name.replace("qkv", f"{part}_proj"): each for part, each in thirds}
        if ".mlp.fc1." in name:
            parts = {name.replace("fc1", f"w{i + 1}"): each for i, each in enumerate(tensor.chunk(2))}
        state |= {f"visual.{part}": each.clone() for part, each in parts.items()}
    del state["visual.blocks.0.attn.k_proj.bias"]
    for part in "qv":
        state[f"visual.blocks.0.attn.{part}_bias"] = state.pop(f"visual.blocks.0.attn.{part}_proj.bias")
    torch.save(state, tmp_path / "eva.pt")
    with torch.no_grad():
        model.blocks[0].attention.qkv.bias.chunk(3)[1].zero_()
    same(model, tmp_path / "eva.pt")


def test_the_folder_of_the_hub_s_cache(tiny: Any, tmp_path: Path) -> None:
    model = tiny()
    folder = tmp_path / "models--org--name"
    vt.save(model, folder / "snapshots" / "abc", format="timm")
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("abc")
    same(model, folder)


# ---- what is refused


def one_of_two_shards(state: State, folder: Path) -> Path:
    path = folder / "model-00001-of-00002.safetensors"
    save_file(dict(list(state.items())[:4]), path)
    return path


def expanded(state: State, folder: Path) -> Path:
    torch.save(state | {"pos_embed": torch.zeros(1, 1, 1).expand(1, 17, 32)}, folder / "m.pth")
    return folder / "m.pth"


def scaled(state: State, folder: Path) -> Path:
    save_file(state | {"blocks.0.attn.qkv.scale_weight": torch.ones(1)}, folder / "m.safetensors")
    return folder / "m.safetensors"


def without_a_layer(state: State, folder: Path) -> Path:
    torch.save({n: w for n, w in state.items() if not n.startswith("blocks.1.")}, folder / "m.pth")
    return folder / "m.pth"


def unetr(state: State, folder: Path) -> Path:
    decoder = {"encoder2.transp_conv_init.conv.weight": torch.zeros(2, 2, 2, 2, 2)}
    torch.save({f"vit.{name}": each for name, each in state.items()} | decoder, folder / "m.pth")
    return folder / "m.pth"


def yolo(state: State, folder: Path) -> Path:
    names = ("model.0.conv.weight", "model.2.cv1.conv.weight")
    torch.save(dict.fromkeys(names, torch.zeros(3, 3, 1, 1)), folder / "m.pt")
    return folder / "m.pt"


def with_files(*names: str) -> Callable[[State, Path], Path]:
    def make(_: State, folder: Path) -> Path:
        for name in names:
            (folder / "m" / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / "m" / name).write_bytes(b"\1\2\3\4")
        return folder / "m"

    return make


def file_of(name: str, content: bytes) -> Callable[[State, Path], Path]:
    def make(_: State, folder: Path) -> Path:
        (folder / name).write_bytes(content)
        return folder / name

    return make


def of_library(module: str, name: str) -> Callable[[State, Path], Path]:
    """A torch.save whose tensors are of a class of another library."""

    def make(state: State, folder: Path) -> Path:
        path = folder / "m.pth"
        torch.save({each: torch.zeros(2, 2) for each in list(state)[:2]}, path)
        with zipfile.ZipFile(path) as archive:
            parts = {each: archive.read(each) for each in archive.namelist()}
        inner = next(each for each in parts if each.endswith("data.pkl"))
        parts[inner] = b"\x80\x02}X\x01\0\0\0wc" + f"{module}\n{name}\n".encode() + b")\x81s."
        with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
            for each, bytes_ in parts.items():
                archive.writestr(each, bytes_)
        return path

    return make


def flat(state: State, folder: Path) -> Path:
    torch.save({"_flat_param": torch.zeros(9), "blocks.0._flat_param": torch.zeros(9)}, folder / "m.pth")
    return folder / "m.pth"


REFUSED: dict[str, tuple[Callable[[State, Path], Path], str]] = {
    "one shard": (one_of_two_shards, "is shard 1 of 2 of a model.*pass their folder"),
    "expanded": (expanded, r"a view that repeats its numbers.*\.contiguous\(\)"),
    "scaled fp8": (scaled, "a quantized model: pass its weights before quantization"),
    "torchao": (of_library("torchao.dtypes.affine", "AffineQuantizedTensor"), "a quantized model"),
    "DTensor": (of_library("torch.distributed.tensor", "DTensor"), "tensors in shards .DTensor.*gather it"),
    "ultralytics": (of_library("ultralytics.nn.tasks", "DetectionModel"), "a model of ultralytics"),
    "ultralytics, names": (yolo, "a model of ultralytics"),
    "FSDP": (flat, "a part of a model in FSDP.*one flat tensor"),
    "UNETR": (unetr, "a UNETR of volumes"),
    "a layer replaced": (without_a_layer, "layer 1 has no weights, though layer 2 has"),
    "ggml": (file_of("m.bin", b"lmgg" + bytes(40)), "a ggml file of llama.cpp"),
    "GGUF": (file_of("m.gguf", b"GGUF" + bytes(40)), "a GGUF file of llama.cpp"),
    "TensorRT": (file_of("m.engine", b"ftrt" + bytes(40)), "an engine of TensorRT"),
    "OpenVINO": (with_files("openvino_model.xml", "openvino_model.bin"), "a program of OpenVINO"),
    "Core ML": (with_files("m.mlpackage/Manifest.json"), "holds a program of Core ML"),
    "ONNX": (with_files("onnx/model.onnx"), "holds an ONNX program"),
    "Flax": (with_files("flax_model.msgpack"), "the weights of Flax"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_refused_is_named(kind: str, tiny: Any, tmp_path: Path) -> None:
    make, sentence = REFUSED[kind]
    state = state_of(tiny(depth=3), tmp_path)
    (tmp_path / "plain.pth").unlink()
    with pytest.raises(vt.InputError, match=sentence):
        vt.load(make(state, tmp_path), heads=4)


@pytest.mark.parametrize(
    ("kind", "part"), [("florence2", "channels and windows"), ("glm4v", "rotary positions in addition to")]
)
def test_models_of_transformers_that_have_another_part(
    kind: str, part: str, tiny: Any, tmp_path: Path
) -> None:
    vt.save(tiny(), tmp_path / "m", format="huggingface")
    change(tmp_path / "m" / "config.json", model_type=kind)
    with pytest.raises(
        vt.InputError, match=f"{kind} of transformers has a part that is not supported: .*{part}"
    ):
        vt.load(tmp_path / "m")


def test_a_tower_of_timm_inside_a_model_of_transformers(tiny: Any, tmp_path: Path) -> None:
    """PerceptionLM's."""
    model = tiny()
    vt.save(model, tmp_path / "m", format="timm")
    path = tmp_path / "m" / "config.json"
    tower = json.loads(path.read_text()) | {"model_type": "timm_wrapper"}
    path.write_text(json.dumps({"model_type": "perception_lm", "vision_config": tower}))
    weights = tmp_path / "m" / "model.safetensors"
    state = {f"model.vision_tower.timm_model.{name}": each for name, each in load_file(weights).items()}
    save_file(state | {"model.language_model.embed_tokens.weight": torch.zeros(7, 3)}, weights)
    same(model, tmp_path / "m")


def test_the_auxiliary_head_of_a_segmentation_model_is_no_head(tiny: Any, tmp_path: Path) -> None:
    model = tiny(num_classes=None)
    state = {f"backbone.{name}": each for name, each in state_of(model, tmp_path).items()}
    for head in ("decode_head", "auxiliary_head"):
        state |= {f"{head}.conv_seg.weight": torch.zeros(9, 32, 1, 1)}
        state |= {f"{head}.conv_seg.bias": torch.zeros(9)}
    same(model, {"state_dict": state}, heads=4)


def test_nothing_in_a_file_is_run(tiny: Any, tmp_path: Path) -> None:
    class Harm:
        def __reduce__(self) -> Any:
            return eval, ("__import__('pathlib').Path('harm').touch()",)

    torch.save({"model": state_of(tiny(), tmp_path), "args": Harm()}, tmp_path / "m.pth")
    vt.load(tmp_path / "m.pth", heads=4)
    assert not Path("harm").exists()
