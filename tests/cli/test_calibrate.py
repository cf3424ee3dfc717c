"""The temperature of a run: fitted after training, and by `vitreous calibrate`."""

import json
import re
import shutil

import numpy as np
import pytest
import torch
from PIL import Image

import vitreous as vt

pytestmark = pytest.mark.usefixtures("quick_figures")

TINY = ("--epochs", "3", "--set", "model.depth=1", "--set", "model.width=16", "--json")


@pytest.fixture(scope="module")
def validated(workplace):
    return workplace / "runs" / "validated"


@pytest.fixture
def run(command, validated):
    """A run on the digits with a validation set."""
    if not validated.exists():
        done = command("train", "--set", "data.validation_fraction=0.1", "--out", validated, *TINY)
        assert done.code == 0, done.err
        assert "calibration: temperature" in done.err
        assert re.search(r"fitted on \d+ validation images", done.err)
        metrics = json.loads(done.out)["metrics"]
        assert metrics["calibration_error"]["value"] < metrics["uncalibrated_error"]["value"]
    return validated


def test_images_of_one_class_are_evaluated_and_fitted_to(workplace, command, tmp_path):
    """What training asks for, two classes, none of them empty, does not bind what is done with a model."""
    for name in ("3", "7"):
        (tmp_path / "one" / name).mkdir(parents=True)
    for image in (workplace / "photos" / "3").iterdir():
        shutil.copy(image, tmp_path / "one" / "3")
    found = command("evaluate", "runs/mine", tmp_path / "one", "--json")
    assert found.code == 0, found.err
    images = [row["support"] for row in json.loads(found.out)["per_class"] if row["label"] == "3"]
    assert images == [12]
    done = command("calibrate", "runs/mine", tmp_path / "one", "--out", tmp_path / "calibrated")
    assert done.code == 0, done.err
    for words in (
        ("train", tmp_path / "one", "--out", tmp_path / "run"),
        ("probe", "runs/mine", tmp_path / "one"),
    ):
        refused = command(*words)
        assert refused.code == 2
        assert "single class, '3'" in refused.err
        assert "one/7" in refused.err


def test_what_is_stored_is_calibrated(run, command):
    model = vt.load(run)
    assert model.temperature != 1
    told = json.loads(command("evaluate", run, "--json").out)
    assert told["metrics"]["uncalibrated_error"]["value"] > told["metrics"]["calibration_error"]["value"]
    image = next(iter(vt.predict(model, [torch.zeros(1, 8, 8)], progress=False)))
    with torch.no_grad():
        probabilities = model(model.preprocessing([torch.zeros(1, 8, 8)])).softmax(dim=-1)
    assert image.probability == pytest.approx(float(probabilities.max()), abs=1e-5)
    assert "calibration error before temperature scaling" in command("evaluate", run).out


def test_a_run_is_calibrated_again(run, command, workplace):
    before = vt.load(run).temperature
    out = workplace / "calibrated-elsewhere"
    told = json.loads(command("calibrate", run, "--out", out, "--json").out)
    assert told["count"] > 100
    assert told["part"] == "validation set"
    assert told["temperature"] == pytest.approx(before, rel=1e-3)
    assert vt.load(out).temperature == told["temperature"]
    assert vt.load(run).temperature == before
    assert "is not overwritten" in command("calibrate", run, "--out", out).err
    done = command("calibrate", run)
    assert (
        "validation set and, to the extent that they agree, training images\nexpected calibration error "
        "there:" in done.out
    )


def test_what_is_calibrated_in_its_place(run, command, in_hub_cache):
    """A run or a folder of weights, which the file of the weights means, too; else a folder is asked for."""
    before = vt.load(run).temperature
    done = command("calibrate", run / "model" / "model.safetensors", "digits")
    assert done.code == 0, done.err
    assert vt.load(run).temperature == pytest.approx(before, rel=0.5)
    shards = next((run / "checkpoints").glob("step-*.shards"))
    names = sorted(shards.iterdir())
    published = in_hub_cache(vt.load(run), "me/x", format="vitreous")
    for elsewhere in (shards, published, shards.with_suffix(".json")):
        refused = command("calibrate", elsewhere, "digits")
        assert refused.code == 2
        assert f"{elsewhere} cannot be changed in place: name a folder for the model" in refused.err
    assert sorted(shards.iterdir()) == names


@pytest.mark.slow
def test_without_a_validation_part(command, workplace):
    out = workplace / "runs" / "unvalidated"
    done = command("train", "--set", "evaluation.calibrate=true", "--out", out, *TINY)
    assert "calibration: none, since there is no validation set" in done.err
    assert "uncalibrated_error" not in json.loads(done.out)["metrics"]
    assert vt.load(out).temperature == 1
    refused = command("calibrate", out)
    assert refused.code == 2
    assert "was trained without a validation set" in refused.err
    refused = command("calibrate", out, "--set", "data.validation_fraction=0.1")
    assert refused.code == 2
    assert "data.validation_fraction" in refused.err
    assert "leave it out" in refused.err


@pytest.mark.slow
def test_a_recipe_may_know_its_temperature(command, workplace):
    out = workplace / "runs" / "known"
    done = command("train", "--set", "evaluation.calibrate=0.5", "--out", out, *TINY)
    assert "calibration: temperature 0.5, set by evaluation.calibrate" in done.err
    assert vt.load(out).temperature == 0.5


@pytest.mark.slow
def test_calibration_can_be_left_out(command, workplace):
    out = workplace / "runs" / "uncalibrated"
    settings = ("--set", "data.validation_fraction=0.1", "--set", "evaluation.calibrate=false")
    done = command("train", "--out", out, *settings, *TINY)
    assert done.code == 0
    assert "calibration:" not in done.err
    assert vt.load(out).temperature == 1


def test_a_checkpoint_is_not_changed_in_its_place(command, workplace):
    refused = command("calibrate", "ViT-Ti/16", "digits")
    assert refused.code == 2
    with pytest.raises(vt.InputError, match="the ViT is not saved"):
        vt.calibrate(vt.create("ViT-Ti/16", image_size=32))


def test_thresholds_of_several_labels(command, workplace):
    rng, rows = np.random.default_rng(0), ["path,label"]
    (workplace / "several").mkdir()
    for number in range(120):
        dark, red = number % 3 == 0, number % 2 == 0
        pixels = rng.integers(0, 60, (8, 8, 3)) + (0 if dark else 120) + np.array([60 * red, 0, 0])
        Image.fromarray(pixels.astype(np.uint8)).save(workplace / "several" / f"{number}.png")
        rows.append(f"several/{number}.png,{'|'.join(['dark'] * dark + ['red'] * red)}")
    (workplace / "several.csv").write_text("\n".join(rows))
    out, one = workplace / "runs" / "several", "several/6.png"
    plain = ("train", "several.csv", "--set", "model.image_size=8", "--set", "model.patch_size=4", *TINY)
    plain = (*plain, "--set", "model.stem.kind=patch", "--set", "data.validation_fraction=0.3")
    done = command(*plain, "--out", out)
    assert done.code == 0, done.err
    found = json.loads(command("predict", out, one, "--threshold", "best", "--json").out)["predictions"][0]
    chosen = json.loads((out / "model" / "thresholds.json").read_text())["thresholds"]
    assert [*chosen] == ["dark", "red"]
    reached = [each["label"] for each in found["top"] if each["probability"] >= chosen[each["label"]]]
    assert sorted(found["labels"]) == sorted(reached)
    assert vt.Predictor(out, threshold="best").use.options["threshold"] == chosen
    again = command("calibrate", out).out
    printed = {label: float(value) for label, value in re.findall(r"^(dark|red) +(0\.\d+)$", again, re.M)}
    assert printed == pytest.approx(chosen, abs=0.05)  # of a model that has hardly learned anything
    vt.save(vt.create("ViT-Ti/16", image_size=16, num_classes=2), out / "model", overwrite=True)
    refused = command("predict", out, one, "--threshold", "best")
    assert refused.code == 2
    assert f"no thresholds were chosen for {out}" in refused.err
