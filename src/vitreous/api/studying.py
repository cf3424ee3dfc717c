"""`vitreous.study`: an experiment of the paper at small scale."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitreous.api.arguments import Settings, settings_tree
from vitreous.api.data import data_source
from vitreous.errors import InputError, require_packages
from vitreous.languages import speaking, words

if TYPE_CHECKING:
    from vitreous.studies.complexity import Complexity
    from vitreous.studies.findings import Findings

SEEDS = 3  # how often each variant is trained


def list_studies() -> dict[str, str]:
    """Return the question that each study asks, by the study's name."""
    return {name: study["title"] for name, study in words("studies").items()}


def study(
    name: str,
    data: Any = None,
    *,
    quick: bool = False,
    seeds: int | None = None,
    out: str | Path | None = None,
    device: str = "auto",
    settings: Settings | None = None,
    config: str | Path | None = None,
    progress: bool = True,
    language: str | None = None,
) -> Findings | Complexity:
    """Reproduce an experiment of the paper at small scale.

    Args:
        name: one of `list_studies()`.
        data: DATA as `train` takes it; by default the digits.
        quick: a few epochs instead of all.
        seeds: how often each variant is trained; by default 3 times.
        out: the folder of the table and the plot; by default studies/NAME.
        settings, config: of every trial, under those that a variant sets.
        progress: print a line on stderr for each trial.
        language: of the table and the plot, "en" or "ko"; by default that of the locale.

    Raises:
        InputError: no such study or data, or an option that the study does not have.
        Interrupted: Ctrl-C; the same call resumes.
    """
    require_packages("matplotlib", "scipy", extra="train", what="a study")
    from vitreous.errors import cache_folder
    from vitreous.studies import complexity
    from vitreous.studies.experiments import study_named
    from vitreous.studies.findings import refuse_overwritten, run_variants
    from vitreous.studies.laboratory import Laboratory
    from vitreous.studies.study import settings_of
    from vitreous.studies.writing import results_folder, write_study
    from vitreous.training.precision import pick_device
    from vitreous.training.settings import Tree

    folder = Path(out) if out else Path("studies") / name
    if name == "complexity":  # times layers, the others train models
        given = {"DATA": data, "--seeds": seeds, "--set": settings, "--config": config}
        refused = [option for option, value in given.items() if value]
        if refused or device != "auto":
            option = refused[0] if refused else "--device"
            raise InputError(
                f"{option} does not go with the study complexity, which times single layers on one CPU "
                "thread: leave it out"
            )
        with results_folder(folder), speaking(language):
            return complexity.time_layers(folder, complexity.QUICK if quick else complexity.FULL)
    if seeds is not None and seeds < 1:
        raise InputError(f"--seeds {seeds} trains nothing: use 1 or more, 3 for an interval")
    chosen = study_named(name)

    def report(line: str) -> None:
        if progress:
            print(line, file=sys.stderr)

    source, epochs = "digits" if data is None else data_source(data), chosen.quick if quick else chosen.full
    tree, cache, here = settings_tree(settings, config), cache_folder() / "studies", pick_device(device)

    def laboratory(wanted: Tree) -> Laboratory:
        return Laboratory(source, settings_of(chosen, epochs, wanted), cache=cache, device=here)

    with results_folder(folder), speaking(language):
        refuse_overwritten(chosen, tree, laboratory(tree), laboratory({}))
        return write_study(run_variants(chosen, laboratory(tree), seeds or SEEDS, progress=report), folder)
