"""What is written is there whole, or not at all."""

from pathlib import Path

import pytest

from vitreous.data.sources.folders import cache_file
from vitreous.errors import cache_folder
from vitreous.whole_files import folder_for, whole


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("old")
    with (
        pytest.raises(UnicodeEncodeError),
        whole(path) as beside,
        beside.open("w", encoding="ascii") as file,
    ):
        print("new", "né", file=file)
    assert [each.name for each in tmp_path.iterdir()] == ["a"]
    assert path.read_text() == "old"


def test_of_several_none_takes_its_name_before_all_are_complete(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    with whole(first) as one, whole(second) as other:
        one.write_text("1")
        other.write_text("2")
        assert not first.exists()
        assert not second.exists()
    assert (first.read_text(), second.read_text()) == ("1", "2")
    with pytest.raises(FileNotFoundError), whole(first) as one, whole(second):
        one.write_text("3")  # and nothing for the second
    assert first.read_text() == "1"
    assert len(list(tmp_path.iterdir())) == 2


def test_two_writers_of_one_file_do_not_write_into_each_other(tmp_path: Path) -> None:
    """Threads of one process, or processes of two containers, which have the same number."""
    path = tmp_path / "a"
    with whole(path) as one:
        one.write_text("1")
        with whole(path) as other:
            other.write_text("2")
        assert path.read_text() == "2"
    assert path.read_text() == "1"


def test_a_new_folder_that_another_process_removes_is_no_error(tmp_path: Path) -> None:
    with folder_for(tmp_path / "new" / "empty"):
        (tmp_path / "new" / "empty").rmdir()
    assert list(tmp_path.iterdir()) == []


def test_all_that_is_cached_is_in_one_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """So that `vitreous cache` shows and clears all of it: indexes of folders were in another one."""
    monkeypatch.delenv("VITREOUS_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "vitreous"
    assert cache_file(tmp_path, ()).is_relative_to(cache_folder())
    monkeypatch.setenv("VITREOUS_CACHE", str(tmp_path / "own"))
    assert cache_folder() == tmp_path / "own"
    assert cache_file(tmp_path, ()).is_relative_to(cache_folder())
