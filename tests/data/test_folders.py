"""Folders of images: splits, order, and the sentences for what is wrong."""

from pathlib import Path

import numpy as np
import pytest

from vitreous.data.config import DataConfig
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
    assert np.bincount(splits.train.targets).tolist() == [8, 8]
    assert np.bincount(splits.test.targets).tolist() == [2, 2]
    assert not names(splits.train) & names(splits.test)
    assert splits.validation is None
    for index in range(len(splits.train)):
        assert splits.train.classes[splits.train.targets[index]] in splits.train.name(index)


def test_split_seed_draws_another_split_and_the_same_one_again(photos):
    first, again, other = (
        names(open_data(str(photos), DataConfig(split_seed=seed)).test) for seed in (0, 0, 1)
    )
    assert first == again
    assert first != other


def test_validation_is_carved_from_the_training_part(photos):
    plain = open_data(str(photos), DataConfig())
    carved = open_data(str(photos), DataConfig(validation_fraction=0.25))
    assert names(plain.test) == names(carved.test)
    assert names(carved.train) | names(carved.validation) == names(plain.train)
    assert len(carved.validation) == 4


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
    summary = open_data(str(photos), DataConfig()).summary
    assert (summary.images, summary.classes, summary.smallest_class) == (16, 2, 8)
    assert (summary.height, summary.width, summary.channels) == (48, 64, 3)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda root: None, "no class folders"),
        (lambda root: (root / "cat").mkdir(), "single class, 'cat'"),
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
    with pytest.raises(InputError, match="no known form"):
        open_data(str(tmp_path / "x.doc"), DataConfig())
    with pytest.raises(InputError, match="did you mean cifar10"):
        open_data("cifar-10:somewhere", DataConfig())
