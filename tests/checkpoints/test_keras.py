"""keras-hub's ViT (`keras_files.py` made the files), and HDF5 files that are damaged or something else."""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import vitreous as vt

FOLDER = Path(__file__).parent / "data" / "published" / "keras"
EXPECTED = json.loads((FOLDER / "expected.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("file", ["classifier.keras", "classifier.weights.h5", "preset", "gap.keras"])
@torch.no_grad()
def test_equals_keras_hub(file: str) -> None:
    given = {"norm_eps": 1e-5} if file == "classifier.weights.h5" else {}
    model: Any = vt.load(FOLDER / file, **given)
    expected = EXPECTED["gap" if file.startswith("gap") else "classifier"]
    images, tokens, outputs = (torch.tensor(expected[name]) for name in ("images", "tokens", "outputs"))
    assert (model.tokens(images) - tokens).abs().max() < 2e-5 * tokens.abs().max()
    if file == "preset":
        assert model.config.num_classes is None
        return
    found = model(images)
    found = found.softmax(-1) if file.startswith("gap") else found  # which is said, and not a part of ours
    assert (found - outputs).abs().max() < 2e-5 * max(1.0, outputs.abs().max().item())


def test_what_a_file_leaves_open_is_said(caplog: pytest.LogCaptureFixture) -> None:
    vt.load(FOLDER / "classifier.weights.h5")
    assert "pooling=class (or pass pooling=)" in caplog.text
    caplog.clear()
    model: Any = vt.load(FOLDER / "gap.keras")
    assert "before the softmax that its classifier puts on them" in caplog.text
    assert model.config.image_size == (16, 24)
    assert model.config.representation_size == 8
    assert model.origin.format == "keras-hub"


@settings(max_examples=150)
@given(data=st.data())
def test_no_damage_ends_in_another_error(data: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    content = bytearray((FOLDER / "preset" / "model.weights.h5").read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        del content[data.draw(st.integers(0, len(content) - 1)) :]
    path = tmp_path_factory.mktemp("keras") / "m.weights.h5"
    path.write_bytes(bytes(content))
    with suppress(vt.InputError):
        vt.load(path)


def test_a_group_that_holds_itself(tmp_path: Path) -> None:
    content = bytearray((FOLDER / "preset" / "model.weights.h5").read_bytes())
    node = content.index(b"SNOD")
    content[node + 16 : node + 24] = content[64:72]  # the first entry is the root
    (tmp_path / "m.weights.h5").write_bytes(bytes(content))
    with pytest.raises(vt.InputError, match="is a damaged HDF5 file"):
        vt.load(tmp_path / "m.weights.h5")


def test_a_later_version_and_another_model(tmp_path: Path) -> None:
    content = bytearray((FOLDER / "classifier.weights.h5").read_bytes())
    other = bytes(content).replace(b"vi_t_encoder", b"my_t_encoder")
    (tmp_path / "other.weights.h5").write_bytes(other)
    with pytest.raises(vt.InputError, match="a model of Keras other than the ViT of keras-hub"):
        vt.load(tmp_path / "other.weights.h5")
    content[8] = 3
    (tmp_path / "later.weights.h5").write_bytes(bytes(content))
    with pytest.raises(vt.InputError, match="a damaged HDF5 file, or of a later version"):
        vt.load(tmp_path / "later.weights.h5")


def test_a_preset_with_its_task(tmp_path: Path) -> None:
    shutil.copytree(FOLDER / "preset", tmp_path / "m")
    shutil.copy(FOLDER / "classifier.weights.h5", tmp_path / "m" / "task.weights.h5")
    backbone = json.loads((tmp_path / "m" / "config.json").read_text())
    task = {"class_name": "ViTImageClassifier", "config": {"backbone": backbone, "pooling": "token"}}
    (tmp_path / "m" / "task.json").write_text(json.dumps(task))
    model: Any = vt.load(tmp_path / "m")
    assert (model.config.num_classes, model.config.norm_eps) == (3, 1e-5)
