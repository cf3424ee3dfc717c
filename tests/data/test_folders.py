"""Folders of images: splits, order, and the sentences for what is wrong."""

from pathlib import Path

import numpy as np
import pytest

from vitreous.data.config import DataConfig, FolderForm, SplitByName
from vitreous.data.sources import open_data
from vitreous.errors import InputError


def names(images):
    return {
        Path(images.name(index)).relative_to(Path(images.name(index)).parents[1])
        for index in range(len(images))
    }


def test_class_folders_are_split_class_by_class(photos):
    splits = open_data(str(photos), DataConfig())
    assert splits.train.classes == ("cat", "dog")
    held_out = np.bincount(splits.test.targets.strata())
    assert (np.bincount(splits.train.targets.strata()) + held_out).tolist() == [10, 10]
    assert all(1 <= count <= 5 for count in held_out)
    assert not names(splits.train) & names(splits.test)
    assert splits.validation is None
    for index in range(len(splits.train)):
        assert splits.train.classes[splits.train.targets.strata()[index]] in splits.train.name(index)


def test_split_seed_draws_another_split_and_the_same_one_again(photos):
    first, again, other = (
        names(open_data(str(photos), DataConfig(split=SplitByName(seed=seed))).test) for seed in (0, 0, 1)
    )
    assert first == again
    assert first != other


def test_validation_is_carved_from_the_training_part(photos):
    plain = open_data(str(photos), DataConfig())
    carved = open_data(str(photos), DataConfig(validation_fraction=0.25))
    assert names(plain.test) == names(carved.test)
    assert names(carved.train) | names(carved.validation) == names(plain.train)
    assert set(carved.validation.targets.strata().tolist()) == {0, 1}


@pytest.mark.parametrize("held", ["val", "valid", "test"])
def test_a_single_held_out_folder_is_the_test_set(tmp_path, make, held):
    make(tmp_path / "train")
    make(tmp_path / held, count=3)
    splits = open_data(str(tmp_path), DataConfig())
    assert (len(splits.train), splits.validation, len(splits.test)) == (20, None, 6)


def test_val_and_test_folders_keep_their_parts(tmp_path, make):
    make(tmp_path / "train")
    make(tmp_path / "val", count=3)
    make(tmp_path / "test", count=4)
    splits = open_data(str(tmp_path), DataConfig())
    assert [len(part) for part in splits[:3]] == [20, 6, 8]


def test_nested_folders_count_and_hidden_ones_do_not(photos, make_jpeg):
    (photos / "cat" / "deep" / "er").mkdir(parents=True)
    (photos / "cat" / "deep" / "er" / "x.JPG").write_bytes(make_jpeg(5))
    (photos / ".thumbnails").mkdir()
    (photos / "cat" / ".hidden.jpg").write_bytes(b"")
    (photos / "cat" / "notes.txt").write_text("no image")
    splits = open_data(str(photos), DataConfig())
    assert len(splits.train) + len(splits.test) == 21
    assert splits.summary.classes == 2


def test_the_summary_tells_size_and_color(photos):
    summary = open_data(str(photos), DataConfig(test_fraction=0)).summary
    assert (summary.images, summary.classes) == (20, 2)
    assert (summary.height, summary.width, summary.channels) == (48, 64, 3)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda root: None, "no class folders"),
        (lambda root: (root / "cat").mkdir(), "cat holds no image"),
        (lambda root: [(root / name).mkdir() for name in ("cat", "dog")], "cat holds no image"),
    ],
)
def test_each_mistake_has_its_sentence(tmp_path, change, sentence):
    change(tmp_path)
    with pytest.raises(InputError, match=sentence):
        open_data(str(tmp_path), DataConfig())


def test_a_class_that_only_val_has_is_an_error(tmp_path, make):
    make(tmp_path / "train")
    make(tmp_path / "val", classes=("cat", "emu"))
    with pytest.raises(InputError, match="'emu' that train/ lacks"):
        open_data(str(tmp_path), DataConfig())


def test_an_unknown_form_lists_the_forms(tmp_path):
    with pytest.raises(InputError, match=r"there is no nothing: DATA is digits; a folder"):
        open_data("nothing", DataConfig())
    (tmp_path / "x.doc").write_text("")
    with pytest.raises(InputError, match="not a known kind of file"):
        open_data(str(tmp_path / "x.doc"), DataConfig())
    with pytest.raises(InputError, match="did you mean cifar10"):
        open_data("cifar-10:somewhere", DataConfig())


def kinds(source, **config):
    splits = open_data(str(source), DataConfig(**config))
    return {each.kind: each.sentence for each in splits.train.findings}


@pytest.mark.parametrize(
    "parts", [("Train", "TEST"), ("training", "testing"), ("train_set", "test-set"), ("TrainingData", "val")]
)
def test_parts_are_recognized_by_any_of_their_names(tmp_path, make, parts):
    make(tmp_path / parts[0])
    make(tmp_path / parts[1], count=3)
    splits = open_data(str(tmp_path), DataConfig())
    assert splits.train.classes == ("cat", "dog")
    assert (len(splits.train), splits.validation, len(splits.test)) == (20, None, 6)
    assert splits.test.key(0) == f"{parts[1]}/cat/0.jpg"


def test_folders_beside_the_parts_are_left_out_and_said(tmp_path, make):
    make(tmp_path / "Train")
    make(tmp_path / "Test", count=3)
    (tmp_path / "Docs" / "drafts").mkdir(parents=True)
    assert open_data(str(tmp_path), DataConfig()).train.classes == ("cat", "dog")
    assert kinds(tmp_path)["beside"].startswith(
        f"1 folder next to the split folders is left out (such as {tmp_path}"
    )


def test_images_in_no_class_folder_are_counted(photos, make_jpeg):
    for name in ("loose.jpg", "other.HEIC", ".hidden.jpg"):
        (photos / name).write_bytes(make_jpeg(5))
    assert kinds(photos)["loose"].startswith("2 images are not in a class folder and are left out")


def test_a_class_named_train_is_a_class(tmp_path, make):
    make(tmp_path, classes=("bus", "train"))
    assert open_data(str(tmp_path), DataConfig()).train.classes == ("bus", "train")


@pytest.mark.parametrize(
    ("parts", "sentence"),
    [
        (("train", "val", "valid_set"), "two folders for the same split, val/ and valid_set/"),
        (("train", "val", "eval"), "eval/ and val/: keep one; rename one to test/"),
        (("train", "val", "eval", "test"), "eval/ and val/: keep one$"),
        (("val", "Test"), "but no train/"),
        (("2023", "2024"), r"2023, 2024 all hold folders cat, dog: set data\.form\.nested=inner"),
    ],
)
def test_what_may_be_parts_is_asked_about(tmp_path, make, parts, sentence):
    for part in parts:
        make(tmp_path / part, count=3)
    with pytest.raises(InputError, match=sentence):
        open_data(str(tmp_path), DataConfig())


def test_folders_that_hold_mostly_the_same_ones_are_asked_about(tmp_path, make):
    make(tmp_path / "2023", classes=("cat", "dog"), count=3)
    make(tmp_path / "2024", classes=("cat", "dog", "emu"), count=3)
    with pytest.raises(InputError, match=r"all hold folders cat, dog: set data\.form\.nested=inner"):
        open_data(str(tmp_path), DataConfig())
    inner = open_data(str(tmp_path), DataConfig(form=FolderForm(nested="inner"), test_fraction=0)).train
    assert np.bincount(inner.targets.strata()).tolist() == [6, 6, 3]


def test_the_classes_of_nested_folders_are_as_asked(tmp_path, make):
    for part in ("2023", "2024"):
        make(tmp_path / part, count=3)
    inner = open_data(str(tmp_path), DataConfig(form=FolderForm(nested="inner"), test_fraction=0)).train
    assert inner.classes == ("cat", "dog")
    assert np.bincount(inner.targets.strata()).tolist() == [6, 6]
    assert all(inner.classes[inner.targets.strata()[index]] in inner.name(index) for index in range(12))
    assert open_data(str(tmp_path), DataConfig(form=FolderForm(nested="outer"))).train.classes == (
        "2023",
        "2024",
    )


def test_links_that_lead_back_are_not_followed(photos):
    (photos / "cat" / "self").symlink_to(".")
    (photos / "cat" / "all").symlink_to("..")
    (photos / "dog" / "knot").symlink_to("knot")
    splits = open_data(str(photos), DataConfig())
    assert len(splits.train) + len(splits.test) == 20
    assert kinds(photos)["loop"].startswith("2 links lead to a folder that contains them")


def test_what_is_left_out_is_one_sentence_each(photos, make_jpeg):
    (photos / "__MACOSX" / "cat").mkdir(parents=True)
    (photos / "emu").mkdir()
    (photos / "cat" / "._0.jpg").write_bytes(b"of a Mac")
    for name in ("a.HEIC", "b.heif", "c.jxl", "drawing.svg"):
        (photos / "cat" / name).write_bytes(b"an image of a phone")
    found = kinds(photos)
    assert found["other format"] == (
        "1 image is left out because its format cannot be read (.svg) "
        f"(such as {photos}/cat/drawing.svg): convert them to PNG or JPEG"
    )
    assert open_data(str(photos), DataConfig()).train.classes == ("cat", "dog")
    assert found["system"].startswith(
        f"1 operating-system folder is ignored (such as {photos}/__MACOSX): it can be removed"
    )
    assert found["hidden"].startswith(f"1 hidden image is ignored (such as {photos}/cat/._0.jpg)")
    assert found["empty"].startswith(
        f"1 class folder contains no images and is left out (such as {photos}/emu)"
    )
    assert found["format"] == (
        f"3 images are in formats that need an extra (.heic, .heif, .jxl) (such as {photos}/cat/a.HEIC): "
        "install support for them: pip install 'vitreous[heic,science]'"
    )


def test_a_folder_of_unreadable_formats_says_what_reads_them(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.heic").write_bytes(b"an image of a phone")
    with pytest.raises(
        InputError, match=r"a holds no image .*: 2 were skipped; pip install 'vitreous\[heic,science\]'"
    ):
        open_data(str(tmp_path), DataConfig())
