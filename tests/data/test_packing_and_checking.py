"""Shards that train reads back, and reports that find what was planted."""

import json
import os
import resource
import shutil
import signal

import numpy as np
import pytest
import torch
from PIL import Image

import vitreous as vt
from vitreous.cli import run
from vitreous.data.checks import Action, collect, report_of
from vitreous.data.config import DataConfig, SplitByName
from vitreous.data.packing import Packing, pack
from vitreous.data.sources import open_data
from vitreous.data.transforms import evaluation_pixels
from vitreous.errors import InputError
from vitreous.models.preprocessing import Preprocessing, to_tensor
from vitreous.models.stored import BadImage

HEADER = ",".join(Action._fields)


def found(root):
    return {
        finding.kind: finding
        for finding in report_of(collect(open_data(str(root), DataConfig()), workers=2)).findings
    }


@pytest.fixture
def parts(tmp_path, make):
    make(tmp_path / "train", count=30)
    make(tmp_path / "val", classes=("cat", "dog"), count=2)
    for name in ("cat", "dog"):  # the maker repeats itself: others for val
        for index in range(2):
            shutil.move(tmp_path / "train" / name / f"{index}.jpg", tmp_path / "val" / name / f"{index}.jpg")
    return tmp_path


def test_a_clean_set_has_no_findings(parts):
    assert found(parts) == {}


def test_what_was_planted_is_found(parts, make_smooth, make_jpeg):
    train, val = parts / "train", parts / "val"
    shutil.copy(train / "cat" / "7.jpg", val / "cat" / "leaked.jpg")
    with Image.open(train / "dog" / "8.jpg") as image:
        image.resize((96, 72)).save(val / "dog" / "resized.jpg", quality=60)
    shutil.copy(train / "cat" / "9.jpg", train / "dog" / "mislabeled.jpg")
    (train / "cat" / "broken.jpg").write_bytes(b"")
    make_smooth(77, 6, 8).save(train / "cat" / "tiny.png")
    make_smooth(78, 48, 64).convert("L").save(train / "cat" / "gray.png")
    findings = found(parts)
    assert findings["leak"].images == ((str(train / "cat" / "7.jpg"), str(val / "cat" / "leaked.jpg")),)
    assert findings["near-leak"].images == ((str(train / "dog" / "8.jpg"), str(val / "dog" / "resized.jpg")),)
    assert findings["conflict"].images[0][1] == str(train / "dog" / "mislabeled.jpg")
    assert findings["broken"].found == 1
    assert findings["tiny"].images == (str(train / "cat" / "tiny.png"),)
    assert findings["gray"].images == (str(train / "cat" / "gray.png"),)


def test_imbalance_and_small_classes(tmp_path, make):
    make(tmp_path, classes=("many",), count=60)
    make(tmp_path, classes=("rare",), count=3)
    for index in range(3):
        (tmp_path / "many" / f"{index}.jpg").unlink()
    findings = found(tmp_path)
    assert findings["few"].images == ("rare: 3",)
    assert findings["imbalance"].found == 19
    assert "such as" not in findings["imbalance"].sentence  # its classes are named already


def test_an_empty_class_folder_is_one_finding_among_the_others(tmp_path, make, capsys):
    make(tmp_path, classes=("cat", "dog"), count=3)
    (tmp_path / "emu").mkdir()
    (tmp_path / "cat" / "broken.jpg").write_bytes(b"")
    assert run(["data", "check", str(tmp_path), "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    findings = {finding["kind"]: finding for finding in report["findings"]}
    assert findings["empty"]["images"] == [str(tmp_path / "emu")]
    assert findings["empty"]["severity"] == "warning"
    assert findings["broken"]["found"] == 1
    assert "imbalance" not in findings
    assert findings["few"]["images"] == ["cat: 3", "dog: 3"]  # and not the empty one again
    assert open_data(str(tmp_path), DataConfig()).train.classes == ("cat", "dog")


def test_the_table_beside_a_report_replaces_nothing_else(tmp_path, make, capsys):
    """labels.csv is the user's, DATA or not; the table of a report is written again."""
    make(tmp_path, count=3)
    labels = tmp_path / "labels.csv"
    lines = "".join(f"{name}/{index}.jpg,{name}\n" for name in ("cat", "dog") for index in range(3))
    for header, data in (("path,label", labels), ("path,label", tmp_path), (f"{HEADER},split", labels)):
        labels.write_text(f"{header}\n{lines}")
        assert run(["data", "check", str(data), "--report", str(tmp_path / "labels.html")]) == 2
        assert f"would replace {labels}" in capsys.readouterr().err
        assert labels.read_text() == f"{header}\n{lines}"
        assert not (tmp_path / "labels.html").exists()
    labels.write_text(f"path,label\n{lines}")
    for _ in range(2):
        run(["data", "check", str(labels), "--report", str(tmp_path / "report.html")])
        assert (tmp_path / "report.csv").read_text().startswith(HEADER)
        (tmp_path / "report.html").unlink()


def test_a_table_that_was_edited_is_not_replaced(tmp_path, make, capsys):
    make(tmp_path, count=3)
    command = ["data", "check", str(tmp_path), "--report", str(tmp_path / "r" / "report.html")]
    for _ in range(2):
        run(command)
        assert "would replace" not in capsys.readouterr().err
    table = tmp_path / "r" / "report.csv"
    table.write_text(edited := table.read_text() + "cat/0.jpg,exclude,mine,,,\n")
    assert run(command) == 2
    assert f"would replace {table}, which was edited after its report" in capsys.readouterr().err
    assert table.read_text() == edited


def test_no_data_and_names_that_are_not_utf8(tmp_path, make, capsys):
    assert run(["data", "check", ""]) == 2
    assert "is a variable not set?" in capsys.readouterr().err
    strange = tmp_path / os.fsdecode(b"\xff")
    make(strange, count=3)
    run(["doctor", str(strange), "--json"])
    assert json.loads(capsys.readouterr().out)["subject"] == f"{tmp_path}/\\xff"


def test_names_of_images_that_are_not_utf8_are_shown_and_excluded(tmp_path, make, make_jpeg, capsysbinary):
    """Escaped in the texts, JSON and the page; as they are in the table, for --exclude."""
    data = tmp_path / "data"
    make(data, count=3)
    (data / "cat" / os.fsdecode(b"caf\xe9.jpg")).write_bytes(make_jpeg(50))
    (data / "dog" / os.fsdecode(b"\xff.jpg")).write_bytes(make_jpeg(50))
    pair = "caf\\xe9.jpg", "\\xff.jpg"
    assert run(["data", "check", str(data)]) == 1
    shown = capsysbinary.readouterr().out.decode()
    assert f"{data}/cat/{pair[0]} = {data}/dog/{pair[1]}" in shown or f"{pair[1]} = {data}/cat" in shown
    page = tmp_path / "r.html"
    assert run(["data", "check", str(data), "--report", str(page), "--json"]) == 1
    names = json.loads(capsysbinary.readouterr().out)["findings"]
    assert any(sorted(map(os.path.basename, images)) == sorted(pair) for f in names for images in f["images"])
    assert all(name in page.read_text() for name in pair)
    listed = (tmp_path / "r.csv").read_text(encoding="utf-8", errors="surrogateescape")
    assert os.fsdecode(b"dog/\xff.jpg") in listed
    splits = open_data(str(data), DataConfig(split=SplitByName(exclude=str(tmp_path / "r.csv"))))
    assert len(splits.train) + len(splits.test) == 6
    run(["doctor", str(data), "--json"])
    capsysbinary.readouterr()
    run(["doctor", str(data)])
    capsysbinary.readouterr().out.decode()


def test_a_page_that_is_not_of_such_a_report_is_not_replaced(tmp_path, make, capsys):
    make(tmp_path, count=3)
    page = tmp_path / "index.html"
    command = ["data", "check", str(tmp_path), "--report", str(page)]
    page.write_text("<h1>mine</h1>")
    assert run(command) == 2
    assert f"would replace {page}, which is not such a report" in capsys.readouterr().err
    assert page.read_text() == "<h1>mine</h1>"
    assert not (tmp_path / "index.csv").exists()
    page.unlink()
    for _ in range(2):
        run(command)
        assert "would replace" not in capsys.readouterr().err
    page.unlink()
    page.mkdir()
    assert run(command) == 2
    assert "cannot write" in capsys.readouterr().err


def test_a_manifest_of_texts_is_told_from_classes(tmp_path, make):
    make(tmp_path)
    paths = [f"{name}/{index}.jpg" for name in ("cat", "dog") for index in range(10)]
    rows = [f"{path},text {number}\n" for number, path in enumerate(paths)]
    (tmp_path / "m.csv").write_text("path,label\n" + "".join(rows))
    findings = found(tmp_path / "m.csv")
    assert "if the labels are free text, they are not classes" in findings["own labels"].fix
    assert "few" not in findings
    rows = [f"{path},{path[:3]}\n" for path in paths[5:15]]
    (tmp_path / "m.csv").write_text("path,label\n" + "".join(rows))
    findings = found(tmp_path / "m.csv")
    assert findings["few"].fix == "add images, or merge classes"
    assert "own labels" not in findings


def test_a_wrong_label_among_alike_images_is_suspect(tmp_path):
    generator = np.random.default_rng(0)
    for name, colors in (("red", (200, 30)), ("blue", (30, 200))):
        (tmp_path / name).mkdir()
        for index in range(20):
            base = np.tile(np.array([colors[0], 60, colors[1]]), (24, 24, 1))
            pixels = (base + generator.normal(0, 12, base.shape)).clip(0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(tmp_path / name / f"{index}.png")
    shutil.move(tmp_path / "red" / "3.png", tmp_path / "blue" / "wrong.png")
    assert found(tmp_path)["suspect-label"].images == (str(tmp_path / "blue" / "wrong.png"),)


def test_packed_images_keep_split_label_and_looks(photos, tmp_path):
    splits = open_data(str(photos), DataConfig())
    packed = pack(splits, tmp_path / "packed", Packing(size=24, per_shard=7, workers=2))
    assert (packed.images, packed.shards) == (20, 4)
    again = open_data(str(tmp_path / "packed"), DataConfig())
    assert again.train.classes == ("cat", "dog")
    assert np.array_equal(again.train.targets.strata(), splits.train.targets.strata())
    assert np.array_equal(again.test.targets.strata(), splits.test.targets.strata())
    for index in range(16):
        small = again.train.image(index)
        assert small.size == (32, 24)
        expected = np.asarray(splits.train.image(index).resize((32, 24), 3)).astype(int)
        assert np.abs(np.asarray(small) - expected).mean() < 5  # 4:2:0 costs most where colors are gaudy


def test_small_jpegs_are_packed_as_they_are(photos, tmp_path):
    splits = open_data(str(photos), DataConfig())
    pack(splits, tmp_path / "packed", Packing(size=256, workers=1))
    again = open_data(str(tmp_path / "packed"), DataConfig())
    packed = [again.test.encoded(index) for index in range(len(again.test))]
    assert packed == [splits.test.encoded(index) for index in range(len(splits.test))]


def test_raw_shards_hold_the_pixels_themselves(photos, tmp_path):
    splits = open_data(str(photos), DataConfig())
    pack(splits, tmp_path / "packed", Packing(size=24, raw=True, workers=2))
    again = open_data(str(tmp_path / "packed"), DataConfig())
    preprocessing = Preprocessing(size=(16, 16), crop_fraction=0.8)
    for index in range(16):
        small = splits.train.opened(index, 3).shrunk(24)
        raw = again.train.opened(index, 3)
        assert raw.size == (24, 32)
        assert torch.equal(raw.pixels(), small)
        assert torch.equal(to_tensor(raw.upright()), small)  # as Pillow reads it
        exact = to_tensor(preprocessing.image(raw.upright())).int()
        assert (evaluation_pixels(raw, preprocessing).int() - exact).abs().max() <= 1
        gray = again.train.opened(index, 1)
        assert torch.equal(gray.pixels(), to_tensor(gray.image.convert("L")))


def test_a_torn_raw_image_is_bad(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for index in range(5):
            Image.new("RGB", (8, 6)).save(tmp_path / name / f"{index}.ppm")
    whole = (tmp_path / "a" / "0.ppm").read_bytes()
    (tmp_path / "a" / "0.ppm").write_bytes(whole[:-1])
    images = open_data(str(tmp_path), DataConfig(test_fraction=0)).train
    with pytest.raises(BadImage, match="truncated"):
        images.opened(0, 3).pixels()
    assert images.opened(1, 3).pixels().shape == (3, 6, 8)


def test_packing_twice_gives_the_same_bytes(photos, tmp_path):
    splits = open_data(str(photos), DataConfig())
    for name in ("one", "two"):
        pack(splits, tmp_path / name, Packing(size=24, workers=2))
    one, two = ((tmp_path / name / "train-00000.tar").read_bytes() for name in ("one", "two"))
    assert one == two


def test_nothing_is_written_over(photos, tmp_path):
    with pytest.raises(InputError, match="already exists"):
        pack(open_data(str(photos), DataConfig()), photos, Packing())


def test_an_image_that_cannot_be_read_is_in_the_exit_code(photos, tmp_path, capsys):
    """Of data pack and evaluate, as of predict and embed."""
    (photos / "cat" / "3.jpg").write_bytes(b"broken")
    assert run(["data", "pack", str(photos), str(tmp_path / "packed"), "--json"]) == 1
    assert len(json.loads(capsys.readouterr().out)["failed"]) == 1
    model = vt.create("ViT-Ti/16", image_size=16, depth=1, width=16, heads=2, num_classes=2)
    model.labels = ("cat", "dog")
    vt.save(model, tmp_path / "model")
    data = str(photos), "--set", "data.test_fraction=0.9"
    for more in ([], ["--json"]):
        assert run(["evaluate", str(tmp_path / "model"), *data, *more]) == 1
        assert "3.jpg: " in capsys.readouterr().err
    (photos / "cat" / "3.jpg").unlink()
    assert run(["evaluate", str(tmp_path / "model"), *data]) == 0
    assert run(["data", "pack", str(photos), str(tmp_path / "again")]) == 0


@pytest.mark.parametrize("there", [False, True])
def test_a_packing_that_fails_leaves_nothing(photos, tmp_path, capsys, there):
    """Half a packing would be taken for a whole one, or be in the way of the next."""
    (photos / "dog" / "9.jpg").write_bytes(b"no image")
    packed = tmp_path / "packed"
    if there:
        packed.mkdir()
    assert run(["data", "pack", str(photos), str(packed), "--per-shard", "3", "--strict"]) == 2
    assert "cannot be read" in capsys.readouterr().err
    assert packed.exists() == there
    assert not list(tmp_path.rglob("*.tar"))
    assert not list(tmp_path.rglob("*.partial"))
    assert run(["data", "pack", str(photos), str(packed)]) == 1


def test_a_folder_that_cannot_be_packed_into_is_one_sentence(photos, capsys):
    assert run(["data", "pack", str(photos), "/proc/packed"]) == 2
    assert capsys.readouterr().err == (
        "vitreous: cannot write /proc/packed: No such file or directory; free up space, or name another "
        "folder\n"
    )


def test_a_full_disk_ends_a_packing_in_one_sentence(photos, tmp_path):
    """A limit on the size of files stands for the disk."""
    splits = open_data(str(photos), DataConfig())
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(InputError, match=r"^cannot write .*packed: File too large; free up space"):
            pack(splits, tmp_path / "all" / "packed", Packing(workers=1))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        signal.signal(signal.SIGXFSZ, before)
    assert not (tmp_path / "all").exists()


@pytest.mark.parametrize("arguments", [["check", "{photos}"], ["pack", "{photos}", "{packed}"]])
def test_fewer_workers_than_none_are_refused(photos, tmp_path, capsys, arguments):
    told = [each.format(photos=photos, packed=tmp_path / "packed") for each in arguments]
    assert run(["data", *told, "--workers", "-1"]) == 2
    assert capsys.readouterr().err.startswith("vitreous: --workers -1 is too low: use 0 or more")
    assert not (tmp_path / "packed").exists()


def test_the_commands(photos, tmp_path, capsys):
    (photos / "cat" / "0.jpg").write_bytes(b"")
    assert run(["data", "pack", str(photos), str(tmp_path / "packed"), "--size", "24", "--json"]) == 1
    packed = json.loads(capsys.readouterr().out)
    assert packed["images"] == 19
    assert packed["failed"][0]["path"].endswith("cat/0.jpg")
    assert run(["data", "check", str(photos), "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["findings"][0]["kind"] == "broken"
    assert run(["data", "pack", str(photos), str(tmp_path / "raw"), "--raw", "--quality", "80"]) == 2
    assert "--raw writes no JPEGs" in capsys.readouterr().err
    assert run(["data", "pack", str(photos), str(tmp_path / "raw"), "--raw", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["bytes"] > packed["bytes"]
    assert run(["data", "check", str(photos)]) == 1
    assert "error: 1 file cannot be read" in capsys.readouterr().out
    assert run(["data", "pack", str(photos), str(tmp_path / "packed")]) == 2
    assert run(["data", "check", str(tmp_path / "nothing")]) == 2
    assert run(["data", "chek", "x"]) == 2


def test_several_and_soft_labels_survive_packing(tmp_path, make):
    make(tmp_path / "photos", count=4)
    labels = {"cat/0.jpg": "cat|animal", "cat/1.jpg": "cat:0.7|dog:0.1", "dog/0.jpg": "", "dog/1.jpg": "dog"}
    lines = "".join(f"photos/{path},{label}\n" for path, label in labels.items())
    (tmp_path / "list.csv").write_text(f"path,label\n{lines}")
    source = open_data(str(tmp_path / "list.csv"), DataConfig(test_fraction=0))
    packed = pack(source, tmp_path / "packed", Packing(size=32, workers=2))
    assert packed.images == 4
    again = open_data(str(tmp_path / "packed"), DataConfig(test_fraction=0))
    assert again.train.classes == source.train.classes == ("animal", "cat", "dog")
    assert np.array_equal(again.train.targets.tensor(), source.train.targets.tensor())
    assert again.train.targets.matrix.dtype == np.float32
    assert again.summary.multi_label
