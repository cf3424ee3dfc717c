"""The lessons are notebooks that are stored with their outputs: `python docs/lessons.py [NAME...]` runs the
cells again and stores what they print and draw.

The English lesson is run. The Korean one has the same code (its comments may differ) and gets the same
outputs.
"""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
LESSONS = sorted((DOCS / "en" / "learn").glob("*.ipynb"))


def read(path: Path) -> dict[str, Any]:
    notebook: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return notebook


def code_cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def executed(path: Path) -> dict[str, Any]:
    """Return the lesson with the outputs that its cells have today."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=600, kernel_name="python3", record_timing=False).execute()
    for cell in code_cells(notebook):
        for numbered in (cell, *cell["outputs"]):
            if "execution_count" in numbered:
                numbered["execution_count"] = None
    done: dict[str, Any] = json.loads(nbformat.writes(notebook))
    return done


def printed(cell: dict[str, Any]) -> str:
    """Return the text of a cell's outputs without its figures; prints may come in any pieces."""
    parts: list[str] = []
    streaming = False
    for output in cell["outputs"]:
        data, before = output.get("data", {}), streaming
        streaming = output["output_type"] == "stream"
        if streaming and before:
            parts[-1] += "".join(output["text"])
        elif streaming:
            parts.append("".join(output["text"]))
        elif "text/plain" in data and not any(kind.startswith("image/") for kind in data):
            parts.append("".join(data["text/plain"]))
    return "\n".join(parts)


def same_code(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Return whether two notebooks compute the same, whatever their comments say."""

    def trees(notebook: dict[str, Any]) -> list[str]:
        return [ast.dump(ast.parse("".join(cell["source"]))) for cell in code_cells(notebook)]

    return trees(one) == trees(other)


def store(path: Path) -> None:
    """Run a lesson, and write the outputs into the lesson of both languages."""
    english = executed(path)
    translated = DOCS / "ko" / "learn" / path.name
    korean = read(translated)
    if not same_code(english, korean):
        raise SystemExit(f"{translated} has other code than {path}")
    for cell, source in zip(code_cells(korean), code_cells(english), strict=True):
        cell["outputs"], cell["execution_count"] = source["outputs"], None
    for file, notebook in ((path, english), (translated, korean)):
        file.write_text(json.dumps(notebook, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    wanted = set(sys.argv[1:])
    for lesson in LESSONS:
        if not wanted or lesson.stem in wanted:
            store(lesson)
            print(lesson.relative_to(DOCS))
