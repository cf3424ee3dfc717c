"""`vitreous study NAME`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Unpack

from cyclopts import Parameter

import vitreous as vt
from vitreous.addons.studies.options import StudyOptions
from vitreous.cli.options import Json, with_parsed_options
from vitreous.cli.printing import print_json, print_names, print_table
from vitreous.languages.terminal import said

if TYPE_CHECKING:
    from vitreous.addons.studies.findings import Findings


@with_parsed_options()
def study(
    name: Annotated[
        str | None,
        Parameter(
            help="a study, or all; ledger: the verdicts of the studies that have been run. Without "
            "a name, the studies are listed"
        ),
    ] = None,
    data: Annotated[
        str | None,
        Parameter(
            help="images to train on instead of the generated ones, in any form that train takes, for "
            "the claims that can be tested on any images; each seed holds out a quarter of them"
        ),
    ] = None,
    /,
    *,
    json: Json = False,
    **options: Unpack[StudyOptions],
) -> int:
    """Try the claims of the papers at small scale: the paper's numbers beside ours, and a verdict on each."""
    if name is None:
        studies = vt.list_studies()
        if json:
            print_json({"studies": studies})
        else:
            print_names(studies)
        return 0
    try:
        result = vt.study(name, data, **options)
    except KeyboardInterrupt:
        print("vitreous:", said("stopped; the same command continues with the next trial"), file=sys.stderr)
        return 130
    if json:
        print_json(result.to_json())
    elif name in ("all", "ledger"):
        from vitreous.languages import speaking

        with speaking(options.get("language")):
            print(result.markdown(), end="")
    else:
        print_study(result)  # type: ignore[arg-type]
        print(f"\nwritten: {', '.join(map(str, result.files))}")  # type: ignore[union-attr]
    return 0


def print_study(result: Findings) -> None:
    """Print the tables for people."""
    from textwrap import fill

    from vitreous.addons.studies.findings import claim_text
    from vitreous.addons.studies.writing import study_cells
    from vitreous.results import si

    about = result.study.words
    print(f"{about['title']}\n{about['place']} of arXiv {result.study.arxiv}\n")
    rows = [(*study_cells(row, result.study), si(row.results[0].macs)) for row in result.rows]
    print_table(("variant", "paper", "ours", "95% interval", "MACs"), rows)
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
