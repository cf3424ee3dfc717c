"""The slow tests in turns: each is in exactly one, and the turns take about the same time."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from shards import PART, SECONDS, TURN, measured, parts, selected, shares, turns

ROOT = Path(__file__).parents[1]
KNOWN = {"a": 30.0, "b": 3 * PART, "c": 200.0, "d": 90.0}
TESTS = ["a"] * 4 + ["b"] * 7 + ["c"] * 2 + ["d"]


@pytest.mark.parametrize("count", [1, 2, 3, 9])
def test_every_test_is_in_exactly_one_turn(count: int) -> None:
    turns = [selected(f"{number}/{count}", TESTS, KNOWN) for number in range(count)]
    assert [sum(chosen) for chosen in zip(*turns, strict=True)] == [1] * len(TESTS)
    assert selected(f"{count}/{count}", TESTS, KNOWN) == turns[0]  # the numbers of commits go on


def test_a_file_that_was_not_measured_is_in_no_turn() -> None:
    turns = [selected(f"{number}/2", ["a", "new", "d"], KNOWN) for number in range(2)]
    assert [sum(chosen) for chosen in zip(*turns, strict=True)] == [1, 0, 1]


def test_turns_take_about_the_same_time() -> None:
    seconds = parts({file: TESTS.count(file) for file in TESTS}, KNOWN)
    times = [sum(seconds[part] for part in share) for share in shares(seconds, 3)]
    assert max(times) - min(times) <= PART
    assert max(seconds.values()) <= PART


def test_there_are_as_many_turns_as_keep_each_short() -> None:
    assert turns({"a": 30.0}) == 1
    assert turns({"a": 2 * TURN, "b": 1.0}) == 2


def test_what_a_run_took_replaces_what_was_known_unless_it_failed() -> None:
    reports = [
        SimpleNamespace(nodeid="a::one", duration=1.25, failed=False),
        SimpleNamespace(nodeid="a::two", duration=2.5, failed=False),
        SimpleNamespace(nodeid="b::one", duration=5.0, failed=True),
    ]
    assert measured(reports, {"a": 30.0, "b": 1.0}) == {"a": 3.8, "b": 1.0}


def test_known_times_are_of_files_that_exist() -> None:
    known = json.loads(SECONDS.read_text("utf-8"))
    assert list(known) == sorted(known)
    assert not [file for file in known if not (ROOT / file).is_file()]
