"""`vitreous inspect MODEL [IMAGES...]`, `compare RUN...` and `learn [MODEL]`: what becomes a page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Unpack

from cyclopts import Parameter, Token

import vitreous as vt
from vitreous.api.options import CompareOptions, InspectOptions
from vitreous.cli.options import Json, ModelParameter, with_parsed_options
from vitreous.cli.printing import print_json, print_named, print_table, print_wrong
from vitreous.languages.terminal import CallError, said
from vitreous.results import percent

SHOWN_CLASSES = 8  # that differ most


def parse_patch(_: object, tokens: Sequence[Token]) -> tuple[int, int]:
    """Return (row, column) from 0 of "3x5", which counts from 1."""
    text = tokens[0].value
    row, cross, column = text.lower().partition("x")
    if not (cross and row.isdigit() and column.isdigit() and int(row) and int(column)):
        raise CallError(
            "--patch {text!r} is not a patch: write ROWxCOLUMN, counted from 1, such as 3x5", text=text
        )
    return int(row) - 1, int(column) - 1


Shown = Annotated[
    str, Parameter(help="files, folders, globs; by default held-out images of the run, or handwritten digits")
]
Patch = Annotated[tuple[int, int], Parameter(converter=parse_patch, n_tokens=1, metavar="ROWxCOLUMN")]


@with_parsed_options(patch=Patch)
def inspect(
    model: ModelParameter, /, *images: Shown, json: Json = False, **options: Unpack[InspectOptions]
) -> int:
    """The paper's figures for a model: one page to explore, figures as PNG and SVG, numbers as arrays."""
    result = vt.inspect(model, list(images) or None, **options)
    if json:
        print_json(result.to_json())
    else:
        print(result.report)
        arrays = result.arrays.name
        if result.drawings:
            print(said("{count} figures and {arrays} next to it", count=len(result.drawings), arrays=arrays))
        else:
            print(said("{arrays} next to it", arrays=arrays))
    return print_wrong(result.failed, result.damaged)


@with_parsed_options()
def compare(
    *runs: Annotated[str, Parameter(help="two or more run directories of one task")],
    json: Json = False,
    **options: Unpack[CompareOptions],
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
        print_table(
            [said("different settings"), *(run.name for run in found.runs)], values, words=1 + len(runs)
        )
    if found.by_class:
        print()
        values = [[name, *map(percent, row)] for name, row in list(found.by_class.items())[:SHOWN_CLASSES]]
        print_table([said("classes that differ most"), *(run.name for run in found.runs)], values)
    if found.common:
        differing = said(
            "different answers to {differing:,} of {count:,} examples",
            differing=len(found.differing),
            count=found.count,
        )
        print(f"\n{differing}")
    print_named("page", found.report)
