"""Every program of benchmarks/ starts: what it imports exists, and --help says what it measures."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"
# The rest is imported by these; call_paths.py takes no options and is run by test_structure.py.
PROGRAMS = [path for path in sorted(FOLDER.glob("*.py")) if "ArgumentParser(" in path.read_text("utf-8")]


@pytest.fixture
def _in_the_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Programs import modules of their folder; names such as `loader` are theirs alone."""
    monkeypatch.syspath_prepend(str(FOLDER))
    yield
    for path in FOLDER.glob("*.py"):
        sys.modules.pop(path.stem, None)


@pytest.mark.usefixtures("_in_the_folder")
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_a_benchmark_says_what_it_measures(
    program: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [str(program), "--help"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(program), run_name="__main__")
    assert ended.value.code == 0
    assert "usage:" in capsys.readouterr().out


def test_every_stored_result_is_explained() -> None:
    explained = (FOLDER / "results" / "README.md").read_text("utf-8")
    stored = {path.name for path in (FOLDER / "results").glob("*.json")}
    assert {name for name in stored if name not in explained} == set()
