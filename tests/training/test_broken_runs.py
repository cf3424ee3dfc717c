"""What doctor says first of runs that are broken on purpose; and nothing of good ones."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

FILE = Path(__file__).parents[2] / "benchmarks" / "broken_runs.py"


def program() -> ModuleType:
    spec = importlib.util.spec_from_file_location("broken_runs", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


BROKEN_RUNS = program()


@pytest.mark.slow
@pytest.mark.parametrize("name", BROKEN_RUNS.CASES)
def test_doctor_is_right(name: str, tmp_path: Path) -> None:
    row = BROKEN_RUNS.examined(name, tmp_path, 24, seed=0)
    assert row["right"], row
