"""`vitreous study NAME [DATA]`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypedDict, Unpack

from cyclopts import Parameter

import vitreous as vt
from vitreous.cli.options import ConfigFile, Device, Int, Json, Language, Settings
from vitreous.cli.printing import print_json, print_names, print_table

if TYPE_CHECKING:
    from vitreous.studies.complexity import Complexity
    from vitreous.studies.findings import Findings


class StudyOptions(TypedDict, total=False):
    """Where the variants are trained, and what of their configuration is changed."""

    out: Annotated[Path, Parameter(name="--out", help="the folder of the tables")]
    device: Device
    settings: Settings
    config: ConfigFile
    language: Language


def study(
    name: str | None = None,
    data: str | None = None,
    /,
    *,
    quick: Annotated[bool, Parameter(help="few epochs: about two minutes on the digits")] = False,
    seeds: Annotated[Int | None, Parameter(help="how often each variant is trained")] = None,
    json: Json = False,
    **options: Unpack[StudyOptions],
) -> int:
    """Reproduce an experiment of the paper at small scale: the paper's numbers beside ours.

    Parameters
    ----------
    name
        Which one; without a name all are listed.
    data
        What `vitreous train` takes; by default the digits.
    """
    if name is None:
        studies = vt.list_studies()
        if json:
            print_json({"studies": studies})
        else:
            print_names(studies)
        return 0
    from vitreous.training.trainer import Interrupted

    try:
        result = vt.study(name, data, quick=quick, seeds=seeds, **options)
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

    from vitreous.languages import words
    from vitreous.results import si
    from vitreous.studies import complexity
    from vitreous.studies.writing import runs_in_words, study_cells

    if isinstance(result, complexity.Complexity):
        about = words("studies.complexity")
        print(f"{about['title']}\n{about['place']}\n")
        print_table(complexity.header(), [complexity.cells(each) for each in result.layers])
        return
    about = result.study.words
    print(f"{about['title']}\n{about['place']} of arXiv 2010.11929\n")
    rows = [(*study_cells(row), si(row.results[0].macs)) for row in result.rows]
    print_table(("variant", "paper", "ours", "95 % interval", "MACs"), rows)
    ours = f"held-out accuracy on {result.source}, {runs_in_words(result)}"
    print()
    notes = ("paper", about["measure"]), ("ours", ours), ("what differs", about["differs"])
    for name, text in notes:
        print(fill(text, 98, initial_indent=f"{name:<14}", subsequent_indent=" " * 14))
    print()
    for each in result.verdicts:
        print(fill(f"{about['claims'][each.effect.name]}: {each.text}", 98, subsequent_indent="    "))
