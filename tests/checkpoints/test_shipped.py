"""Encoders that come with the package, and how a run begins from one where that is better."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from PIL import Image

import vitreous as vt
from vitreous.addons.studies.formulas import draw_formula
from vitreous.checkpoints import download
from vitreous.checkpoints.files import read_json
from vitreous.checkpoints.native_writing import save_native, write_json
from vitreous.checkpoints.runs import read_tree
from vitreous.cli import run
from vitreous.models.config import Origin
from vitreous.tasks import task_named
from vitreous.tasks.trial import TRY, better_beginning, decided, encoder_to_try, shortened
from vitreous.training.initial_model import starting_model

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of encoders with one, `tiny`, in fp16."""
    folder = tmp_path_factory.mktemp("encoders")
    model = vt.create("ViT-Ti/16", image_size=64, num_classes=None, width=16, depth=1, heads=2, mlp_dim=32)
    model.origin = Origin(source="vitreous:tiny", format="vitreous", license="apache-2.0")
    save_native(model.half(), folder / "tiny")
    config = folder / "tiny" / "config.json"
    write_json(read_json(config) | {"trained_on": "formulas:8x4@64"}, config)
    return folder


@pytest.fixture
def shipped(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(download, "ENCODERS", folder)
    return folder


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two classes of 10 images of 64x64."""
    folder = tmp_path_factory.mktemp("data") / "photos"
    for number, name in enumerate(("day", "night")):
        (folder / name).mkdir(parents=True)
        for k in range(10):
            Image.new("RGB", (64, 64), (200 - 150 * number, 9 * k, 40)).save(folder / name / f"{k}.png")
    return str(folder)


@pytest.mark.usefixtures("shipped")
def test_an_encoder_is_listed_loaded_and_begun_from(
    photos: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (listed,) = vt.list_encoders("*tiny")
    assert (listed.name, listed.license, listed.trained_on) == (
        "vitreous:tiny",
        "apache-2.0",
        "formulas:8x4@64",
    )
    model = vt.load("vitreous:tiny", kind=vt.ViT)
    assert {each.dtype for each in model.parameters()} == {torch.float32}
    assert sum(each.numel() for each in model.parameters()) == listed.parameters
    assert model.config.image_size == listed.image_size == (64, 64)
    assert model.origin is not None
    assert (model.origin.source, model.origin.license) == ("vitreous:tiny", "apache-2.0")
    assert vt.load("vitreous:tiny", image_size=128)(torch.zeros(1, 3, 128, 128)).shape == (1, 16)
    assert run(["list-models", "vitreous:t*", "--json"]) == 0
    (printed,) = json.loads(capsys.readouterr().out)["encoders"]
    assert printed["name"] == "vitreous:tiny"
    assert run(["list-models", "vitreous:t*"]) == 0
    assert "formulas:8x4@64" in capsys.readouterr().out
    (tmp_path / "tiny").mkdir()  # a folder of that name is not meant
    monkeypatch.chdir(tmp_path)
    config = task_named("classification").plan(photos, {}, init="vitreous:tiny").config
    assert config.init == "vitreous:tiny"
    begun = starting_model(config, ["day", "night"]).state_dict()
    weights = model.state_dict()
    assert all(torch.equal(begun[name], weights[name]) for name in weights)


def test_what_is_missing_is_one_sentence(shipped: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(vt.InputError, match=r"no encoder 'vitreous:tin' .* did you mean 'vitreous:tiny'"):
        vt.load("vitreous:tin")
    with pytest.raises(vt.InputError, match=r"no encoder 'vitreous:../tiny' comes"):
        vt.load("vitreous:../tiny")
    weights = shipped / "tiny" / "model.safetensors"
    weights.rename(shipped / "elsewhere")
    try:
        with pytest.raises(vt.InputError, match=r"weights of vitreous:tiny are missing .* from its wheel"):
            vt.load("vitreous:tiny")
    finally:
        (shipped / "elsewhere").rename(weights)
    monkeypatch.setattr(download, "ENCODERS", shipped / "none")
    assert vt.list_encoders("vitreous:small") == []
    with pytest.raises(vt.InputError, match="no encoder 'vitreous:small' comes"):
        vt.load("vitreous:small")


def test_what_is_tried_where_nothing_is_asked_for(photos: str, shipped: Path, tmp_path: Path) -> None:
    task, split = task_named("classification"), {"data": {"validation_fraction": 0.2}}
    assert encoder_to_try(task, photos, split, None) == TRY + "vitreous:tiny"
    assert encoder_to_try(task, photos, {}, None) is None  # no validation part
    assert encoder_to_try(task, photos, split, "deit") is None
    assert encoder_to_try(task, photos, {**split, "model": {"depth": 2}}, None) is None
    assert encoder_to_try(task, "synthetic:40@32", split, None) is None  # would be enlarged
    assert encoder_to_try(task_named("regression"), photos, split, None) is None
    assert encoder_to_try(task, photos, split, None, "vitreous:tiny") is None  # as it was asked for
    (tmp_path / "config.toml").write_text('task = "classification"')
    assert encoder_to_try(task, photos, split, None, str(tmp_path)) is None
    (tmp_path / "config.toml").write_text('task = "mae"\n[pretraining]')
    assert encoder_to_try(task, photos, split, None, str(tmp_path)) == f"{TRY}{tmp_path}"
    assert encoder_to_try(task, photos, {**split, "init": "x"}, None, str(tmp_path)) is None
    assert encoder_to_try(task, photos, {}, None, str(tmp_path)) is None  # no validation part
    assert "--init vitreous:tiny" in " ".join(task.plan(photos, {}).reasons)
    assert "--init" not in " ".join(task.plan(photos, {}, init="vitreous:tiny").reasons)
    assert "--init" not in " ".join(task.plan("synthetic:40@32", {}).reasons)


def test_the_better_score_decides() -> None:
    found = decided({None: 0.5, "runs/a": 0.75}, True, 40)
    assert found.init == "runs/a"
    assert found.note == (
        "starting from runs/a: after a tenth of the training, the scores on 40 validation images are runs/a "
        "75.0 %, random weights 50.0 %"
    )
    assert decided({None: 0.5, "runs/a": 0.5}, True, 40).init is None
    three = decided({None: 0.1, "vitreous:small": 0.5, "runs/a": 0.25}, False, 40)
    assert three.init == "vitreous:small"
    assert "are runs/a 0.25, vitreous:small 0.5, random weights 0.1" in three.note


@pytest.mark.slow
@pytest.mark.usefixtures("shipped")
def test_both_are_trained_for_a_tenth_and_compared(photos: str, tmp_path: Path) -> None:
    """The trial leaves nothing behind; the run that follows begins from what has won and says why."""
    settings: dict[str, Any] = {"data": {"validation_fraction": 0.2}, "training": {"length": "20 steps"}}
    task = task_named("classification")
    assert shortened(task.plan(photos, settings)[0]).training.steps == 2
    found = better_beginning(task, photos, settings, "vitreous:tiny", device=CPU)
    assert found.init in (None, "vitreous:tiny")
    assert "the scores on 3 validation images are vitreous:tiny " in found.note
    assert found.length is None
    timed = {**settings, "training": {"length": "0.05 minutes"}}
    found = better_beginning(task, photos, timed, "vitreous:tiny", device=CPU)
    assert found.length is not None
    minutes, unit = found.length.split()
    assert unit == "minutes"
    assert 0.005 <= float(minutes) < 0.05  # the trial is a part of the time
    assert found.note.endswith("of 3 s are left")
    with pytest.raises(vt.InputError, match=r"compares on the validation part, and .* has none"):
        better_beginning(task, photos, {}, "vitreous:tiny", device=CPU)
    run = tmp_path / "run"
    vt.train(photos, init=TRY + "vitreous:tiny", out=run, minutes=0.1, settings=settings, progress=False)
    tree = read_tree(run)
    assert tree.get("init") in (None, "none", "vitreous:tiny")
    training = tree["training"]
    assert isinstance(training, dict)
    assert float(str(training["length"]).removesuffix(" minutes")) < 0.1


@pytest.mark.usefixtures("shipped")
def test_random_weights_can_be_asked_for(
    photos: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is tried then, though an encoder would be."""
    settings: dict[str, Any] = {"data": {"validation_fraction": 0.2}, "training": {"length": "2 steps"}}
    vt.train(photos, init="none", out=tmp_path / "run", settings=settings, progress=False)
    assert read_tree(tmp_path / "run").get("init") in (None, "none")
    assert "starting from" not in capsys.readouterr().err


@pytest.mark.usefixtures("shipped")
def test_a_checkpoint_is_tried_beside_what_would_be_begun_with_otherwise(photos: str, tmp_path: Path) -> None:
    """One whose loss is not finite is not begun with."""
    damaged, own = vt.load("vitreous:tiny", kind=vt.ViT), str(tmp_path / "own")
    torch.nn.init.constant_(damaged.blocks[0].mlp.contract.weight, float("nan"))  # type: ignore[arg-type, union-attr]
    save_native(damaged, own)
    settings = {"data": {"validation_fraction": 0.2}, "training": {"length": "20 steps"}}
    found = better_beginning(task_named("classification"), photos, settings, own, device=CPU)
    assert found.init != own
    assert re.search(rf"are {re.escape(own)} -, vitreous:tiny \S+ %, random weights \S+ %", found.note)


def test_the_encoder_of_this_package() -> None:
    """Its features tell formulas apart that it has not seen drawn so: a linear rule on one image of each."""
    (small,) = vt.list_encoders("vitreous:small")
    assert small.bytes < 12_000_000
    assert (small.image_size, small.license) == ((64, 64), "apache-2.0")
    model = vt.load("vitreous:small")
    drawn = [[draw_formula(group, number, 64) for group in range(16)] for number in (5000, 5001, 5002)]
    with torch.inference_mode():
        known, *new = (F.normalize(model.features(model.preprocessing(each)), dim=-1) for each in drawn)
    hits = [(each @ known.T).argmax(dim=1) == torch.arange(16) for each in new]
    assert torch.cat(hits).float().mean() > 0.4  # one of 16 by chance
