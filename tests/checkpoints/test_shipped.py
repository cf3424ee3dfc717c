"""Encoders that come with the package, and how a run begins from one where that is better."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from PIL import Image

import vitreous as vt
from vitreous.addons.studies.formulas import draw_formula
from vitreous.api.training import TRY, TrainRequest
from vitreous.checkpoints import pretrained_encoders
from vitreous.checkpoints.files import read_json
from vitreous.checkpoints.native import save_native, write_json
from vitreous.checkpoints.pretrained_encoders import INSTALLED_ENCODERS
from vitreous.checkpoints.runs import read_tree
from vitreous.cli import run
from vitreous.models.config import Origin
from vitreous.tasks import task_named
from vitreous.training.initial_model import starting_model

pytestmark = pytest.mark.usefixtures("quick_figures")

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
    """The package comes with the encoders of this folder, and no others."""
    monkeypatch.setattr(pretrained_encoders, "ENCODERS", folder)
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
    model = vt.load("vitreous:tiny")
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


def test_what_is_missing_is_one_sentence(shipped: Path) -> None:
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
    assert vt.list_encoders("vitreous:small") == []
    with pytest.raises(vt.InputError, match="no encoder 'vitreous:small' comes"):
        vt.load("vitreous:small")


@pytest.mark.usefixtures("shipped")
def test_an_encoder_is_offered_where_it_may_help(photos: str) -> None:
    task = task_named("classification")
    assert "--init vitreous:tiny" in " ".join(task.plan(photos, {}).reasons)
    assert "--init" not in " ".join(task.plan(photos, {}, init="vitreous:tiny").reasons)
    assert "--init" not in " ".join(task.plan("synthetic:40@32", {}).reasons)


@pytest.mark.usefixtures("shipped")
def test_random_weights_can_be_asked_for(
    photos: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is tried then, though an encoder would be."""
    settings: dict[str, Any] = {"data": {"validation_fraction": 0.2}, "training": {"length": "2 steps"}}
    vt.train(photos, init="none", out=tmp_path / "run", settings=settings, progress=False)
    assert read_tree(tmp_path / "run").get("init") in (None, "none")
    assert "starting from" not in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.usefixtures("shipped")
def test_a_checkpoint_is_tried_beside_what_would_be_begun_with_otherwise(
    photos: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is damaged is left out, and said."""
    monkeypatch.delitem(INSTALLED_ENCODERS, "vitreous:photos")  # whose features take seconds
    damaged, own = vt.load("vitreous:tiny"), str(tmp_path / "own")
    torch.nn.init.constant_(damaged.blocks[0].mlp.contract.weight, float("nan"))  # type: ignore[arg-type, union-attr]
    save_native(damaged, own)
    settings = {"training": {"length": "2 steps"}}
    run = vt.train(
        photos, init=f"{TRY}{own}", out=tmp_path / "run", settings=settings, offline=True, progress=False
    )
    rows = [each["name"] for each in run.result.extra["candidates"]]
    assert {"linear on vitreous:tiny", "fine-tuned vitreous:tiny", "from scratch"} <= {*rows}
    assert not [each for each in rows if own in each]


def test_what_cannot_be_tried_is_said(photos: str) -> None:
    classification, segmentation = task_named("classification"), task_named("segmentation")
    assert TrainRequest(classification, photos, {}, init=f"{TRY}runs/a").is_open()
    assert not TrainRequest(classification, photos, {}, init="runs/a").is_open(), "as it was asked for"
    with pytest.raises(vt.InputError, match="compares candidates, and `model` names one"):
        TrainRequest(classification, photos, {"model": {"depth": 2}}, init=f"{TRY}runs/a").is_open()
    with pytest.raises(vt.InputError, match="candidates are not compared for `task` segmentation"):
        TrainRequest(segmentation, photos, {}, init=f"{TRY}runs/a").is_open()


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
