"""The types that a user sees: typical code passes `mypy --strict` and pyright."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


CODE = Path(__file__).with_name("user_code.py")


def mypy(*options: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "MYPYPATH": str(ROOT / "src")}
    command = (sys.executable, "-m", "mypy", *options, str(CODE))
    return subprocess.run(command, env=environment, capture_output=True, text=True, cwd=ROOT)


@pytest.mark.slow
def test_typical_user_code_passes_the_projects_mypy() -> None:
    """It is strict, and `make lint` has left the cache: without it mypy reads all of torch."""
    done = mypy()
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_typical_user_code_passes_mypy_strict(tmp_path: Path) -> None:
    """As users run it: without the project's settings, and without pydantic's plugin."""
    done = mypy("--strict", "--config-file=", "--follow-imports=silent", "--cache-dir", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_typical_user_code_passes_pyright_strict(tmp_path: Path) -> None:
    """basedpyright is pyright with its program in the package: nothing is downloaded when it runs."""
    pytest.importorskip("basedpyright", reason="the package basedpyright is not installed")
    settings = {"typeCheckingMode": "strict", "extraPaths": [str(ROOT / "src")]}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    code = tmp_path / CODE.name
    code.write_text(CODE.read_text())
    command = [
        sys.executable,
        "-m",
        "basedpyright",
        "--level",
        "error",
        "--pythonpath",
        sys.executable,
        str(code),
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
