"""The types that a user sees: typical code passes `mypy --strict`, without any plugin."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_typical_user_code_passes_mypy_strict(tmp_path: Path) -> None:
    cache = ROOT / ".mypy_cache" / "user_code"  # kept: without it mypy reads all of torch again
    done = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--strict", "--config-file=", "--follow-imports=silent"),
            *("--cache-dir", str(cache), str(Path(__file__).with_name("user_code.py"))),
        ],
        env={**os.environ, "MYPYPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_typical_user_code_passes_pyright_strict(tmp_path: Path) -> None:
    """basedpyright is pyright with its program in the package: nothing is downloaded when it runs."""
    pytest.importorskip("basedpyright", reason="the package basedpyright is not installed")
    settings = {"typeCheckingMode": "strict", "extraPaths": [str(ROOT / "src")]}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    code = tmp_path / "user_code.py"
    code.write_text(Path(__file__).with_name(code.name).read_text())
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
