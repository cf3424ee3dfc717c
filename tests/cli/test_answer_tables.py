"""`vitreous predict --out answers.csv`: answers as rows of a file."""

import csv
import json
import os

import numpy as np
import pytest
import torch
from PIL import Image

import vitreous as vt
from vitreous.cli import run
from vitreous.errors import InputError


@pytest.fixture(scope="module")
def several():
    """A model that may give an image several of three labels."""
    config = vt.ViTConfig(image_size=16, patch_size=8, width=8, depth=1, heads=2, mlp_dim=8, num_classes=3)
    model = vt.ViT(config, labels=["cat", "dog", "owl"], task="multilabel")
    with torch.no_grad():
        model.head.bias.copy_(torch.tensor([4.0, 0.2, -4.0]))
    return model.eval()


@pytest.fixture
def photos(tmp_path):
    """Five images, one of them with a line break in its name; and one that is torn."""
    rng = np.random.default_rng(0)
    for name in ("a", "b", "c", "d", "e\nf"):
        Image.fromarray(rng.integers(0, 255, (20, 20, 3), dtype=np.uint8)).save(tmp_path / f"{name}.png")
    (tmp_path / "torn.png").write_bytes((tmp_path / "a.png").read_bytes()[:60])
    return tmp_path


def rows_of(path):
    if path.suffix == ".csv":
        with path.open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    return parquet.read_table(path).to_pylist()


def test_names_that_are_not_utf_8(several, photos, tmp_path, capsys):
    """They are text with their bytes written out, in every answer and in what could not be read."""
    for name, source in ((b"\xff.png", "a.png"), (b"\xfe.png", "torn.png")):
        (photos / os.fsdecode(name)).write_bytes((photos / source).read_bytes())
    vt.save(several, tmp_path / "model")
    good, bad = f"{photos}/\\xff.png", f"{photos}/\\xfe.png"
    asked = [str(tmp_path / "model"), str(photos)]
    assert run(["predict", *asked, "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert good in [each["path"] for each in found["predictions"]]
    assert bad in [each["path"] for each in found["failed"]]
    for ending in ("csv", "jsonl", "parquet"):
        out = tmp_path / f"answers.{ending}"
        assert run(["predict", *asked, "--out", str(out)]) == 1
        assert good in [row["path"] for row in rows_of(out)]
    assert run(["embed", *asked, "--out", str(tmp_path / "features.parquet")]) == 1
    assert run(["embed", *asked, "--out", str(tmp_path / "folder")]) == 1
    assert good in vt.Predictor(several)({"path": [os.fsencode(photos).decode() + "/\udcff.png"]})["path"]


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_a_row_for_each_image(several, photos, tmp_path, ending):
    whole = vt.predict(several, photos, top=2, progress=False)
    out = tmp_path / f"answers.{ending}"
    found = vt.predict(several, photos, top=2, out=out, batch_size=2, progress=False)
    assert (len(found), list(found), found.out) == (6, [], out)
    assert [*found.failed] == [str(photos / "torn.png")]
    assert found.to_json()["count"] == 6
    rows = rows_of(out)
    assert [row["path"] for row in rows] == [each.path for each in whole]
    torn, answer = rows.pop(), whole[-1]
    assert torn["error"] == answer.error == found.failed[answer.path]
    assert not torn["label"]
    assert not torn["probability"]
    for row, each in zip(rows, whole[:-1], strict=True):
        assert not row.get("error")
        assert not row.get("damaged")
        second = row["top"][1] if ending == "jsonl" else row
        number = "" if ending == "jsonl" else "_2"
        assert row["label"] == each.label
        assert float(row["probability"]) == pytest.approx(each.probability, abs=1e-6)
        assert second[f"label{number}"] == each.top[1].label
        assert float(second[f"probability{number}"]) == pytest.approx(each.top[1].probability, abs=1e-6)
    assert [path.name for path in tmp_path.iterdir() if "answers" in path.name] == [out.name]


def test_a_threshold_names_all_labels_that_reach_it(several, photos, tmp_path):
    (answer,) = vt.predict(several, photos / "a.png", threshold=0.5, progress=False)
    assert answer.labels == ("cat", "dog")
    assert answer.to_json()["labels"] == ("cat", "dog")
    assert "cat | dog" in answer.line()
    (sure,) = vt.predict(several, photos / "a.png", threshold=1, progress=False)
    assert sure.labels == ()
    assert "  -  " in sure.line()
    vt.predict(several, photos / "a.png", threshold=0.5, out=tmp_path / "a.csv", progress=False)
    assert rows_of(tmp_path / "a.csv")[0]["labels"] == "cat|dog"
    assert "labels" not in vt.predict(several, photos / "a.png", progress=False)[0].to_json()


def test_each_label_may_have_a_threshold_of_its_own(several, photos, tmp_path, command):
    (answer,) = vt.predict(several, photos / "a.png", threshold={"cat": 0.99, "owl": 0.001}, progress=False)
    assert answer.labels == ("dog", "owl")
    with pytest.raises(InputError, match="'cow', which is not a label: did you mean 'owl'"):
        vt.predict(several, photos / "a.png", threshold={"cow": 0.1}, progress=False)
    with pytest.raises(InputError, match="no thresholds were chosen for ViT"):
        vt.predict(several, photos / "a.png", threshold="best", progress=False)
    folder = tmp_path / "several"
    vt.save(several, folder)
    own = ("--threshold", "cat=0.99", "--threshold", "owl=0.001", "--json")
    told = json.loads(command("predict", folder, photos / "a.png", *own).out)
    assert told["predictions"][0]["labels"] == ["dog", "owl"]
    for wrong in ("half", "cat=high", "0.5 cat=0.4"):
        options = [word for each in wrong.split() for word in ("--threshold", each)]
        refused = command("predict", folder, photos / "a.png", *options)
        assert refused.code == 2
        assert f"--threshold {wrong}: pass a number, LABEL=NUMBER" in refused.err


def test_nothing_is_left_of_answers_that_end_in_an_error(several, photos, tmp_path):
    out, calls = tmp_path / "answers.csv", []

    def stop(*_):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt

    hook = several.head.register_forward_pre_hook(stop)
    with pytest.raises(KeyboardInterrupt):
        vt.predict(several, photos, out=out, batch_size=2, progress=False)
    hook.remove()
    assert not [path for path in tmp_path.iterdir() if "answers" in path.name]


def test_what_cannot_be_had(several, photos, tmp_path):
    taken = tmp_path / "taken.csv"
    taken.write_text("mine")
    for options, sentence in (
        ({"out": tmp_path / "answers.txt"}, r"written as \.csv, \.jsonl or \.parquet"),
        ({"out": taken}, "is not overwritten"),
        ({"out": taken / "answers.csv"}, "taken.csv is a file, not a folder"),
        ({"threshold": 2}, "`threshold` 2 is not a probability"),
    ):
        with pytest.raises(InputError, match=sentence):
            vt.predict(several, photos, progress=False, **options)
    assert taken.read_text() == "mine"


def test_missing_folders_are_made_as_elsewhere(several, photos, tmp_path):
    deep = tmp_path / "new" / "deep" / "answers.csv"
    vt.predict(several, photos / "a.png", progress=False, out=deep)
    assert deep.read_text().count("\n") == 2
    with pytest.raises(InputError, match="no image"):
        vt.predict(several, tmp_path / "nothing", progress=False, out=tmp_path / "other" / "answers.csv")
    assert not (tmp_path / "other").exists()


def test_the_command(command, workplace):
    done = command("predict", "runs/mine", "photo.jpg", "--out", "answers.csv")
    assert done.code == 0, done.err
    assert "predictions for 1 images: answers.csv" in done.out
    assert rows_of(workplace / "answers.csv")[0]["path"] == "photo.jpg"
    told = json.loads(command("predict", "runs/mine", "photo.jpg", "--out", "a.jsonl", "--json").out)
    assert (told["count"], told["out"], told["failed"]) == (1, "a.jsonl", [])
    unsure = json.loads(command("predict", "runs/mine", "photo.jpg", "--threshold", "1", "--json").out)
    assert unsure["predictions"][0]["labels"] == []
    assert unsure["predictions"][0]["label"] in "0123456789"
