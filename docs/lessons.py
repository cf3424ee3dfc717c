"""The lessons are notebooks that are stored with their outputs: `python docs/lessons.py [NAME...]` runs the
cells again and stores what they print and draw.

The English lesson is run. The Korean one has the same code (its comments may differ) and gets the same
outputs.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

DOCS = Path(__file__).parent
LESSONS = sorted((DOCS / "en" / "learn").glob("*.ipynb"))


def code_cells(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def executed(path: Path) -> Any:
    """Return the lesson with the outputs that its cells have today."""
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=600, kernel_name="python3", record_timing=False).execute()
    for cell in code_cells(notebook):
        cell.metadata.pop("execution", None)
        cell.execution_count = None
        for output in cell.outputs:
            if "execution_count" in output:
                output.execution_count = None
    return notebook


def printed(cell: Any) -> str:
    """Return the text of a cell's outputs, without its figures."""
    parts = []
    for output in cell.outputs:
        data = output.get("data", {})
        if output.output_type == "stream":
            parts.append(output.text)
        elif "text/plain" in data and not any(kind.startswith("image/") for kind in data):
            parts.append(data["text/plain"])
    return "\n".join(parts)


def same_code(one: Any, other: Any) -> bool:
    """Return whether two notebooks compute the same, whatever their comments say."""
    pairs = zip(code_cells(one), code_cells(other), strict=False)
    trees = [(ast.dump(ast.parse(a.source)), ast.dump(ast.parse(b.source))) for a, b in pairs]
    return len(code_cells(one)) == len(code_cells(other)) and all(a == b for a, b in trees)


def store(path: Path) -> None:
    """Run a lesson, and write the outputs into the lesson of both languages."""
    english = executed(path)
    nbformat.write(english, path)
    translated = DOCS / "ko" / "learn" / path.name
    if not translated.exists():
        return
    korean = nbformat.read(translated, as_version=4)
    if not same_code(english, korean):
        raise SystemExit(f"{translated} has other code than {path}")
    for cell, source in zip(code_cells(korean), code_cells(english), strict=True):
        cell.outputs, cell.execution_count = source.outputs, None
    nbformat.write(korean, translated)


if __name__ == "__main__":
    wanted = set(sys.argv[1:])
    for lesson in LESSONS:
        if not wanted or lesson.stem in wanted:
            store(lesson)
            print(lesson.relative_to(DOCS))
