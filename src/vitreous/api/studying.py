"""`vitreous.study`: the claims of the papers, tried at small scale, and the ledger of their verdicts."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from vitreous.errors import InputError, require_packages
from vitreous.languages import speaking, words

if TYPE_CHECKING:
    from vitreous.studies.complexity import Complexity
    from vitreous.studies.findings import Findings, Ledger

SEEDS = 5  # how often each variant is trained
QUICK = 0.1  # of the steps
QUICK_SEEDS = 2


def list_studies() -> dict[str, str]:
    """Return the question that each study asks, by the study's name."""
    return {name: study["title"] for name, study in words("studies").items()}


def study(
    name: str,
    *,
    quick: bool = False,
    seeds: int | None = None,
    out: str | Path | None = None,
    device: str = "auto",
    progress: bool = True,
    language: str | None = None,
) -> Findings | Complexity | Ledger:
    """Try the claims of a paper at small scale, on the generated image world.

    Args:
        name: one of `list_studies()`; "all" for all of them, and "ledger" for the claims and verdicts of the
            studies that have been run.
        quick: a tenth of the steps and two seeds, to see how it works.
        seeds: how often each variant is trained; by default 5 times.
        out: the folder of the table and the plot; by default studies/NAME. With "all" and "ledger" the folder
            of these folders; by default studies.
        progress: print a line on stderr for each trial.
        language: of the table and the plot, "en" or "ko"; by default that of the locale.

    Raises:
        InputError: no such study, or an option that the study does not have.
        KeyboardInterrupt: Ctrl-C; the same call goes on with the next trial.
    """
    require_packages("matplotlib", "scipy", extra="train", what="a study")
    from vitreous.errors import cache_folder
    from vitreous.studies import complexity
    from vitreous.studies.experiments import STUDIES, study_named
    from vitreous.studies.findings import Ledger, run_study
    from vitreous.studies.laboratory import Laboratory
    from vitreous.studies.writing import results_folder
    from vitreous.training.precision import pick_device

    if name in ("complexity", "ledger"):  # the others train models
        given = {"--seeds": seeds, "--quick": quick and name == "ledger", "--device": device != "auto"}
        if refused := [option for option, value in given.items() if value]:
            what = "times single layers on one CPU thread" if name == "complexity" else "reads what was run"
            raise InputError(f"{refused[0]} does not go with the study {name}, which {what}: leave it out")
    if seeds is not None and seeds < 1:
        raise InputError(f"--seeds {seeds} trains nothing: use 1 or more, 5 for an interval")
    several = name in ("all", "ledger")
    folder = Path(out) if out else Path("studies") / ("" if several else name)
    if name == "ledger":
        return Ledger.read(folder).write(folder)
    if name == "complexity":
        with results_folder(folder), speaking(language):
            return complexity.time_layers(folder, complexity.QUICK if quick else complexity.FULL)

    def report(line: str) -> None:
        if progress:
            print(line, file=sys.stderr, flush=True)

    chosen = list(STUDIES.values()) if several else [study_named(name)]
    share, count = (QUICK, seeds or QUICK_SEEDS) if quick else (1.0, seeds or SEEDS)
    laboratory = Laboratory(cache=cache_folder() / "studies", device=pick_device(device), share=share)
    for each in chosen:
        own = folder / each.name if several else folder
        with results_folder(own), speaking(language):
            found = run_study(each, laboratory, count, progress=report).write(own)
    return Ledger.read(folder).write(folder) if several else found
