"""A name is the same in every form of Unicode, and with the slashes of every system; names that only look the
same are a finding."""

import unicodedata
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import vitreous as vt
from vitreous.addons.text.task import absolute_sources
from vitreous.api.data_source import data_source
from vitreous.data.config import DataConfig
from vitreous.data.image_list import image_list
from vitreous.data.sources import open_data
from vitreous.evaluation.outputs import class_columns, class_labels
from vitreous.models.stored import bytes_of_file
from vitreous.outside import looks_of, same_name
from vitreous.training.initial_model import absolute_source

NAMES = ("고양이", "강아지", "café", "ガード")
FORMS = ("NFC", "NFD")


def in_form(form, name):
    return unicodedata.normalize(form, name)


def folder(root, form, names=NAMES[:2], count=6):
    for number, name in enumerate(names):
        place = root / in_form(form, name)
        place.mkdir(parents=True)
        for index in range(count):
            Image.new("RGB", (20, 20), (60 + 40 * number, 40 + index, 20)).save(
                place / in_form(form, f"그림{index}.png")
            )
    return root


@pytest.mark.parametrize("form", FORMS)
def test_classes_and_parts_are_the_same_in_both_forms(tmp_path, form):
    plain, other = folder(tmp_path / "a", "NFC", NAMES), folder(tmp_path / "b", form, NAMES)
    parts = [open_data(str(root), DataConfig()) for root in (plain, other)]
    assert parts[0].train.classes == parts[1].train.classes == tuple(sorted(NAMES))
    keys = [sorted(same_name(part.test.key(index)) for index in range(len(part.test))) for part in parts]
    assert keys[0] == keys[1]


def test_two_forms_of_one_name_are_one_class_and_said(tmp_path):
    folder(tmp_path, "NFC")
    folder(tmp_path, "NFD", NAMES[:1])
    report = vt.check_data(str(tmp_path))
    assert report.classes == {"강아지": 6, "고양이": 12}
    assert next(each.found for each in report.findings if each.kind == "forms") == 2


def test_a_test_part_of_the_other_form(tmp_path):
    folder(tmp_path / "train", "NFC")
    folder(tmp_path / "test", "NFD")
    splits = open_data(str(tmp_path), DataConfig())
    assert len(splits.test) == 12
    assert splits.test.classes == splits.train.classes


@pytest.mark.parametrize("pair", [("cat", "Cat"), ("cat", "cat "), ("red  car", "red car"), ("Ａ１", "a1")])
def test_names_that_look_the_same_are_a_finding(tmp_path, pair):
    folder(tmp_path, "NFC", (*pair, "dog"))
    (found,) = (each for each in vt.check_data(str(tmp_path)).findings if each.kind == "alike")
    assert sorted(found.images[0]) == sorted(pair)
    assert looks_of(pair[0]) == looks_of(pair[1])


@pytest.mark.parametrize("label", FORMS)
@pytest.mark.parametrize("model", FORMS)
def test_a_model_knows_its_classes_in_every_form(tmp_path, model, label):
    made = vt.create("ViT-Ti/16", num_classes=2, image_size=32, depth=1)
    made.labels = [in_form(model, name) for name in NAMES[:2]]
    images = open_data(str(folder(tmp_path, label)), DataConfig(test_fraction=0)).train
    classes = tuple(in_form(label, name) for name in images.classes)
    images.targets = replace(images.targets, classes=classes)
    assert class_columns(class_labels(made, images), images).tolist() == [1, 0]


@pytest.mark.parametrize("written", FORMS)
@pytest.mark.parametrize("stored", FORMS)
@pytest.mark.parametrize("slash", ["/", "\\"])
def test_a_manifest_finds_its_files(tmp_path, written, stored, slash):
    folder(tmp_path, stored)
    rows = [
        (in_form(written, f"{name}{slash}그림{index}.png"), name) for name in NAMES[:2] for index in range(6)
    ]
    table = "\n".join(["path,label", *(f"{path},{in_form(written, name)}" for path, name in rows)])
    (tmp_path / "m.csv").write_text(table, encoding="utf-8")
    images = open_data(str(tmp_path / "m.csv"), DataConfig(test_fraction=0)).train
    assert images.classes == ("강아지", "고양이")
    assert all(images.encoded(index) for index in range(12))
    assert all(images.digest(index) for index in range(12))


@pytest.mark.parametrize("typed", FORMS)
@pytest.mark.parametrize("stored", FORMS)
def test_a_typed_path_is_found(tmp_path, typed, stored):
    root = folder(tmp_path / in_form(stored, "사진 모음"), stored)
    path = Path(in_form(typed, str(root)))
    assert bytes_of_file(in_form(typed, str(root / "고양이" / "그림0.png")))
    found = image_list([path / in_form(typed, "고양이"), path / in_form(typed, "강아지/그림1.png")])
    assert (len(found), found.missing) == (7, {})
    assert len(open_data(str(path), DataConfig(test_fraction=0)).train) == 12


def test_a_path_that_is_not_there_stays_as_it_is(tmp_path):
    with pytest.raises(vt.InputError, match="no image found"):
        image_list(str(tmp_path / "없음.png"))
    with pytest.raises(vt.InputError, match="there is no"):
        open_data(str(tmp_path / "없음"), DataConfig())


def test_bytes_of_other_encodings_stay_apart():
    assert same_name("\udcb0\udcad") == "\udcb0\udcad"
    assert same_name(np.str_("e\u0301")) == "é"


def test_a_folder_with_the_name_of_a_dataset(tmp_path, monkeypatch, caplog):
    """The name means what comes with the package; with ./ or as a path it is the folder."""
    folder(tmp_path / "digits", "NFC")
    monkeypatch.chdir(tmp_path)
    assert open_data("digits", DataConfig()).train.classes == tuple("0123456789")
    assert "write ./digits for what is here" in caplog.text
    assert absolute_source("digits") == "digits"
    for spec in ("./digits", Path("digits"), data_source(Path("digits"))):
        assert len(open_data(spec, DataConfig()).train.classes) == 2
    assert absolute_source("./digits") == str(tmp_path / "digits")
    Path("numbers").touch()
    assert absolute_sources("numbers") == "numbers"
