"""`vitreous study NAME [DATA]`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from vitreous.cli.options import ConfigFile, Device, Json, Out, Settings, print_json, settings_tree
from vitreous.errors import InputError, require_packages

if TYPE_CHECKING:
    from vitreous.studies.findings import Findings


def study(
    name: str | None = None,
    data: str = "digits",
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
    """Re-make an experiment of the paper at small scale: the paper's figures beside ours, and what differs.

    Parameters
    ----------
    name
        Which one; without a name all are listed.
    data
        What `vitreous train` takes.
    """
    require_packages("matplotlib", "scipy", extra="train", what="a study")
    from vitreous.studies.catalog import study_named, titles

    if name == "complexity":
        from vitreous.cli.study_complexity import study_complexity

        return study_complexity(out=out, quick=quick, json=json)
    if name is None:
        if json:
            print_json({"studies": titles()})
        else:
            print("\n".join(f"{each:<16}{title}" for each, title in titles().items()))
        return 0
    if seeds is not None and seeds < 1:
        raise InputError(f"--seeds {seeds} trains nothing: use 1 or more, 3 for an interval")
    from pathlib import Path

    from vitreous.evaluation.features import cache_folder
    from vitreous.studies.findings import carry_out
    from vitreous.studies.laboratory import Laboratory
    from vitreous.studies.results_folder import results_folder
    from vitreous.studies.study import settings_of
    from vitreous.studies.writing import write
    from vitreous.training.device import pick_device
    from vitreous.training.signals import Interrupted

    chosen = study_named(name)
    scale = chosen.quick if quick else chosen.full
    laboratory = Laboratory(
        data,
        settings_of(chosen, scale, settings_tree(config, set)),
        cache=cache_folder() / "studies",
        device=pick_device(device),
    )
    try:
        with results_folder(out or Path("studies") / name) as folder:
            findings = carry_out(
                chosen, laboratory, seeds or scale.seeds, tell=lambda line: print(line, file=sys.stderr)
            )
            files = write(findings, folder)
    except Interrupted:
        print("vitreous: stopped, and the state is saved: the same command goes on", file=sys.stderr)
        return 130
    result: dict[str, Any] = {**findings.to_json(), "files": [str(file) for file in files]}
    if json:
        print_json(result)
    else:
        show(findings, result["files"])
    return 0


def show(findings: Findings, files: list[str]) -> None:
    """The tables for people."""
    from textwrap import fill

    from vitreous.cli.tables import print_table, si
    from vitreous.studies.writing import cells, runs_in_words, verdicts

    study = findings.study
    print(f"{study.title}\n{study.place} of arXiv 2010.11929\n")
    rows = [(*cells(row), si(row.results[0].macs)) for row in findings.rows]
    print_table(("variant", "paper", "ours", "95 % interval", "MACs"), rows)
    ours = f"held-out accuracy on {findings.source}, {runs_in_words(findings)}"
    print()
    for name, text in (("paper", study.measure), ("ours", ours), ("what differs", study.differs)):
        print(fill(text, 98, initial_indent=f"{name:<14}", subsequent_indent=" " * 14))
    print()
    for claim, words in verdicts(findings):
        print(fill(f"{claim}: {words}", 98, subsequent_indent="    "))
    print(f"\nwritten: {', '.join(files)}")
