"""The index of a folder: packed, remembered when large, and never stale."""

import os

import numpy as np
import pytest

from vitreous.data.sources import folders
from vitreous.data.sources.folders import cache_file, index_images, path_array


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(folders, "LARGE", 10)  # so that its index is stored
    root = tmp_path / "photos"
    for name in ("a", "b"):
        (root / name / "deep").mkdir(parents=True)
        for index in range(6):
            (root / name / f"{index}.jpg").touch()
    settle(root)
    return root


def settle(root):
    for folder in [root / "a", root / "b", root / "a/deep", root / "b/deep"]:
        os.utime(folder, (0, 1_700_000_000))


def paths(index):
    return [os.fsdecode(path) for path in index.paths]


def test_a_large_folder_is_listed_once(root):
    first = index_images(root, ("a", "b"))
    assert paths(first) == [f"{name}/{index}.jpg" for name in "ab" for index in range(6)]
    assert cache_file(root, ("a", "b")).exists()
    (root / "a" / "new.jpg").touch()
    settle(root)  # the folder looks as it was
    assert paths(index_images(root, ("a", "b"))) == paths(first)


@pytest.mark.parametrize(
    "change",
    [
        lambda root: (root / "a" / "new.png").touch(),
        lambda root: (root / "b" / "3.jpg").unlink(),
        lambda root: (root / "b" / "3.jpg").rename(root / "b" / "4b.jpg"),
        lambda root: (root / "a" / "deep" / "x.jpg").touch(),
        lambda root: (root / "b" / "deep").rmdir(),
    ],
)
def test_a_change_is_noticed(root, change):
    before = paths(index_images(root, ("a", "b")))
    change(root)
    after = paths(index_images(root, ("a", "b")))
    on_disk = sorted(str(path.relative_to(root)) for path in root.rglob("*.*"))
    assert sorted(after) == on_disk
    assert len(before) == 12


def test_a_folder_that_is_being_written_is_not_remembered(root):
    (root / "a" / "7.jpg").touch()
    index_images(root, ("a", "b"))
    assert not cache_file(root, ("a", "b")).exists()


def test_a_broken_cache_is_no_harm(root):
    before = paths(index_images(root, ("a", "b")))
    cache_file(root, ("a", "b")).write_bytes(b"PK\x03\x04 broken")
    assert paths(index_images(root, ("a", "b"))) == before


def test_an_image_costs_few_bytes():
    paths = path_array(
        f"n{number // 1300:08}/n{number // 1300:08}_{number:06}.JPEG" for number in range(13_000)
    )
    assert paths.nbytes / len(paths) < 50
    assert os.fsdecode(paths[12_999]) == "n00000009/n00000009_012999.JPEG"


def test_names_of_any_bytes_survive():
    name = os.fsdecode(b"caf\xe9/\xff.jpg")
    paths = np.concatenate([path_array([name]), path_array([]), path_array(["ö.png", "x"])])
    assert [os.fsdecode(path) for path in paths] == [name, "ö.png", "x"]
