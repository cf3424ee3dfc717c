"""Files as training code leaves them: settings beside the weights, prefixes, parts of pre-training."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import pickle
import shutil
import zipfile
from collections import Counter, OrderedDict, defaultdict
from enum import Enum
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

import vitreous as vt

State = dict[str, Tensor]
TOLD = {"heads": 4, "mlp": "gelu", "norm_eps": 1e-6, "pooling": "class"}


@pytest.fixture
def model(tiny: Any) -> Any:
    return tiny()


@pytest.fixture(scope="module")
def stored(tiny: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of such a model, under timm's names."""
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("stored") / "plain.pth"
    vt.save(tiny(), path, format="timm")
    return path


@pytest.fixture
def state(stored: Path, model: Any, tmp_path: Path) -> State:
    """The state dict of the model, which is also in a file of the folder."""
    shutil.copy(stored, tmp_path)
    found: State = torch.load(stored, weights_only=True)
    return found


def same(path: Path, model: Any, **told: Any) -> bool:
    images = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        return torch.allclose(vt.load(path, **TOLD | told)(images), model(images), atol=2e-5)


def test_settings_of_argparse_beside_the_weights(model: Any, state: State, tmp_path: Path) -> None:
    """timm's train.py, DINO, MAE and iBOT store them."""
    args = argparse.Namespace(lr=0.1, model="vit_base_patch16_224", opt_betas=None, output_dir="out")
    torch.save({"epoch": 3, "args": args, "state_dict": state}, tmp_path / "m.pth.tar")
    assert same(tmp_path / "m.pth.tar", model)


def test_a_counter_that_is_a_tensor_beside_the_weights(model: Any, state: State, tmp_path: Path) -> None:
    torch.save({"epoch": torch.tensor(3), "model": state}, tmp_path / "m.ckpt")
    assert same(tmp_path / "m.ckpt", model)
    (tmp_path / "plain.pth").unlink()
    assert same(tmp_path, model)  # the only file of weights in the folder


PREFIXES = (
    *("module.", "model.", "net.", "_orig_mod.", "module.base_encoder.", "teacher.", "teacher.backbone."),
    *("module._orig_mod.", "model.backbone.", "pretrained.", "encoder.", "backbone."),
    *("feature_extractor.", "student.backbone."),  # what all names begin with
)


@pytest.mark.parametrize("prefix", PREFIXES)
def test_prefixes(prefix: str, model: Any, state: State, tmp_path: Path) -> None:
    torch.save({f"{prefix}{name}": each for name, each in state.items()}, tmp_path / "m.pth")
    assert same(tmp_path / "m.pth", model)


@pytest.mark.parametrize(
    ("prefix", "others"),
    [
        ("module.", {"n_averaged": (1,)}),
        ("model.", {"criterion.weight": (5,)}),
        (
            "module.base_encoder.",
            {"module.momentum_encoder.norm.weight": (32,), "module.predictor.0.weight": (9, 9)},
        ),
        (
            "",
            {
                "decoder_embed.weight": (16, 32),
                "decoder_blocks.0.norm1.weight": (16,),
                "mask_token": (1, 1, 16),
            },
        ),
        ("", {"masked_embed": (1, 32), "head.mlp.0.weight": (16, 32), "head.last_layer.weight_v": (9, 16)}),
        ("teacher.", {"teacher.head.mlp.0.weight": (16, 32), "student.norm.weight": (32,)}),
        ("base_encoder.", {"base_encoder.head.0.weight": (16, 32), "base_encoder.head.1.weight": (16,)}),
    ],
)
def test_what_only_training_needs_is_named_and_left_out(
    prefix: str,
    others: dict[str, tuple[int, ...]],
    model: Any,
    state: State,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    headless = {name: each for name, each in state.items() if not name.startswith("head.")}
    named = {f"{prefix}{name}": each for name, each in headless.items()}
    torch.save(named | {name: torch.ones(shape) for name, shape in others.items()}, tmp_path / "m.pth")
    loaded = vt.load(tmp_path / "m.pth", **TOLD)
    images = torch.randn(2, 3, 32, 32)
    torch.testing.assert_close(loaded(images), model.features(images), atol=2e-5, rtol=0)
    assert f"{len(others)} weights of other parts are left out: " in caplog.text
    last = list(others)[-1]
    assert last.removeprefix(prefix).removeprefix("module.") in caplog.text
    assert loaded.origin.format == "timm"


def test_a_head_beside_a_prefixed_body_is_kept(model: Any, state: State, tmp_path: Path) -> None:
    named = {name if name.startswith("head.") else f"backbone.{name}": each for name, each in state.items()}
    torch.save(named, tmp_path / "m.pth")
    assert same(tmp_path / "m.pth", model)


def test_a_matrix_of_whole_numbers_beside_the_weights_is_a_counter(
    model: Any, state: State, tmp_path: Path
) -> None:
    named = {f"model.{name}": each for name, each in state.items()}
    counters = {"val_cm.confmat": torch.zeros(5, 5, dtype=torch.long)}
    torch.save({"state_dict": named | counters}, tmp_path / "m.ckpt")
    assert same(tmp_path / "m.ckpt", model)


@pytest.mark.parametrize(
    ("taken", "left"), [("base_encoder", "momentum_encoder"), ("visual_encoder", "visual_encoder_m")]
)
def test_a_momentum_encoder_gives_keys_and_is_not_the_model(
    taken: str, left: str, model: Any, state: State, tmp_path: Path
) -> None:
    """MoCo's and ALBEF's own evaluations take the other."""
    named = {f"module.{taken}.{name}": each for name, each in state.items()}
    named |= {f"module.{left}.{name}": each + 1 for name, each in state.items()}
    torch.save({"state_dict": named}, tmp_path / "m.pth")
    loaded = vt.load(tmp_path / "m.pth", **TOLD)
    images = torch.randn(2, 3, 32, 32)
    torch.testing.assert_close(loaded.features(images), model.features(images), atol=2e-5, rtol=0)


def test_an_adapter_in_the_state_dict_of_its_model_is_named(state: State, tmp_path: Path) -> None:
    weights = {name.replace(".proj.", ".proj.base_layer."): each for name, each in state.items()}
    weights["blocks.0.attn.proj.lora_A.default.weight"] = torch.ones(2, 32)
    weights["blocks.0.attn.proj.lora_B.default.weight"] = torch.ones(32, 2)
    torch.save({f"base_model.model.{name}": each for name, each in weights.items()}, tmp_path / "m.pth")
    with pytest.raises(vt.InputError, match="with a LoRA adapter that is not merged into it"):
        vt.load(tmp_path / "m.pth", **TOLD)


@pytest.mark.parametrize("metadata", [None, {"format": "mlx"}])
def test_patches_with_the_colors_last_are_named(
    metadata: dict[str, str] | None, state: State, tmp_path: Path
) -> None:
    """They would load as a model of eight channels."""
    weights = state | {"patch_embed.proj.weight": state["patch_embed.proj.weight"].permute(0, 2, 3, 1)}
    save_file(
        {n: each.contiguous() for n, each in weights.items()}, tmp_path / "m.safetensors", metadata=metadata
    )
    with pytest.raises(vt.InputError, match="MLX"):
        vt.load(tmp_path / "m.safetensors", **TOLD)


@pytest.mark.parametrize("name", ["decoder", "predictor", "projector"])
def test_a_layer_named_as_a_part_of_pre_training_is_a_head_where_nothing_else_is(
    name: str, model: Any, state: State, tmp_path: Path
) -> None:
    headless = {f"vit.{key}": each for key, each in state.items() if not key.startswith("head.")}
    head = {f"{name}.{kind}": state[f"head.{kind}"] for kind in ("weight", "bias")}
    torch.save(headless | head, tmp_path / "m.pth")
    assert same(tmp_path / "m.pth", model)
    torch.save(headless | head | {"queue": torch.ones(32, 9)}, tmp_path / "m.pth")
    assert vt.load(tmp_path / "m.pth", **TOLD).config.num_classes is None
    whole = {f"{name}.{name}_layers.0.attention.query.weight": torch.ones(32, 32)}  # a network, as MAE's
    torch.save(headless | head | whole, tmp_path / "m.pth")
    assert vt.load(tmp_path / "m.pth", **TOLD).config.num_classes is None
    several = {f"{name}.{i}.weight": torch.ones(n, 32) for i, n in ((0, 32), (2, 1))}
    torch.save(headless | several, tmp_path / "m.pth")
    if name == "projector":  # of views
        assert vt.load(tmp_path / "m.pth", **TOLD).config.num_classes is None
    else:
        with pytest.raises(vt.InputError, match=rf"left over.* {name}\.0\.weight"):
            vt.load(tmp_path / "m.pth", **TOLD)


def test_averaged_weights_are_taken_and_said(
    model: Any, state: State, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    zeros = {name: torch.zeros_like(each) for name, each in state.items()}
    torch.save({"state_dict": zeros, "state_dict_ema": state}, tmp_path / "m.pth")
    assert same(tmp_path / "m.pth", model)
    assert "loading the weights under 'state_dict_ema', not those under state_dict" in caplog.text


def test_of_a_model_and_its_average_the_average_is_taken_and_said(
    model: Any, state: State, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Of a teacher and its student where DINO's head is beside them."""
    for average, other in (("teacher.", "student."), ("ema_model.", "model.")):
        named = {f"{other}{name}": torch.zeros_like(each) for name, each in state.items()}
        named |= {f"{average}{name}": each for name, each in state.items()}
        named |= {f"{average}head.last_layer.weight_v": torch.zeros(9, 16)} if average == "teacher." else {}
        torch.save(named, tmp_path / "m.pth")
        assert same(tmp_path / "m.pth", model)
        assert f"loading the weights under {average}, not those under {other}" in caplog.text


def test_a_student_beside_a_teacher_of_knowledge_distillation_is_asked_for(
    model: Any, state: State, tmp_path: Path
) -> None:
    """Nothing in such a file tells whether the teacher is an average, as in DINO, or another model."""
    named = {f"teacher.{name}": torch.zeros_like(each) for name, each in state.items()}
    named |= {f"student.{name}": each for name, each in state.items()}
    torch.save(named, tmp_path / "m.pth")
    with pytest.raises(vt.InputError, match=r"a student and a teacher.*key='student'.*key='teacher'"):
        vt.load(tmp_path / "m.pth", **TOLD)
    images = torch.randn(1, 3, 32, 32)
    assert torch.equal(vt.load(tmp_path / "m.pth", key="student", **TOLD)(images), model(images))


@pytest.mark.parametrize("kind", ["timm", "huggingface"])
def test_a_number_of_heads_that_is_none(kind: str, model: Any, tmp_path: Path) -> None:
    vt.save(model, tmp_path / "m", format=kind, drop=("norm_eps",))
    text = (tmp_path / "m" / "config.json").read_text()
    assert '_heads": 4' in text
    (tmp_path / "m" / "config.json").write_text(text.replace('_heads": 4', '_heads": true'))
    with pytest.raises(vt.InputError, match="pass heads="):
        vt.load(tmp_path / "m")


@pytest.mark.parametrize("names", ["heads.{}", "heads.0.{}"])
def test_torchvision_with_a_new_head(names: str, model: Any, tmp_path: Path) -> None:
    """`model.heads = nn.Linear(...)`, or a Sequential of one."""
    vt.save(model, tmp_path / "m.pth", format="torchvision")
    state = torch.load(tmp_path / "m.pth", weights_only=True)
    for kind in ("weight", "bias"):
        state[names.format(kind)] = state.pop(f"heads.head.{kind}")
    torch.save(state, tmp_path / "m.pth")
    loaded = vt.load(tmp_path / "m.pth", heads=4)
    assert torch.equal(loaded.head.weight, model.head.weight)


def test_files_that_are_something_else(tmp_path: Path) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 346293852\n"
    (tmp_path / "model.safetensors").write_text(pointer)
    with pytest.raises(vt.InputError, match="is a Git-LFS pointer and not the file itself"):
        vt.load(tmp_path)
    os.mkfifo(tmp_path / "pipe.safetensors")
    with pytest.raises(vt.InputError, match="is not a regular file"):
        vt.load(tmp_path / "pipe.safetensors")
    index = tmp_path / "loop" / "model.safetensors.index.json"
    index.parent.mkdir()
    index.write_text(json.dumps({"weight_map": {"a": index.name}}))
    with pytest.raises(vt.InputError, match=r"points to 'model.safetensors.index.json'"):
        vt.load(index.parent)


class Program(nn.Module):
    """A tree of modules with these weights, an enumeration and a list, as TorchScript stores them."""

    def __init__(self, state: State) -> None:
        super().__init__()
        self.sizes = [1, 2]
        self.kind = Kind.NCHW
        for name, weight in state.items():
            *path, last = name.split(".")
            module: nn.Module = self
            for each in path:
                if not hasattr(module, each):
                    module.add_module(each, nn.Module())
                module = getattr(module, each)
            # a transposed view, and a part of a larger storage
            stored = (
                weight.t().contiguous().t()
                if weight.ndim == 2
                else torch.cat([weight, weight])[: len(weight)]
            )
            module.register_parameter(last, nn.Parameter(stored))

    def forward(self, x: Tensor) -> Tensor:
        return x


class Kind(Enum):
    NCHW = "NCHW"


def test_a_torchscript_archive(model: Any, state: State, tmp_path: Path) -> None:
    torch.jit.save(torch.jit.script(Program(state)), tmp_path / "m.pt")
    assert same(tmp_path / "m.pt", model)


def archive(path: Path, pickled: bytes, storage: bytes = b"") -> Path:
    with zipfile.ZipFile(path, "w") as file:
        for name, content in (("constants.pkl", b""), ("data.pkl", pickled), ("data/0", storage)):
            file.writestr(f"m/{name}", content)
    return path


def test_hostile_torchscript_archives(tmp_path: Path) -> None:
    """Nothing that is named is imported, called or changed, and no tensor is larger than what is stored."""

    class Harm:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "harm"),)

    tensor = b"ctorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\x000X"
    tensor += b"\x03\0\0\0cpu%bt QK\0(%bt(%bt\x89}tR".replace(b" ", b"")
    module = b"\x80\x02cm\nM\n)\x81}(X\x01\0\0\0w" + tensor + b"ub."
    cases = {
        pickle.dumps(Harm(), 2): "no tensors|damaged",
        b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\nN}(X\5\0\0\0shapeK\5u\x86b.": "no tensors|damaged",
        b"\x80\x02" + b"(l" * 100_000 + b".": "no tensors|damaged",
        module % (b"K\4", b"K\2K\2", b"K\2K\1"): None,
        module % (b"K\5", b"K\2K\2", b"K\2K\1"): "'w' is not a plain tensor",  # as many as are not stored
        module % (b"K\4", b"K\x80K\x80", b"K\0K\0"): "'w' is not a plain tensor",  # many of one
        module % (b"K\4", b"K\2K\2", b"K\2K\2"): "'w' is not a plain tensor",  # outside
    }
    for pickled, sentence in cases.items():
        path = archive(tmp_path / "m.pt", pickled, bytes(16))
        with pytest.raises(vt.InputError, match=sentence or "no known format has weights like w"):
            vt.load(path)
    assert not (tmp_path / "harm").exists()


def test_weights_of_eight_bits(tiny: Any, tmp_path: Path) -> None:
    vt.save(tiny(), tmp_path / "m.pth", format="torchvision")
    state = torch.load(tmp_path / "m.pth", weights_only=True)
    small = {name: each.to(torch.float8_e4m3fn) for name, each in state.items()}
    save_file(small, tmp_path / "m.safetensors")
    loaded = vt.load(tmp_path / "m.safetensors", heads=4)
    assert torch.equal(loaded.head.weight, small["heads.head.weight"].float())


HARMLESS = {
    "a number of NumPy": {"best": np.float64(0.9)},
    "an array of NumPy": {"history": np.arange(3.0)},
    "a path in settings": {"args": argparse.Namespace(data=PurePosixPath("/d"))},
    "a defaultdict": {"meters": defaultdict(list, loss=[1.0])},
    "a date": {"when": datetime.datetime(2024, 1, 2)},
    "a namespace": {"config": SimpleNamespace(lr=1, inner=SimpleNamespace(a=2))},
    "an enumeration": {"kind": Kind.NCHW},
    "a counter": {"seen": Counter("aab")},
    "a set and a complex number": {"sets": {1, 2}, "z": 1j, "b": b"bytes", "frozen": frozenset([3])},
}


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("protocol", [2, 4])
def test_objects_beside_the_weights_do_no_harm(
    legacy: bool, protocol: int, model: Any, state: State, tmp_path: Path
) -> None:
    for what, more in HARMLESS.items():
        torch.save(
            {"model": OrderedDict(state), **more},
            tmp_path / "m.pth",
            pickle_protocol=protocol,
            _use_new_zipfile_serialization=not legacy,
        )
        assert same(tmp_path / "m.pth", model), what


@pytest.mark.parametrize("legacy", [False, True])
def test_a_module_that_was_stored_whole(legacy: bool, model: Any, state: State, tmp_path: Path) -> None:
    """torch.save(model): its parameters are read, its class is not imported."""
    module = Program(state)
    module.register_buffer("mine", torch.ones(3), persistent=False)
    torch.save({"model": module}, tmp_path / "m.pth", _use_new_zipfile_serialization=not legacy)
    assert same(tmp_path / "m.pth", model)


@pytest.mark.parametrize(
    "wrapper",
    [
        "module",
        "weights",
        "params",
        "params_ema",
        "ema",
        "network",
        "model_state",
        "state.model",
        "best.0.net",
    ],
)
def test_the_only_entry_that_holds_weights(wrapper: str, model: Any, state: State, tmp_path: Path) -> None:
    wrapped: Any = state
    for name in reversed(wrapper.split(".")):
        wrapped = [wrapped] if name.isdigit() else {name: wrapped}
    optimizer = {"state": {0: {"exp_avg": torch.zeros(3, 4)}}, "param_groups": [{"lr": 0.1, "params": [0]}]}
    torch.save({**wrapped, "epoch": 3, "optimizer": optimizer}, tmp_path / "m.pth")
    assert same(tmp_path / "m.pth", model)
    assert same(tmp_path / "m.pth", model, key=wrapper)


def test_of_several_entries_the_one_of_a_format_is_taken(model: Any, state: State, tmp_path: Path) -> None:
    other = {"fc.weight": torch.zeros(3, 3)}
    torch.save({"discriminator": other, "generator": state, "probe": other}, tmp_path / "m.pth")
    assert same(tmp_path / "m.pth", model)


def test_of_several_models_one_is_named(model: Any, state: State, tmp_path: Path) -> None:
    zeros = {name: torch.zeros_like(each) for name, each in state.items()}
    torch.save({"left": zeros, "right": state}, tmp_path / "m.pth")
    with pytest.raises(vt.InputError, match="holds several models: pass key= with one of left, right"):
        vt.load(tmp_path / "m.pth", **TOLD)
    assert same(tmp_path / "m.pth", model, key="right")
    towers = {
        f"{side}.{name}": each for side, some in (("a", zeros), ("b", state)) for name, each in some.items()
    }
    torch.save(towers, tmp_path / "m.pth")
    with pytest.raises(vt.InputError, match=r"holds several models: pass key= with one of a\., b\."):
        vt.load(tmp_path / "m.pth", **TOLD)
    assert same(tmp_path / "m.pth", model, key="b")
    assert same(tmp_path / "m.pth", model, key="b.")
    with pytest.raises(vt.InputError, match="has no weights under key='c': known are: a, b"):
        vt.load(tmp_path / "m.pth", key="c", **TOLD)


ANY_PREFIX = ("vit.", "vit_model.", "base_model.model.", "0.", "module.net.features.0.", "a.b.c.d.e.")
HEADS = {
    "linear": lambda width: nn.Linear(width, 7),
    "without a bias": lambda width: nn.Linear(width, 7, bias=False),
    "behind a dropout": lambda width: nn.Sequential(nn.Dropout(0.5), nn.Linear(width, 7)),
    "after a LayerNorm": lambda width: nn.Sequential(nn.LayerNorm(width, eps=1e-6), nn.Linear(width, 7)),
    "after a BatchNorm": lambda width: nn.Sequential(
        nn.BatchNorm1d(width), nn.Dropout(), nn.Linear(width, 7)
    ),
    "after MAE's BatchNorm": lambda width: nn.Sequential(
        nn.BatchNorm1d(width, affine=False, eps=1e-6), nn.Linear(width, 7)
    ),
}


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("prefix", ["", *ANY_PREFIX])
@torch.no_grad()
def test_one_linear_layer_is_a_head_under_any_name(
    head: str, prefix: str, model: Any, state: State, tmp_path: Path
) -> None:
    width = model.config.width
    layers = HEADS[head](width).eval()
    for each in [*layers.parameters(), *layers.buffers()]:
        if each.is_floating_point():
            each.copy_(torch.rand(each.shape) + 0.5)
    body = {f"{prefix}{name}": each for name, each in state.items() if not name.startswith("head.")}
    images = torch.randn(2, 3, 32, 32)
    expected = layers(model.features(images))
    for name in ("head",) if not prefix else ("fc", "classifier.out", f"{prefix}head"):
        torch.save(body | {f"{name}.{k}": v for k, v in layers.state_dict().items()}, tmp_path / "m.pth")
        loaded: Any = vt.load(tmp_path / "m.pth", **TOLD)
        torch.testing.assert_close(loaded(images), expected, atol=1e-4, rtol=1e-4)
        assert loaded.task == "classification"
    if not prefix:  # what was loaded, whatever its names in the file were
        vt.save(loaded, tmp_path / "native")
        assert torch.equal(vt.load(tmp_path / "native")(images), loaded(images))


def test_a_head_of_several_layers_is_not_dropped(model: Any, state: State, tmp_path: Path) -> None:
    body = {f"vit.{name}": each for name, each in state.items() if not name.startswith("head.")}
    head = nn.Sequential(nn.Linear(32, 16), nn.GELU(), nn.Linear(16, 7)).state_dict()
    torch.save(body | {f"fc.{name}": each for name, each in head.items()}, tmp_path / "m.pth")
    with pytest.raises(vt.InputError, match=r"weights left over.*: fc\.0\.bias, .* pass num_classes=None"):
        vt.load(tmp_path / "m.pth", **TOLD)
    loaded: Any = vt.load(tmp_path / "m.pth", num_classes=None, **TOLD)
    images = torch.randn(2, 3, 32, 32)
    torch.testing.assert_close(loaded(images), model.features(images), atol=2e-5, rtol=0)


def test_a_name_says_nothing_of_a_file(model: Any, state: State, tmp_path: Path) -> None:
    for name in ("m.safetensors", "m.npz", "m"):
        torch.save({"model": state}, tmp_path / name)
        assert same(tmp_path / name, model)


def test_a_refusal_says_what_the_file_is(tmp_path: Path) -> None:
    weight = torch.zeros(3, 3)
    cases = {
        "a Swin Transformer": {"layers.0.blocks.0.attn.relative_position_bias_table": weight},
        "a LoRA adapter": {"base_model.model.blocks.0.attn.qkv.lora_A.weight": weight},
        "a ResNet": {"layer1.0.conv1.weight": torch.zeros(3, 3, 1, 1)},
        "a language model": {"model.layers.0.self_attn.q_proj.weight": weight},
    }
    for what, state in cases.items():
        torch.save(state, tmp_path / "m.pth")
        with pytest.raises(vt.InputError, match=f"this is {what}"):
            vt.load(tmp_path / "m.pth")
    quantized = torch.quantize_per_tensor(torch.rand(3, 3), 0.1, 0, torch.qint8)
    torch.save({"fc._packed_params._packed_params": (quantized, None)}, tmp_path / "m.pth")
    with pytest.raises(vt.InputError, match="a quantized model: pass its weights before quantization"):
        vt.load(tmp_path / "m.pth")
    for name, what in {
        "model.weights.h5": "a model of Keras, which is not read here",
        "archive_format": "a program of torch.export",
    }.items():
        with zipfile.ZipFile(tmp_path / "m.zip", "w") as file:
            file.writestr(name, b"")
        with pytest.raises(vt.InputError, match=what):
            vt.load(tmp_path / "m.zip")
