"""`vitreous inspect MODEL [IMAGES...]`, `compare RUN...` and `learn [MODEL]`: what becomes a page."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Any

from cyclopts import Parameter, Token

import vitreous as vt
from vitreous.cli.options import Json, Model, options_of
from vitreous.cli.printing import print_failed, print_json, print_table
from vitreous.errors import InputError
from vitreous.results import percent

SHOWN_CLASSES = 8  # that differ most


def parse_patch(_: object, tokens: Sequence[Token]) -> tuple[int, int]:
    """(row, column) from 0 of "3x5", which counts from 1."""
    text = tokens[0].value
    row, cross, column = text.lower().partition("x")
    if not (cross and row.isdigit() and column.isdigit() and int(row) and int(column)):
        raise InputError(f"--patch {text!r} is not a patch: write ROWxCOLUMN, counted from 1, such as 3x5")
    return int(row) - 1, int(column) - 1


Shown = Annotated[
    str, Parameter(help="files, folders, globs; by default held-out images of the run, or handwritten digits")
]
PATCH = Parameter(
    converter=parse_patch,
    n_tokens=1,
    metavar="ROWxCOLUMN",
    help="the patch to follow, counted from 1: 3x5; by default the middle one",
)


@options_of(vt.inspect, patch=Annotated[tuple[int, int], PATCH])
def inspect(model: Model, /, *images: Shown, json: Json = False, **options: Any) -> int:
    """The paper's figures for a model: one page to explore, figures as PNG and SVG, numbers as arrays."""
    result = vt.inspect(model, list(images) or None, **options)
    if json:
        print_json(result.to_json())
    else:
        figures = f"{len(result.drawings)} figures and " if result.drawings else ""
        print(f"{result.report}\n{figures}{result.arrays.name} beside it")
    if result.boxes:
        print(
            "letters of some names are boxes in the PNG figures, since no installed font has them (the page "
            "and the SVG figures are right): Noto Sans CJK has most",
            file=sys.stderr,
        )
    return print_failed(result.failed)


@options_of(vt.compare)
def compare(
    *runs: Annotated[str, Parameter(help="two or more run directories of one task")],
    json: Json = False,
    **options: Any,
) -> None:
    """Compare runs of one task with the first of them, on the same held-out examples."""
    found = vt.compare(*runs, **options)
    if json:
        print_json(found.to_json())
        return
    for note in found.notes():
        print(note)
    header, *lines = found.lines()
    print()
    print_table(header, lines)
    print()
    for verdict in found.verdicts():
        print(verdict)
    if found.settings:
        print()
        values = [[name, *map(str, row)] for name, row in found.settings.items()]
        print_table(["different settings", *(run.name for run in found.runs)], values, words=1 + len(runs))
    if found.by_class:
        print()
        values = [[name, *map(percent, row)] for name, row in list(found.by_class.items())[:SHOWN_CLASSES]]
        print_table(["classes that differ most", *(run.name for run in found.runs)], values)
    if found.common:
        print(f"\ndifferent answers to {len(found.differing):,} of {found.count:,} examples")
    print(f"page  {found.report}")
