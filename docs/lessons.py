"""The lessons are notebooks that are stored with their outputs: `python docs/lessons.py [NAME...]` runs the
cells of both languages again and stores what they print and draw. `python docs/lessons.py --pin` writes the
version of pyproject.toml into the first cells of lessons and of the notebooks in examples/, which install it
in Colab.

The Korean lesson has the same code: only comments and texts may differ.
"""

from __future__ import annotations

import ast
import itertools
import json
import os
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
LESSONS = sorted((DOCS / "en" / "learn").glob("*.ipynb"))


def read(path: Path) -> dict[str, Any]:
    notebook: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return notebook


def code_cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the cells of code of the lesson itself, without the one that installs vitreous."""
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    return [cell for cell in cells if "remove-cell" not in cell["metadata"].get("tags", ())]


def pinned(text: str, version: str) -> str:
    """Return a stored notebook whose first cell installs this version."""
    return re.sub(r'(%pip install -q \\"vitreous\[[\w,]+\])[^\\]*', rf"\g<1>=={version}", text)


def pin() -> None:
    """Write the version of pyproject.toml into the lessons of both languages, and into the examples."""
    version = tomllib.loads((DOCS.parent / "pyproject.toml").read_text())["project"]["version"]
    for path in (*DOCS.glob("*/learn/*.ipynb"), *DOCS.parent.glob("examples/*.ipynb")):
        path.write_text(pinned(path.read_text(encoding="utf-8"), version), encoding="utf-8")


def executed(path: Path, kernel: str = "python3") -> dict[str, Any]:
    """Return the lesson with the outputs that its cells have today, in the Jupyter kernel of that name."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    # A backend of files, which tests set, would leave the lesson without its figures.
    env = {name: value for name, value in os.environ.items() if name != "MPLBACKEND"}
    NotebookClient(notebook, timeout=600, kernel_name=kernel, record_timing=False).execute(env=env)
    for cell in notebook["cells"]:
        for numbered in (cell, *cell.get("outputs", ())):
            if "execution_count" in numbered:
                numbered["execution_count"] = None
    done: dict[str, Any] = json.loads(nbformat.writes(notebook))
    return done


def printed(cell: dict[str, Any]) -> str:
    """Return the text of a cell's outputs without its figures; prints may come in any pieces."""
    parts: list[str] = []
    streaming = False
    for output in cell["outputs"]:
        if output.get("name") == "stderr":  # warnings, and bars of progress
            continue
        data, before = output.get("data", {}), streaming
        streaming = output["output_type"] == "stream"
        if streaming and before:
            parts[-1] += "".join(output["text"])
        elif streaming:
            parts.append("".join(output["text"]))
        elif "text/plain" in data and not any(kind.startswith("image/") for kind in data):
            parts.append("".join(data["text/plain"]))
    return "\n".join(parts)


def same_code(english: dict[str, Any], korean: dict[str, Any]) -> bool:
    """Return whether two notebooks compute the same: comments may differ, and texts that are in Korean."""

    def trees(notebook: dict[str, Any]) -> list[ast.Module]:
        return [ast.parse("".join(cell["source"])) for cell in code_cells(notebook)]

    pairs = itertools.zip_longest(trees(english), trees(korean))
    return all(same_tree(one, other) for one, other in pairs)


def same_tree(english: Any, korean: Any) -> bool:
    if type(english) is not type(korean):
        return False
    if isinstance(english, ast.Constant):
        return bool(english.value == korean.value) or is_translated(english.value, korean.value)
    if isinstance(english, ast.JoinedStr):  # of a text with values, only these count
        english, korean = values_of(english), values_of(korean)
    if isinstance(english, ast.FormattedValue):
        formats = [ast.dump(each.format_spec) if each.format_spec else "" for each in (english, korean)]
        return formats[0] == formats[1] and same_tree(english.value, korean.value)
    if isinstance(english, list):
        pairs = itertools.zip_longest(english, korean)
        return all(same_tree(one, other) for one, other in pairs)
    if isinstance(english, ast.AST):
        return all(same_tree(value, getattr(korean, name, None)) for name, value in ast.iter_fields(english))
    return bool(english == korean)


def values_of(text: ast.JoinedStr) -> list[ast.expr]:
    return [part for part in text.values if isinstance(part, ast.FormattedValue)]


def is_translated(english: Any, korean: Any) -> bool:
    if not isinstance(english, str) or not isinstance(korean, str):
        return False
    return (english, korean) == ("en", "ko") or bool(re.search("[가-힣]", korean))


def store(path: Path) -> None:
    """Run a lesson in both languages, and write the outputs into it."""
    translated = DOCS / "ko" / "learn" / path.name
    if not same_code(read(path), read(translated)):
        raise SystemExit(f"{translated} has other code than {path}")
    for file in (path, translated):
        notebook = executed(file)
        file.write_text(json.dumps(notebook, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    wanted = set(sys.argv[1:])
    if wanted == {"--pin"}:
        pin()
    for lesson in LESSONS:
        if not wanted or lesson.stem in wanted:
            store(lesson)
            print(lesson.relative_to(DOCS))
