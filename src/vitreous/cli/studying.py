"""`vitreous study NAME`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypedDict, Unpack

from cyclopts import Parameter

import vitreous as vt
from vitreous.cli.options import Device, Int, Json, Language
from vitreous.cli.printing import print_json, print_names, print_table

if TYPE_CHECKING:
    from vitreous.studies.complexity import Complexity
    from vitreous.studies.findings import Findings


class StudyOptions(TypedDict, total=False):
    """Where the variants are trained, and where the results go."""

    out: Annotated[Path, Parameter(name="--out", help="the folder of the tables")]
    device: Device
    language: Language


def study(
    name: str | None = None,
    /,
    *,
    quick: Annotated[bool, Parameter(help="a tenth of the steps and two seeds")] = False,
    seeds: Annotated[Int | None, Parameter(help="how often each variant is trained (default: 5)")] = None,
    json: Json = False,
    **options: Unpack[StudyOptions],
) -> int:
    """Try the claims of the papers at small scale: the paper's numbers beside ours, and a verdict on each.

    Parameters
    ----------
    name
        Which one; without a name they are listed. `all` runs every one of them, `ledger` prints the verdicts
        of those that have been run.
    """
    if name is None:
        studies = vt.list_studies()
        if json:
            print_json({"studies": studies})
        else:
            print_names(studies)
        return 0
    try:
        result = vt.study(name, quick=quick, seeds=seeds, **options)
    except KeyboardInterrupt:
        print("vitreous: stopped; the same command goes on with the next trial", file=sys.stderr)
        return 130
    if json:
        print_json(result.to_json())
    elif name in ("all", "ledger"):
        from vitreous.languages import speaking

        with speaking(options.get("language")):
            print(result.markdown(), end="")  # type: ignore[union-attr]
    else:
        print_study(result)  # type: ignore[arg-type]
        print(f"\nwritten: {', '.join(map(str, result.files))}")  # type: ignore[union-attr]
    return 0


def print_study(result: Findings | Complexity) -> None:
    """Print the tables for people."""
    from textwrap import fill

    from vitreous.languages import words
    from vitreous.results import si
    from vitreous.studies import complexity
    from vitreous.studies.findings import claim_text
    from vitreous.studies.writing import study_cells

    if isinstance(result, complexity.Complexity):
        about = words("studies.complexity")
        print(f"{about['title']}\n{about['place']}\n")
        print_table(complexity.header(), [complexity.cells(each) for each in result.layers])
        return
    about = result.study.words
    print(f"{about['title']}\n{about['place']} of arXiv 2010.11929\n")
    rows = [(*study_cells(row, result.study.measure), si(row.results[0].macs)) for row in result.rows]
    print_table(("variant", "paper", "ours", "95 % interval", "MACs"), rows)
    print()
    for name, text in (
        ("paper", about["measure"]),
        ("ours", result.runs),
        ("what differs", about["differs"]),
    ):
        print(fill(text, 98, initial_indent=f"{name:<14}", subsequent_indent=" " * 14))
    print()
    for each in result.verdicts:
        print(fill(claim_text(result.study, each), 98, subsequent_indent="    "))
