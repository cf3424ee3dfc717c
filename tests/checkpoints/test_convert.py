"""`vitreous convert`: what it prints, what it leaves, how it refuses."""

from __future__ import annotations

import json
import os
import resource
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open

import vitreous as vt
from vitreous.cli import run
from vitreous.errors import InputError

GOLDEN = Path(__file__).parents[1] / "golden" / "data"


def test_there_and_back(tiny: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = tiny(mlp="gelu_tanh")
    vt.save(model, tmp_path / "mine")
    steps = [
        ("mine", "a.npz", []),
        ("a.npz", "b", ["--format", "timm"]),
        ("b", "c", ["--format", "vitreous"]),
    ]
    for source, target, options in steps:
        assert run(["convert", str(tmp_path / source), str(tmp_path / target), *options, "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert told["path"] == str(tmp_path / target)
        assert told["max_abs_difference"] < 2e-5
    images = torch.randn(1, 3, 32, 32)
    torch.testing.assert_close(vt.load(tmp_path / "c")(images), model(images), atol=1e-5, rtol=1e-5)


def test_python_converts_as_the_command_does(tiny: Any, tmp_path: Path) -> None:
    vt.save(tiny(mlp="gelu_tanh"), tmp_path / "mine")
    (tmp_path / "settings.toml").write_text("[model]\nimage_size = 64\n")
    found = vt.convert(tmp_path / "mine", tmp_path / "a.npz", config=tmp_path / "settings.toml")
    assert (found.path, found.format, found.dropped) == (tmp_path / "a.npz", "google", ())
    assert vt.load(found.path).config.grid == (8, 8)
    assert run(["convert", str(tmp_path / "mine"), str(tmp_path / "b"), "--config", "nowhere.toml"]) == 2


def test_several_parts_are_left_out(tiny: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    vt.save(tiny(mlp="gelu", norm_eps=1e-5), tmp_path / "mine")
    words = ["convert", str(tmp_path / "mine"), str(tmp_path / "a.npz"), "--json"]
    assert run([*words, "--drop", "norm_eps", "mlp"]) == 0, capsys.readouterr().err
    assert json.loads(capsys.readouterr().out)["dropped"] == ["norm_eps", "mlp"]


def test_what_is_left_out_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = str(GOLDEN / "google_vit_i21k" / "weights.npz"), str(tmp_path / "m")
    assert run(["convert", source, target, "--format", "timm"]) == 2
    refusal = capsys.readouterr().err.strip().splitlines()[-1]
    assert refusal.startswith("vitreous: timm cannot hold representation_size=24")
    assert "--drop representation_size" in refusal
    assert not list(tmp_path.iterdir())
    assert run(["convert", source, target, "--format", "timm", "--drop", "representation_size"]) == 0
    captured = capsys.readouterr()
    assert "largest difference" in captured.out
    assert "left out: representation" in captured.err


def test_what_the_file_does_not_tell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = str(GOLDEN / "torchvision_vit" / "model.pth"), str(tmp_path / "m")
    assert run(["convert", source, target]) == 2
    assert "pass heads=" in capsys.readouterr().err
    assert run(["convert", source, target, "--set", "model.heads=4", "--image-size", "48x32"]) == 0
    assert vt.load(target).config.grid == (6, 4)
    assert run(["convert", source, target, "--set", "heads=4"]) == 2
    assert "write --set model.heads" in capsys.readouterr().err


@pytest.mark.parametrize("taken", ["folder", "file"])
def test_nothing_is_written_over(tiny: Any, tmp_path: Path, capsys: Any, taken: str) -> None:
    """Where something lies, a run or another model, it stays as it was."""
    vt.save(tiny(), tmp_path / "mine")
    target = tmp_path / "taken"
    if taken == "folder":
        vt.save(tiny(width=24, heads=2), target)
    else:
        target.write_bytes(b"something else")
    files = sorted(target.iterdir()) if taken == "folder" else [target]
    before = [file.read_bytes() for file in files]
    assert run(["convert", str(tmp_path / "mine"), str(target)]) == 2
    assert capsys.readouterr().err == (
        f"vitreous: {target} already exists, and is not overwritten: choose another path\n"
    )
    assert [file.read_bytes() for file in files] == before
    (tmp_path / "empty").mkdir()
    assert run(["convert", str(tmp_path / "mine"), str(tmp_path / "empty")]) == 0
    assert vt.load(tmp_path / "empty").config.width == tiny().config.width


@pytest.mark.parametrize("target", ["/proc/folder", "/proc/a/b.npz"])
def test_a_path_that_cannot_be_written_is_one_sentence(
    tiny: Any, tmp_path: Path, capsys: Any, target: str
) -> None:
    vt.save(tiny(mlp="gelu_tanh"), tmp_path / "mine")
    assert run(["convert", str(tmp_path / "mine"), target]) == 2
    assert capsys.readouterr().err == (
        f"vitreous: cannot write {target}: No such file or directory; free up space, or choose another path\n"
    )
    (tmp_path / "file").write_text("no folder")
    assert run(["convert", str(tmp_path / "mine"), str(tmp_path / "file" / "m")]) == 2
    file = tmp_path / "file"
    told = capsys.readouterr().err
    assert told.startswith(f"vitreous: cannot write {file / 'm'}: {file} is a file, not a folder; ")


@pytest.mark.parametrize(
    ("name", "format"),
    [("m", "vitreous"), ("m", "timm"), ("m", "huggingface"), ("m.npz", "google"), ("m.pth", "torchvision")],
)
def test_a_full_disk_leaves_nothing(tiny: Any, tmp_path: Path, name: str, format: str) -> None:
    """A limit on the size of files stands for the disk."""
    model = tiny(mlp="gelu_tanh" if format == "google" else "gelu")
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(InputError, match=r"^cannot write .*; free up space, or choose another path$"):
            vt.save(model, tmp_path / name, format=format)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        signal.signal(signal.SIGXFSZ, before)
    assert not list(tmp_path.iterdir())


def test_a_written_dinov2_has_the_token_that_transformers_warns_of(tiny: Any, tmp_path: Path) -> None:
    model = tiny(layer_scale=1e-5, num_classes=None)
    vt.save(model, tmp_path / "hf", format="huggingface")
    with safe_open(tmp_path / "hf" / "model.safetensors", "pt") as file:
        assert file.get_tensor("embeddings.mask_token").shape == (1, model.config.width)


@pytest.mark.parametrize("umask", [0o022, 0o027, 0o077])
def test_those_read_a_model_who_read_other_files(umask: int, tmp_path: Path) -> None:
    """A server often runs as another user than the one who trained."""
    before = os.umask(umask)
    try:
        model = vt.create("ViT-Ti/16", image_size=16, width=8, depth=1, heads=1, mlp_dim=8, num_classes=2)
        vt.save(model, tmp_path / "own")
        vt.save(model, tmp_path / "timm", format="timm")
        vt.save(model, tmp_path / "file.safetensors", format="timm")
        (tmp_path / "other").write_text("")
    finally:
        os.umask(before)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 5
    assert {oct(path.stat().st_mode & 0o777) for path in files} == {oct(0o666 & ~umask)}
