"""What doctor says first of runs that are broken on purpose; and nothing of good ones."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"


def program() -> ModuleType:
    with pytest.MonkeyPatch.context() as patched:  # it imports a module of its folder
        patched.syspath_prepend(str(FOLDER))
        return import_module("broken_runs")


BROKEN_RUNS = program()


# Of the time that a loader of 0.4 s takes, a fast machine waits for less than what is a finding.
CASES = [
    pytest.param(name, marks=pytest.mark.clock) if case.slow_loader else name
    for name, case in BROKEN_RUNS.CASES.items()
]


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_doctor_is_right(name: str, tmp_path: Path) -> None:
    row = BROKEN_RUNS.examined(name, tmp_path, seed=0)
    assert row["right"], row
