"""The programs of docs/ hold: each can be imported, and the generated parts of pages are generated."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PROGRAMS = sorted(DOCS.glob("*.py"))
EXTENSIONS = sorted((DOCS / "extensions").glob("*.py"))


@pytest.fixture(autouse=True)
def _docs_on_the_path(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Programs import modules of their folders; names such as `build` are theirs alone."""
    for folder in (DOCS, DOCS / "extensions"):
        monkeypatch.syspath_prepend(str(folder))
    before = set(sys.modules)
    yield
    for path in (*PROGRAMS, *EXTENSIONS):
        if path.stem not in before:
            sys.modules.pop(path.stem, None)


def imported(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "playwright":
            pytest.skip("the package playwright is not installed")
        raise


@pytest.mark.parametrize("program", [*PROGRAMS, *EXTENSIONS], ids=lambda path: path.stem)
def test_a_program_of_the_documentation_can_be_imported(program: Path) -> None:
    assert imported(program.stem).__doc__


def directives() -> dict[str, Any]:
    """The directives that the extension adds to Sphinx, by name."""
    found: dict[str, Any] = {}
    app = SimpleNamespace(
        add_directive=found.__setitem__, connect=lambda *given, **more: None, add_lexer=lambda *given: None
    )
    imported("from_program").setup(app)
    return found


@pytest.mark.parametrize("language", ["en", "ko"])
def test_every_generated_part_of_a_page_is_generated(language: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Sphinx calls it: the internals that the extension reads are those of today."""
    known = directives()
    monkeypatch.setattr(imported("from_program"), "ZOO", ["ViT-Ti/16"])  # the large ones take a minute
    environment = SimpleNamespace(config=SimpleNamespace(language=language), app=None)
    document = SimpleNamespace(settings=SimpleNamespace(env=environment))
    machine = SimpleNamespace(reporter=None)
    assert len(known) > 5
    for name, kind in known.items():
        directive = kind(name, [], {}, [], 1, 0, "", SimpleNamespace(document=document), machine)
        parts = directive.run()
        texts = [part.astext() for part in parts]
        assert all(len(text) > 20 for text in texts), name
        assert parts, name
