"""The lessons as a stranger runs them: with what their first cell installs, and nothing else."""

from __future__ import annotations

import json
import re
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from packaging.requirements import Requirement

from environments import environment, extras_in, kernel

DOCS = Path(__file__).parents[2] / "docs"
LESSONS = sorted(path.stem for path in (DOCS / "en" / "learn").glob("*.ipynb"))
LANGUAGES = ("en", "ko")
VERSION = tomllib.loads((DOCS.parent / "pyproject.toml").read_text())["project"]["version"]


def lessons_module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(DOCS))
    monkeypatch.delitem(sys.modules, "lessons", raising=False)
    import lessons

    return lessons


def first_cell(lesson: str, language: str) -> str:
    """Return the cell that installs vitreous where it is missing."""
    notebook = json.loads((DOCS / language / "learn" / f"{lesson}.ipynb").read_text(encoding="utf-8"))
    return next("".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code")


@pytest.mark.parametrize("lesson", LESSONS)
def test_both_languages_of_a_lesson_install_the_same(lesson: str) -> None:
    english, korean = (extras_in(first_cell(lesson, language)) for language in LANGUAGES)
    assert "train" in english
    assert english == korean


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("lesson", LESSONS)
def test_a_lesson_installs_the_version_that_it_was_written_for(
    lesson: str, language: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In Colab a later version is installed as well as an earlier one; `lessons.py --pin` writes it."""
    requirement = re.search(r'%pip install -q "([^"]+)"', first_cell(lesson, language))
    assert requirement
    assert str(Requirement(requirement[1]).specifier) == f"=={VERSION}"
    stored = (DOCS / language / "learn" / f"{lesson}.ipynb").read_text(encoding="utf-8")
    lessons = lessons_module(monkeypatch)
    assert lessons.pinned(stored, VERSION) == stored
    assert '==9.8.7\\"' in lessons.pinned(stored, "9.8.7")


@pytest.mark.parametrize("path", sorted(DOCS.parent.glob("examples/*.ipynb")), ids=lambda path: path.stem)
def test_an_example_installs_the_version_that_it_was_written_for(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a lesson does, in its first cell of code."""
    stored = path.read_text(encoding="utf-8")
    cell = next(each for each in json.loads(stored)["cells"] if each["cell_type"] == "code")
    (requirement,) = re.findall(r'%pip install -q "([^"]+)"', "".join(cell["source"]))
    assert Requirement(requirement).extras == {"train"}
    assert str(Requirement(requirement).specifier) == f"=={VERSION}"
    assert '==9.8.7\\"' in lessons_module(monkeypatch).pinned(stored, "9.8.7")


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Jupyter kernels, each with the extras in its name: those that a first cell of a lesson installs."""
    pytest.importorskip("nbclient", reason="nbclient: make docs installs it")
    folder = tmp_path_factory.mktemp("jupyter")
    for extras in {frozenset(extras_in(first_cell(lesson, "en"))) for lesson in LESSONS}:
        name = "-".join(sorted(extras))
        kernel(folder, environment(folder / "environments" / name, extras), name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_PATH", str(folder))
        patch.delenv("PYTHONPATH", raising=False)
        yield


@pytest.mark.slow
@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("lesson", LESSONS)
def test_a_lesson_prints_today_what_it_printed(
    lesson: str, language: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a plain Jupyter kernel, from its first cell to its last."""
    lessons = lessons_module(monkeypatch)
    path = DOCS / language / "learn" / f"{lesson}.ipynb"
    extras = extras_in(first_cell(lesson, language))
    stored, today = lessons.read(path), lessons.executed(path, "-".join(sorted(extras)))
    for before, now in zip(lessons.code_cells(stored), lessons.code_cells(today), strict=True):
        assert lessons.printed(now) == lessons.printed(before), "".join(now["source"])
