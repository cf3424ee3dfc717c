"""No case of the golden data is forgotten."""

from __future__ import annotations

import json
from pathlib import Path

TESTS = Path(__file__).parents[1]


def test_every_case_is_named_by_a_test(golden_root: Path) -> None:
    cases = [case["folder"] for case in json.loads((golden_root / "index.json").read_text())["cases"]]
    assert len(cases) == 43
    modules = [path.read_text() for path in TESTS.rglob("test_*.py") if path != Path(__file__)]
    forgotten = [case for case in cases if not any(f'"{case}"' in text for text in modules)]
    assert not forgotten, f"no test names {forgotten}"


def test_the_copy_is_complete(golden_root: Path) -> None:
    """The data beside the tests, which are used where the shared ones are absent, are the same files."""
    copy = TESTS / "golden" / "data"
    for path in golden_root.rglob("*"):
        if path.is_file():
            assert path.read_bytes() == (copy / path.relative_to(golden_root)).read_bytes(), path.name
