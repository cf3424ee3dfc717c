"""What is written is there whole, or not at all."""

from pathlib import Path

import pytest

from vitreous.checkpoints.whole_files import whole


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
