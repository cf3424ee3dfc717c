"""The split is part of a run: what commands say and count when the folder has changed since."""

import csv
import json
import shutil

import numpy as np
import pytest
from PIL import Image

pytestmark = pytest.mark.usefixtures("quick_figures")

SMALL = ("model.depth=1", "model.width=16", "model.heads=2", "model.mlp_dim=16", "model.stem.kind=patch")


@pytest.fixture(scope="module")
def trained(workplace):
    """A folder of noise, and a run on it."""
    rng = np.random.default_rng(0)
    for name in ("a", "b"):
        (workplace / "noise" / name).mkdir(parents=True)
        for number in range(40):
            pixels = rng.integers(0, 256, (16, 16, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(workplace / "noise" / name / f"{number:02}.png")
    return workplace


@pytest.fixture
def run(trained, command):
    path = trained / "runs" / "noise"
    if not path.exists():
        settings = [word for setting in SMALL for word in ("--set", setting)]
        options = ("--out", path, "--epochs", "2", "--image-size", "16", *settings, "--json")
        done = command("train", "noise", *options)
        assert done.code == 0, done.err
    return path


@pytest.fixture
def folder(trained):
    """The folder, which is as it was when the test ends."""
    copy = shutil.copytree(trained / "noise", trained / "kept")
    yield trained / "noise"
    shutil.rmtree(trained / "noise")
    copy.rename(trained / "noise")


def rows(run):
    with (run / "split.csv").open(newline="") as file:
        return {row["path"]: row for row in csv.DictReader(file)}


@pytest.mark.slow
def test_the_run_lists_each_image_with_its_part(run):
    listed = rows(run)
    assert len(listed) == 80
    assert listed["a/00.png"]["label"] == "a"
    assert {row["part"] for row in listed.values()} == {"train", "test"}


def test_a_missing_image_makes_no_training_image_count(run, folder, command, caplog):
    held = [path for path, row in rows(run).items() if row["part"] == "test"]
    kept = [path for path, row in rows(run).items() if row["part"] == "train"]
    before = json.loads(command("evaluate", run, "--json").out)
    assert before["test_count"] == len(held)
    for path in kept[:3]:
        (folder / path).unlink()
    after = command("evaluate", run, "--json")
    assert json.loads(after.out)["metrics"] == before["metrics"]
    assert f"data: 3 images that the run used are missing (such as {kept[0]}): " in caplog.text
    Image.new("RGB", (16, 16)).save(folder / "a" / "new.png")
    found = command("evaluate", run, "--json")
    assert json.loads(found.out)["test_count"] == len(held)
    assert "data: 1 image is new since the run began, and is left out (such as a/new.png)" in caplog.text


def test_a_renamed_folder_is_recognized(run, folder, command):
    listed = rows(run)
    other = shutil.copytree(folder, folder.with_name("renamed"))
    for number, image in enumerate(sorted(other.rglob("*.png"))):
        image.rename(image.with_name(f"image{number}.png"))
    done = command("evaluate", run, "renamed", "--json")
    result = json.loads(done.out)
    trained_on = sum(row["part"] == "train" for row in listed.values())
    assert result["test_count"] == 80 - trained_on
    assert result["part"] == f"all of it but {trained_on} images that it was trained on (by their content)"
    shutil.rmtree(other)


def test_settings_of_the_split_are_refused(run, folder, command):
    done = command("evaluate", run, "--set", "data.test_fraction=0.5")
    assert done.code == 2
    assert "split.csv, so data.test_fraction has no effect: leave it out" in done.err


def test_a_resumed_run_learns_from_the_images_that_it_had(run, folder, command):
    listed = rows(run)
    trained_on = sum(row["part"] == "train" for row in listed.values())
    moved = next(path for path, row in listed.items() if row["part"] == "train" and path.startswith("a/"))
    (folder / moved).rename(folder / "b" / "moved.png")
    for name in ("c", "a"):  # a class that the model does not know, and one that it does
        (folder / name).mkdir(exist_ok=True)
        Image.new("RGB", (16, 16), name == "a").save(folder / name / "new.png")
    copy = shutil.copytree(run, run.with_name("resumed"))
    done = command("train", "--resume", copy, "--epochs", "3", "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["train_count"] == trained_on
    assert "data: 2 images are new since the run began, and are left out" in done.err
    assert "data: the label of 1 image has changed since the run began; the current one is used" in done.err
    found = json.loads(command("doctor", copy, "--json").out)["findings"]
    assert {"new images", "relabeled images"} <= {each["kind"] for each in found}
    shutil.rmtree(copy)


def test_another_model_learns_from_the_same_parts(run, folder, command, workplace):
    settings = [word for setting in SMALL for word in ("--set", setting)]
    options = ("--epochs", "1", "--image-size", "16", *settings, "--json")
    again = workplace / "runs" / "again"
    split = ("--set", f"data.recorded.file={run / 'split.csv'}", "--set", "data.split.seed=5")
    assert command("train", "noise", "--out", again, *split, *options).code == 0
    assert rows(again) == rows(run)
