"""Splits by group and time, and images that a CSV excludes."""

import ast
import csv
import os
from itertools import chain
from pathlib import Path

import pytest
from PIL import ExifTags, Image

import vitreous as vt
from vitreous.data.config import DataConfig, SplitByName, SplitByTime
from vitreous.data.dataset import ImageFacts, named_parts
from vitreous.data.findings import data_notes, findings_of
from vitreous.data.held_out import read_split, write_split
from vitreous.data.sources import open_data
from vitreous.errors import InputError
from vitreous.tasks.images import data_config


def parts_of(source, **config):
    """The names of the images of each part."""
    splits = open_data(str(source), DataConfig(**config))
    parts = named_parts(*splits[:3])
    return {name: {images.key(i) for i in range(len(images))} for name, images in parts.items()}


def table(file, rows):
    with open(file, "w", newline="") as text:
        csv.writer(text).writerows(rows)
    return file


def test_groups_are_in_one_part(tmp_path, make):
    photos = make(tmp_path / "photos", count=12)
    rows = [
        [path.relative_to(tmp_path), path.parent.name, f"p{int(path.stem) // 3}"]
        for path in photos.glob("*/*")
    ]
    file = table(tmp_path / "m.csv", [["path", "label", "patient"], *rows])
    groups = {str(path): group for path, _, group in rows}
    parts = parts_of(file, split=SplitByName(group_by="patient"))
    assert parts["test"]
    assert not {groups[key] for key in parts["test"]} & {groups[key] for key in parts["train"]}


def test_a_way_to_split_excludes_the_others():
    settings = {"data": {"split": {"kind": "time", "group_by": "x"}}}
    with pytest.raises(InputError, match=r"data\.split\.group_by has no effect with data\.split\.kind=time"):
        data_config(settings)


def test_the_newest_images_are_held_out(tmp_path, make):
    photos = make(tmp_path / "photos", count=10)
    days = {path: int(path.stem) for path in photos.glob("*/*")}
    rows = [
        [path.relative_to(tmp_path), path.parent.name, f"2026-03-{day + 1:02}"] for path, day in days.items()
    ]
    file = table(tmp_path / "m.csv", [["path", "label", "Taken"], *rows])
    parts = parts_of(file, split=SplitByTime(time="taken"), validation_fraction=0.25)
    day_of = {name: {int(key.split("/")[-1][:-4]) for key in keys} for name, keys in parts.items()}
    assert day_of == {"train": set(range(6)), "validation": {6, 7}, "test": {8, 9}}
    table(file, [["path", "label", "taken"], *[[*row[:2], "monday"] for row in rows]])
    with pytest.raises(InputError, match=r"line 2 of .* has the time 'monday': write it as 2026-11-22"):
        parts_of(file, split=SplitByTime(time="taken"))
    table(file, [["path", "label", "taken"], *[[*row[:2], "7"] for row in rows]])
    with pytest.raises(InputError, match="all 20 images have the same time"):
        parts_of(file, split=SplitByTime(time="taken"))


def test_times_of_files_and_cameras(tmp_path, make):
    photos = make(tmp_path / "photos", count=10)
    for path in photos.glob("*/*"):
        os.utime(path, (0, 1e9 + 1000 * int(path.stem)))
    newest = {f"{kind}/{number}.jpg" for kind in ("cat", "dog") for number in (8, 9)}
    assert parts_of(photos, split=SplitByTime(time="file"))["test"] == newest
    with pytest.raises(InputError, match="0 of 20 images have a time in their EXIF data"):
        parts_of(photos, split=SplitByTime())
    with pytest.raises(InputError, match=r"data\.split\.time='day' is not a column"):
        parts_of(photos, split=SplitByTime(time="day"))
    for path in photos.glob("*/*"):
        image, exif = Image.open(path), Image.Exif()
        exif.get_ifd(ExifTags.IFD.Exif)[ExifTags.Base.DateTimeOriginal] = (
            f"20{30 - int(path.stem)}:01:02 03:04:05"
        )
        image.save(path, exif=exif)
    assert parts_of(photos, split=SplitByTime())["test"] == {
        f"{kind}/{number}.jpg" for kind in ("cat", "dog") for number in (0, 1)
    }
    write_split(
        tmp_path / "split.csv", named_parts(*open_data(str(photos), DataConfig(split=SplitByTime()))[:3])
    )
    (photos / "cat" / "new.jpg").write_bytes((photos / "cat" / "3.jpg").read_bytes() + b"0")
    recorded = {"file": str(tmp_path / "split.csv"), "new_images": True}
    config = {"split": SplitByTime(), "recorded": recorded}
    assert "cat/new.jpg" in parts_of(photos, **config)["test"]


def test_excluded_images_are_in_no_part_and_stay_out(tmp_path, make):
    photos = make(tmp_path / "photos", count=10)
    rows = [
        ["cat/1.jpg", "exclude"],
        ["cat/2.jpg", "keep"],
        [photos / "dog" / "3.jpg", "exclude"],
        ["gone", "exclude"],
    ]
    file = table(tmp_path / "findings.csv", [["path", "action"], *rows])
    splits = open_data(str(photos), DataConfig(split=SplitByName(exclude=str(file))))
    keys = set.union(*parts_of(photos, split=SplitByName(exclude=str(file))).values())
    assert keys == {f"{kind}/{number}.jpg" for kind in ("cat", "dog") for number in range(10)} - {
        "cat/1.jpg",
        "dog/3.jpg",
    }
    assert {each.kind: (each.found, each.images) for each in splits.train.findings} == {
        "excluded": (2, ()),
        "not excluded": (1, ("gone",)),
    }
    write_split(tmp_path / "split.csv", named_parts(*splits[:3]))
    assert {key for key, row in read_split(tmp_path / "split.csv").items() if row.part == "excluded"} == {
        "cat/1.jpg",
        "dog/3.jpg",
    }
    again = open_data(str(photos), DataConfig().with_split(tmp_path / "split.csv"))
    assert set.union(*parts_of(photos, recorded={"file": str(tmp_path / "split.csv")}).values()) == keys
    assert data_notes(findings_of(again)) == []


def test_exclusions_that_cannot_be(tmp_path, make):
    photos, file = make(tmp_path / "photos"), tmp_path / "findings.csv"
    with pytest.raises(InputError, match="pass a CSV file with a column path"):
        parts_of(photos, split=SplitByName(exclude=str(file)))
    table(file, [["name"], ["cat/0.jpg"]])
    with pytest.raises(InputError, match="has no column path"):
        parts_of(photos, split=SplitByName(exclude=str(file)))
    table(file, [["path"], ["elsewhere/0.jpg"]])
    with pytest.raises(InputError, match="none of the 1 images to exclude"):
        parts_of(photos, split=SplitByName(exclude=str(file)))
    table(file, [["path"], *[[str(path.relative_to(photos))] for path in photos.glob("*/*")]])
    with pytest.raises(InputError, match="excludes every training image"):
        parts_of(photos, split=SplitByName(exclude=str(file)))


def test_nothing_sets_what_an_image_dataset_knows():
    """Whatever opens images returns them with what it has learned; it never changes those of another part."""
    facts = {*ImageFacts.__annotations__, "hashes", "listed"} - {"times"}  # which other things have, too
    found = []
    for path in (Path(vt.__file__).parent).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            for each in chain.from_iterable(getattr(target, "elts", [target]) for target in targets):
                if isinstance(each, ast.Attribute) and each.attr in facts:
                    owner = ast.unparse(each.value)
                    found += [] if owner == "self" else [f"{path}:{each.lineno}: {owner}.{each.attr}"]
    assert found == []


def test_parts_of_a_source_do_not_share_what_is_learned_of_one(tmp_path, make):
    make(tmp_path / "train", count=6)
    make(tmp_path / "test", count=4)
    opened = open_data(str(tmp_path), DataConfig())
    changed = opened.train.with_(findings=(), value_range=((0.0, 9.0),))
    assert opened.train.value_range is None is opened.test.value_range
    assert changed.value_range == ((0.0, 9.0),)
    assert [each.known()[0] is opened.test.known()[0] for each in (changed, opened.train)] == [True, True]
    assert [opened.train.start, opened.test.start] == [0, len(opened.train)]
