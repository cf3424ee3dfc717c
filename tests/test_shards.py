"""The slow tests in turns: each is in exactly one, and the turns take about the same time."""

import ast
import json
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from shards import LEFT_OUT, PART, SECONDS, TURN, measured, parts, selected, shares, turns

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


def test_the_makefile_and_the_nightly_run_have_as_many_turns_as_ci() -> None:
    count = turns(json.loads(SECONDS.read_text("utf-8")))
    assert f"SHARDS ?= {count}\n" in (ROOT / "Makefile").read_text("utf-8")
    nightly = (ROOT / ".github" / "workflows" / "nightly.yml").read_text("utf-8")
    numbers = ", ".join(f'"{number}"' for number in range(count))
    assert f"shard: [{numbers}, documents, rest]" in nightly
    assert f"SHARDS={count} " in nightly


def test_what_a_run_took_replaces_what_was_known_unless_it_failed() -> None:
    reports = [
        SimpleNamespace(nodeid="a::one", duration=1.25, failed=False),
        SimpleNamespace(nodeid="a::two", duration=2.5, failed=False),
        SimpleNamespace(nodeid="b::one", duration=5.0, failed=True),
    ]
    assert measured(reports, {"a": 30.0, "b": 1.0}) == {"a": 3.8, "b": 1.0}


def test_every_slow_file_is_in_a_turn_or_left_out_with_a_reason() -> None:
    known = json.loads(SECONDS.read_text("utf-8"))
    assert list(known) == sorted(known)
    assert not known.keys() & LEFT_OUT.keys()
    files = {path.relative_to(ROOT).as_posix(): path for path in (ROOT / "tests").rglob("test_*.py")}
    slow = {file for file, path in files.items() if has_slow_tests(path.read_text("utf-8"))}
    assert slow == known.keys() | LEFT_OUT.keys()


def test_a_test_that_needs_more_than_make_test_installs_is_slow() -> None:
    """Else it is skipped wherever the fast tests run alone, and no turn runs it."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    names = {re.split(r"[\[<>=]", each)[0] for extra in ("slow", "cpu") for each in extras[extra]} - {
        "vitreous"
    }
    more = {name.removesuffix("-py").replace("-", "_").lower() for name in names} | {"open_clip", "skimage"}
    hidden = []
    for path in (ROOT / "tests").rglob("test_*.py"):
        text = path.read_text("utf-8")
        if "importorskip" not in text:
            continue
        module = ast.parse(text)
        whole = any("pytestmark" in ast.dump(each) and "slow" in ast.dump(each) for each in module.body)
        for test in module.body:
            if not isinstance(test, ast.FunctionDef) or not test.name.startswith("test_"):
                continue
            slow = whole or any("slow" in ast.dump(each) for each in test.decorator_list)
            asked = re.findall(r"importorskip\('(\w+)", ast.unparse(test))
            if not slow and "browser" not in ast.dump(test.args) and more & set(asked):
                hidden.append(f"{path.relative_to(ROOT)}: {test.name}")
    assert hidden == []


def has_slow_tests(text: str) -> bool:
    """Whether a file has tests for the turns: slow, or with a browser, and of no peers and no clock."""
    if "slow" not in text and "browser" not in text:
        return False
    module = ast.parse(text)
    whole = [each for each in module.body if isinstance(each, ast.Assign) and "pytestmark" in ast.dump(each)]
    functions = {each.name: each for each in ast.walk(module) if isinstance(each, ast.FunctionDef)}

    def marks(nodes: Sequence[ast.AST]) -> set[str]:
        return {each.attr for node in nodes for each in ast.walk(node) if isinstance(each, ast.Attribute)}

    def opens_pages(function: ast.FunctionDef, above: frozenset[str] = frozenset()) -> bool:
        wanted = {each.arg for each in function.args.args} - above - {function.name}
        return "browser" in wanted or any(
            opens_pages(functions[each], above | wanted) for each in wanted & functions.keys()
        )

    tests = [each for name, each in functions.items() if name.startswith("test_")]
    given = [(marks([*each.decorator_list, *whole]), opens_pages(each)) for each in tests]
    return any(("slow" in found or opens) and not found & {"peers", "clock"} for found, opens in given)
