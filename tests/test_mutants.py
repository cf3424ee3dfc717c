"""The program that changes core files to see whether tests notice it: what it changes, and a small sample."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"
PROGRAM = '''
def share(count: int, total: int, *, rounded: bool = True) -> float:
    """Return a share."""
    if count > total:
        raise ValueError(f"{count - 1} of {total}")
    print(count)
    generator = numpy_generator(3, "share", count)
    return min(count / total, 1.0)
'''


@pytest.fixture
def mutants(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(FOLDER))
    yield import_module("mutants")
    for name in ("mutants", "record"):
        sys.modules.pop(name, None)


def test_each_change_is_one_and_none_is_in_a_sentence_or_a_type(mutants: Any) -> None:
    found = {(each.before, each.after) for each in mutants.mutants_of("share.py", PROGRAM)}
    assert found == {
        ("if count > total:", "if count >= total:"),
        ("if count > total:", "if not count > total:"),
        ("print(count)", "pass"),
        ("generator = numpy_generator(3, 'share', count)", "generator = numpy_generator(4, 'share', count)"),
        ("generator = numpy_generator(3, 'share', count)", "generator = numpy_generator(3, 'share')"),
        ("return min(count / total, 1.0)", "return min(count * total, 1.0)"),
        ("return min(count / total, 1.0)", "return max(count / total, 1.0)"),
        ("return min(count / total, 1.0)", "return min(count / total, 2.0)"),
    }
    texts = {each.text() for each in mutants.mutants_of("share.py", PROGRAM)}
    assert len(texts) == len(found)
    assert all("rounded: bool=True" in text and "count - 1" in text for text in texts)


def test_what_is_drawn_are_changes_of_every_core_file(mutants: Any) -> None:
    drawn = mutants.drawn(mutants.COUNT)
    assert len(drawn) >= mutants.COUNT
    assert {each.file for each in drawn} == set(mutants.CORE)
    tests = FOLDER.parent / "tests"
    for tested in mutants.CORE.values():
        assert [name for name in (*tested.near, *tested.package) if not (tests / name).exists()] == []


def test_every_equivalent_change_is_one_of_the_code(mutants: Any) -> None:
    known = set[str]()
    for file in {name.partition(",")[0] for name in mutants.EQUIVALENT}:
        text = (mutants.ROOT / "src" / "vitreous" / file).read_text("utf-8")
        known |= {each.name for each in mutants.mutants_of(file, text)}
    assert mutants.EQUIVALENT.keys() - known == set()
    assert list(mutants.reported())


def test_of_the_changes_that_were_tried_the_tests_noticed_nineteen_of_twenty(mutants: Any) -> None:
    kept = json.loads((FOLDER / "results" / "mutants.json").read_text("utf-8"))
    assert kept["score"] == mutants.summary(kept["rows"])["score"] >= 0.95
    assert kept["killed"] + kept["survived"] >= mutants.COUNT


@pytest.mark.slow
def test_fast_tests_notice_the_changes_of_a_sample(tmp_path: Path) -> None:
    """One of twenty: those that were made when the tests were written, and those of the code as it is now."""
    out = tmp_path / "mutants.json"
    words = [sys.executable, str(FOLDER / "mutants.py"), "--every", "20", "--out", str(out)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    rows = json.loads(out.read_text("utf-8"))["rows"]
    assert len(rows) >= 8
    survived = [row["before"] + " -> " + row["after"] for row in rows if row["result"] == "survived"]
    assert len(survived) <= 0.05 * len(rows) + 1, survived
