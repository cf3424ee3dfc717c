"""The examples run as they are: programs, and the code cells of notebooks one after the other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples"
NEEDED = {
    "hugging_face_trainer": ("transformers", "accelerate"),
    "timm_transforms": ("timm", "torchvision"),
}


@pytest.mark.parametrize("example", sorted(FOLDER.glob("*.py")), ids=lambda path: path.stem)
def test_example_runs_and_says_something(example: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(example)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


NOTEBOOKS = [
    pytest.param(path, id=path.stem, marks=[pytest.mark.slow] if path.stem in NEEDED else [])
    for path in sorted(FOLDER.glob("*.ipynb"))
]


@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_the_cells_of_a_notebook_run(notebook: Path, tmp_path: Path) -> None:
    if missing := [name for name in NEEDED.get(notebook.stem, ()) if find_spec(name) is None]:
        pytest.skip(f"the package {missing[0]} is not installed")
    content = json.loads(notebook.read_text(encoding="utf-8"))
    assert content["nbformat"] == 4
    cells = [cell for cell in content["cells"] if cell["cell_type"] == "code"]
    assert all(not cell["outputs"] for cell in cells), "notebooks are stored without their outputs"
    program = "\n\n".join("".join(cell["source"]) for cell in cells)
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "VITREOUS_CACHE": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
