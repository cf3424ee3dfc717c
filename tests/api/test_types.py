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
    (tmp_path / CODE.name).write_text(CODE.read_text())
    assert pyright_errors(tmp_path, typeCheckingMode="strict", extraPaths=[str(ROOT / "src")]) == []


@pytest.mark.slow
def test_programs_and_notebooks_call_the_package_as_it_is(tmp_path: Path) -> None:
    """mypy reads no notebooks. Of pyright's rules those that see a call of what is gone: a name that a module
    does not have, a parameter that a function does not have. The rest of what it says is of others' types."""
    pytest.importorskip("basedpyright", reason="the package basedpyright is not installed")
    shown = [str(ROOT / folder) for folder in ("docs", "benchmarks", "examples")]
    (tmp_path / "gone.py").write_text(
        "import vitreous as vt\n\nvt.gone()\nvt.predict('model', 'x', gone=1)\n"
    )
    errors = pyright_errors(
        tmp_path,
        typeCheckingMode="off",
        reportAttributeAccessIssue="error",
        reportCallIssue="error",
        extraPaths=[str(ROOT / "src"), str(ROOT / "docs" / "extensions"), str(ROOT / "benchmarks")],
        include=[*shown, str(tmp_path)],
    )
    stale = [error for error in errors if "No parameter named" in error or 'of module "vitreous' in error]
    assert [Path(error.partition(":")[0]).name for error in stale] == ["gone.py"] * 2, stale


def pyright_errors(folder: Path, **settings: object) -> list[str]:
    """Return what pyright says is wrong, with the settings given, which are written into an empty folder."""
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [
        sys.executable,
        "-m",
        "basedpyright",
        "--outputjson",
        "--level",
        "error",
        "--pythonpath",
        sys.executable,
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    found = json.loads(done.stdout)
    assert found["summary"]["filesAnalyzed"] > 0
    return [f"{each['file']}: {each['message']}" for each in found["generalDiagnostics"]]
