"""A run and its data that are copied or moved, exclusions and the page of data check, as commands."""

import csv
import json
import re
import shutil

import numpy as np
import pytest
from PIL import Image

from vitreous.data.checks import collect
from vitreous.data.config import DataConfig
from vitreous.data.sources import open_data
from vitreous.inspection.data_report import small_image
from vitreous.tasks.classification import Classification

pytestmark = pytest.mark.usefixtures("quick_figures")

SMALL = ("model.depth=1", "model.width=16", "model.heads=2", "model.mlp_dim=16", "model.stem.kind=patch")
OPTIONS = ("--epochs", "1", "--image-size", "16", *(word for name in SMALL for word in ("--set", name)))


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """home/ with photos/: two classes of 20 images."""
    folder = tmp_path_factory.mktemp("place") / "home"
    rng = np.random.default_rng(0)
    for shade, name in enumerate(("a", "b")):
        (folder / "photos" / name).mkdir(parents=True)
        for number in range(20):
            pixels = rng.integers(0, 120, (16, 16, 3), dtype=np.uint8)
            pixels[..., shade] += 120
            Image.fromarray(pixels).save(folder / "photos" / name / f"{number:02}.png")
    return folder


@pytest.fixture
def home(place, command, monkeypatch):  # after `command`, which goes elsewhere
    monkeypatch.chdir(place)
    return place


@pytest.fixture
def run(home, command):
    path = home / "runs" / "one"
    if not path.exists():
        done = command("train", home / "photos", "--out", path, *OPTIONS, "--json")
        assert done.code == 0, done.err
    return path


def accuracy(done):
    assert done.code == 0, done.err
    return json.loads(done.out)["metrics"]["accuracy"]["value"]


def test_a_run_is_copied_with_its_data_or_moved_alone(run, home, command, tmp_path):
    before = accuracy(command("evaluate", run, "--json"))
    shutil.copytree(home, tmp_path / "other" / "home")
    shutil.move(home / "photos", home / "gone")
    copied = tmp_path / "other" / "home" / "runs" / "one"
    assert accuracy(command("evaluate", copied, "--json")) == before
    resumed = command("train", "--resume", copied, "--epochs", "2", "--json")
    assert resumed.code == 0, resumed.err
    found = command("evaluate", run)
    assert (found.code, found.out) == (2, "")
    assert re.search("the data of .*one is no longer at .*photos: specify its new location", found.err)
    for words in (("train", "--resume", run, "--epochs", "2"), ("doctor", run)):
        found = command(*words)
        assert found.code == 2
        assert "--resume" in found.err
        assert "--data DATA" in found.err
    shutil.move(home / "gone", home / "photos")
    shutil.copytree(run, tmp_path / "alone")
    assert accuracy(command("evaluate", tmp_path / "alone", "--json")) == before


@pytest.mark.slow
def test_a_fine_tuned_run_goes_on_from_any_folder_and_without_what_it_began_from(
    run, home, command, tmp_path, monkeypatch
):
    first = shutil.copytree(run, home / "first")
    done = command("train", home / "photos", "--init", "first", "--epochs", "1", "--out", "tuned")
    assert done.code == 0, done.err
    tuned = home / "tuned"
    monkeypatch.chdir(tmp_path)
    done = command("train", "--resume", tuned, "--epochs", "2", "--json")
    assert done.code == 0, done.err
    before = accuracy(command("evaluate", tuned, "--json"))
    shutil.rmtree(first)
    assert accuracy(command("train", "--resume", tuned, "--json")) == before
    assert command("doctor", tuned).code == 0
    shutil.rmtree(tuned / "checkpoints")  # then it cannot
    assert "there is no checkpoint at" in command("train", "--resume", tuned, "--epochs", "3").err
    shutil.rmtree(tuned)


def test_ctrl_c_in_the_evaluation_says_what_is_missing(home, command, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Classification, "evaluate", stop)  # Ctrl-C, while it runs
        done = command("train", home / "photos", "--out", "cut", *OPTIONS)
    assert done.code == 130
    sentence = "missing: report.html, README.md; create them with vitreous train --resume cut"
    assert sentence in " ".join(done.err.split())
    assert command("train", "--resume", "cut").code == 0
    assert (home / "cut" / "report.html").exists()
    shutil.rmtree(home / "cut")


def test_data_that_moved_are_named_once(run, home, command):
    shutil.move(home / "photos", home / "elsewhere")
    try:
        wrong = command("train", "--resume", run, "--data", "nowhere", "--epochs", "3")
        assert wrong.code == 2
        assert "photos" in (run / "config.toml").read_text()
        done = command("train", "--resume", run, "--data", "elsewhere", "--epochs", "3", "--json")
        assert done.code == 0, done.err
        text = (run / "config.toml").read_text()
        assert f'source = "{home / "elsewhere"}"' in text
        assert 'source_from_run = "../../elsewhere"' in text
        assert command("evaluate", run, "--json").code == 0
    finally:
        shutil.move(home / "elsewhere", home / "photos")
    assert "--data is for --resume" in command("train", "photos", "--data", "photos").err


def test_a_thin_image_does_not_fill_the_page(tmp_path):
    for label, size in (("a", (1, 2000)), ("b", (40, 30))):
        (tmp_path / label).mkdir()
        for number in range(4):
            Image.new("RGB", size, (40 * number, 0, 0)).save(tmp_path / label / f"{number}.png")
    evidence = collect(open_data(str(tmp_path), DataConfig(test_fraction=0)))
    assert {small_image(evidence, index).shape for index in range(8)} == {(160, 160, 3), (30, 40, 3)}


def test_the_page_of_data_check_and_its_actions(home, command, tmp_path):
    dirty = shutil.copytree(home / "photos", tmp_path / "dirty")
    shutil.copy(dirty / "a" / "00.png", dirty / "b" / "copy.png")
    (dirty / "a" / "broken.png").write_bytes(b"no image")
    page = tmp_path / "out" / "check.html"
    done = command("data", "check", dirty, "--report", page, "--language", "ko", "--json")
    assert done.code == 1
    assert json.loads(done.out)["page"] == str(page)
    html = page.read_text()
    assert 'lang="ko"' in html
    assert 'src="http' not in html
    for section in ("conflict", "unreadable", "class-sizes", "image-sizes", "aspect-ratios", "brightness"):
        assert f'<section id="{section}">' in html
    rows = list(csv.DictReader(page.with_suffix(".csv").open()))
    assert {(row["path"], row["kind"]) for row in rows if row["action"] == "exclude"} >= {
        ("a/broken.png", "broken"),
        ("a/00.png", "conflict"),
        ("b/copy.png", "conflict"),
    }
    trained = command(
        "train", dirty, "--exclude", page.with_suffix(".csv"), "--out", tmp_path / "r", *OPTIONS
    )
    assert trained.code == 0, trained.err
    assert "are left out" in trained.err
    parts = {row["path"]: row["part"] for row in csv.DictReader((tmp_path / "r" / "split.csv").open())}
    assert parts["b/copy.png"] == parts["a/broken.png"] == "excluded"
    assert command("doctor", tmp_path / "r").out.count("new since") == 0
    for words, sentence in (
        (("--report", "x.txt"), "end it in .html"),
        (("--language", "ko"), "add --report"),
        (("--report", "x.html", "--task", "segmentation"), "not for --task segmentation"),
    ):
        wrong = command("data", "check", dirty, *words)
        assert wrong.code == 2
        assert sentence in wrong.err
