"""Files as training code leaves them: settings beside the weights, prefixes, parts of pre-training."""

from __future__ import annotations

import argparse
import json
import os
import pickle
import zipfile
from enum import Enum
from pathlib import Path
from typing import Any

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


@pytest.fixture
def state(model: Any, tmp_path: Path) -> State:
    """The state dict of a model, under timm's names."""
    vt.save(model, tmp_path / "plain.pth", format="timm")
    found: State = torch.load(tmp_path / "plain.pth", weights_only=True)
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


def test_averaged_weights_are_taken_and_said(
    model: Any, state: State, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    zeros = {name: torch.zeros_like(each) for name, each in state.items()}
    torch.save({"state_dict": zeros, "state_dict_ema": state}, tmp_path / "m.pth")
    assert same(tmp_path / "m.pth", model)
    assert "the weights under 'state_dict_ema' are taken, not those under state_dict" in caplog.text


def test_of_a_student_and_a_teacher_the_average_is_taken_and_said(
    model: Any, state: State, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for average, other in (("teacher.", "student."), ("ema_model.", "model.")):
        named = {f"{other}{name}": torch.zeros_like(each) for name, each in state.items()}
        named |= {f"{average}{name}": each for name, each in state.items()}
        torch.save(named, tmp_path / "m.pth")
        assert same(tmp_path / "m.pth", model)
        assert f"the weights under {average} are taken, not those under {other}" in caplog.text


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
    with pytest.raises(vt.InputError, match=r"points at 'model.safetensors.index.json'"):
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
        pickle.dumps(Harm(), 2): "holds no tensors",
        b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\nN}(X\5\0\0\0shapeK\5u\x86b.": "is a damaged PyTorch",
        b"\x80\x02" + b"(l" * 100_000 + b".": "is a damaged PyTorch",
        module % (b"K\4", b"K\2K\2", b"K\2K\1"): None,
        module % (b"K\5", b"K\2K\2", b"K\2K\1"): "'w' is damaged",  # as many as are not stored
        module % (b"K\4", b"K\x80K\x80", b"K\0K\0"): "'w' is damaged",  # many of one
        module % (b"K\4", b"K\2K\2", b"K\2K\2"): "'w' is damaged",  # outside
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
