"""The examples run as they are: programs, and the code cells of notebooks one after the other."""

from __future__ import annotations

import json
import logging
import runpy
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples"
NEEDED = {
    "hugging_face_trainer": ("transformers", "accelerate"),
    "timm_transforms": ("timm", "torchvision"),
}


@pytest.fixture
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Work in a folder of its own, with a cache of its own, as a program without arguments."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VITREOUS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("sys.argv", ["example"])
    yield
    logging.disable(logging.NOTSET)


# Not that of a task, which is a command line with the task in it: tests/contracts/test_example.py runs it.
PROGRAMS = [path for path in sorted(FOLDER.glob("*.py")) if path.stem != "ordinal"]


@pytest.mark.parametrize("example", PROGRAMS, ids=lambda path: path.stem)
@pytest.mark.usefixtures("_place")
def test_example_runs_and_says_something(example: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(example), run_name="__main__")
    assert capsys.readouterr().out.strip()


NOTEBOOKS = [
    pytest.param(path, id=path.stem, marks=[pytest.mark.peers] if path.stem in NEEDED else [])
    for path in sorted(FOLDER.glob("*.ipynb"))
]


@pytest.mark.slow
@pytest.mark.parametrize("notebook", NOTEBOOKS)
@pytest.mark.usefixtures("_place")
def test_the_cells_of_a_notebook_run(notebook: Path) -> None:
    if missing := [name for name in NEEDED.get(notebook.stem, ()) if find_spec(name) is None]:
        pytest.skip(f"the package {missing[0]} is not installed")
    content = json.loads(notebook.read_text(encoding="utf-8"))
    assert content["nbformat"] == 4
    cells = [cell for cell in content["cells"] if cell["cell_type"] == "code"]
    assert all(not cell["outputs"] for cell in cells), "notebooks are stored without their outputs"
    cells = [cell for cell in cells if "remove-cell" not in cell["metadata"].get("tags", ())]  # installs
    program = "\n\n".join("".join(cell["source"]) for cell in cells)
    exec(compile(program, notebook.name, "exec"), {"__name__": "__main__"})
