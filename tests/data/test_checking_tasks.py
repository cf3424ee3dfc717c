"""`vitreous data check --task`: images with texts, images with masks."""

import json
import shutil

import numpy as np
import pytest
from PIL import Image

from vitreous.addons.segmentation.checking import check_masks
from vitreous.cli import run


def kinds(report):
    return {finding.kind: finding for finding in report.findings}


@pytest.fixture
def pages(tmp_path, make_smooth):
    """Twelve images with masks of two classes, and a name for each."""
    for name in ("images", "masks"):
        (tmp_path / name).mkdir()
    for number in range(12):
        make_smooth(number, 20, 24).save(tmp_path / "images" / f"{number}.png")
        mask = np.zeros((20, 24), dtype=np.uint8)
        mask[number % 7 : 12, 3 : 4 + number] = 1
        Image.fromarray(mask).save(tmp_path / "masks" / f"{number}.png")
    (tmp_path / "classes.txt").write_text("paper\nink\n")
    return tmp_path


def test_good_masks_have_no_finding(pages):
    report = check_masks(str(pages), workers=2)
    assert sum(report.images.values()) == 12
    assert report.images["test"] >= 1
    assert report.classes == {"paper": 12, "ink": 12}
    assert report.findings == ()


def test_what_training_would_refuse_is_listed_whole(pages):
    masks = pages / "masks"
    for number, change in ((0, lambda m: m.resize((12, 10))), (1, lambda m: m.convert("RGB"))):
        with Image.open(masks / f"{number}.png") as mask:
            changed = change(mask)
        changed.save(masks / f"{number}.png")
    Image.fromarray(np.full((20, 24), 9, dtype=np.uint8)).save(masks / "2.png")
    (masks / "3.png").unlink()
    (pages / "images" / "4.png").write_bytes(b"")
    shutil.copy(masks / "5.png", masks / "alone.png")
    findings = kinds(check_masks(str(pages), workers=2))
    said = findings["wrong mask"].images
    assert len(said) == 3
    assert any("0.png is 10x12, but the image is 20x24" in each for each in said)
    assert any("1.png has colors" in each for each in said)
    assert any("2.png has the value 9" in each for each in said)
    assert findings["without mask"].images == (str(pages / "images" / "3.png"),)
    assert findings["without image"].images == (str(masks / "alone.png"),)
    assert findings["broken"].images[0]["path"] == str(pages / "images" / "4.png")


def test_masks_that_teach_nothing_or_contradict(pages):
    masks, images = pages / "masks", pages / "images"
    Image.fromarray(np.full((20, 24), 255, dtype=np.uint8)).save(masks / "0.png")
    shutil.copy(images / "1.png", images / "again.png")
    shutil.copy(masks / "2.png", masks / "again.png")
    (pages / "classes.txt").write_text("paper\nink\nstamp\n")
    findings = kinds(check_masks(str(pages), workers=2))
    assert findings["ignored"].found == 1
    assert findings["unseen"].images == ("stamp",)
    conflict = findings["conflict"]
    assert conflict.problem == "1 pair of identical images has different masks"
    assert set(conflict.images[0]) == {str(images / "1.png"), str(images / "again.png")}


def test_an_image_in_two_parts_leaks(pages):
    for part, numbers in (("train", range(8)), ("val", range(8, 12))):
        for name in ("images", "masks"):
            (pages / part / name).mkdir(parents=True)
            for number in numbers:
                shutil.move(pages / name / f"{number}.png", pages / part / name / f"{number}.png")
    for name in ("images", "masks"):
        shutil.copy(pages / "train" / name / "3.png", pages / "val" / name / "copy.png")
    leak = kinds(check_masks(str(pages), workers=2))["leak"]
    copies = str(pages / "train" / "images" / "3.png"), str(pages / "val" / "images" / "copy.png")
    assert leak.images == (copies,)


def test_images_and_masks_taken_for_classes(pages, capsys):
    assert run(["data", "check", str(pages), "--json"]) == 0
    first, *_ = json.loads(capsys.readouterr().out)["findings"]
    assert "--task segmentation" in first["fix"]
    assert run(["data", "check", str(pages), "--task", "segmentation"]) == 0
    assert "nothing is wrong with it" in capsys.readouterr().out
