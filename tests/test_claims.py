"""Every number that README, a page or the header of a recipe prints has a kept file that shows it."""

import json
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def claims(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks"))
    yield import_module("claims")
    sys.modules.pop("claims")


def test_every_printed_number_is_that_of_its_file(claims: Any) -> None:
    assert claims.faults() == []


def gate(claims: Any, tmp_path: Path, monkeypatch: Any, text: str, **kept: Any) -> list[str]:
    """What the gate says of a README with one sentence, which claims 81.5% of a file."""
    for page in ("README.md", "README.ko.md"):
        (tmp_path / page).write_text(text)
    facts = dict.fromkeys(claims.FACTS, "known")
    (tmp_path / "file.json").write_text(json.dumps({**facts, "rows": [{"set": "a", "right": 0.815}], **kept}))
    declared = tmp_path / "claims.toml"
    declared.write_text(
        '[contaminated]\n"file.json: leak" = "its test images are learned from"\n'
        '[given]\n"README.md" = ["95%"]\n'
        '[[claims]]\npage = "README.md"\nline = "model"\nfile = "file.json"\n'
        f'[claims.numbers]\n"81.5%" = "{"leak" if "leak" in kept else "rows/set=a/right"}"\n'
    )
    monkeypatch.setattr(claims, "ROOT", tmp_path)
    monkeypatch.setattr(claims, "RESULTS", tmp_path)
    monkeypatch.setattr(claims, "DECLARED", declared)
    claims.kept.cache_clear()
    found: list[str] = claims.faults()
    claims.kept.cache_clear()
    return found


@pytest.mark.parametrize(
    ("text", "kept", "fault"),
    [
        ("The model has 81.5% (95%).", {}, None),
        ("The model has 81.5% (95%), another 82.1%.", {}, "82.1: neither measured by a file nor given"),
        ("| the model | 81.5 | 95% |\n| another | 82.1 |", {}, "82.1: neither measured"),
        ("The model has 81.6% (95%).", {}, "no such line"),
        ("The model has 81.5% (95%).", {"rows": [{"set": "a", "right": 0.812}]}, "file.json has 81.2"),
        ("The model has 81.5% (95%).", {"rows": []}, "has no rows/set=a/right"),
        ("The model has 81.5% (95%).", {"commit": None}, "lacks commit"),
        ("The model has 81.5% (95%).", {"leak": 0.815}, "its test images are learned from"),
        ("The model has 81.5%.", {}, "given and not printed: 95"),
    ],
)
def test_a_number_without_a_file_that_shows_it_is_refused(
    text: str,
    kept: dict[str, Any],
    fault: str | None,
    claims: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = gate(claims, tmp_path, monkeypatch, text, **kept)
    assert any(fault in each for each in found) if fault else not found, found
