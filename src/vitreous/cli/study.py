"""`vitreous study NAME [DATA]`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from vitreous.cli.options import ConfigFile, Device, Json, Out, Settings, parse_settings, print_json

if TYPE_CHECKING:
    from vitreous.studies.complexity import Complexity
    from vitreous.studies.findings import Findings


def study(
    name: str | None = None,
    data: str | None = None,
    /,
    *,
    quick: Annotated[bool, Parameter(help="few epochs: about two minutes on the digits")] = False,
    seeds: Annotated[int | None, Parameter(help="how often each variant is trained")] = None,
    out: Out = None,
    device: Device = "auto",
    set: Settings = None,
    config: ConfigFile = None,
    json: Json = False,
) -> int:
    """Reproduce an experiment of the paper at small scale: the paper's numbers beside ours.

    Parameters
    ----------
    name
        Which one; without a name all are listed.
    data
        What `vitreous train` takes; by default the digits.
    """
    import vitreous as vt

    if name is None:
        studies = vt.list_studies()
        if json:
            print_json({"studies": studies})
        else:
            print("\n".join(f"{each:<16}{title}" for each, title in studies.items()))
        return 0
    from vitreous.training.trainer import Interrupted

    try:
        result = vt.study(
            name,
            data,
            quick=quick,
            seeds=seeds,
            out=out,
            device=device,
            settings=parse_settings(set),
            config=config,
        )
    except Interrupted:
        print("vitreous: stopped, and the state is saved: the same command resumes it", file=sys.stderr)
        return 130
    if json:
        print_json(result.to_json())
    else:
        print_study(result)
        print(f"\nwritten: {', '.join(map(str, result.files))}")
    return 0


def print_study(result: Findings | Complexity) -> None:
    """Print the tables for people."""
    from textwrap import fill

    from vitreous.cli.tables import print_table
    from vitreous.results import si
    from vitreous.studies import COMPLEXITY_TITLE, complexity
    from vitreous.studies.writing import runs_in_words, study_cells

    if isinstance(result, complexity.Complexity):
        print(f"{COMPLEXITY_TITLE}\n{complexity.PLACE}\n")
        print_table(complexity.HEADER, [complexity.cells(each) for each in result.layers])
        return
    print(f"{result.study.title}\n{result.study.place} of arXiv 2010.11929\n")
    rows = [(*study_cells(row), si(row.results[0].macs)) for row in result.rows]
    print_table(("variant", "paper", "ours", "95 % interval", "MACs"), rows)
    ours = f"held-out accuracy on {result.source}, {runs_in_words(result)}"
    print()
    notes = ("paper", result.study.measure), ("ours", ours), ("what differs", result.study.differs)
    for name, text in notes:
        print(fill(text, 98, initial_indent=f"{name:<14}", subsequent_indent=" " * 14))
    print()
    for each in result.verdicts:
        print(fill(f"{each.effect.claim}: {each.text}", 98, subsequent_indent="    "))
