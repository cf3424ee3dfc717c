"""`vitreous.study`: an experiment of the paper at small scale."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitreous.api.arguments import Settings, settings_tree
from vitreous.api.data import data_source
from vitreous.errors import InputError, require_packages
from vitreous.results import Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from vitreous.studies.complexity import Measured
    from vitreous.studies.findings import Findings


@dataclass(frozen=True)
class StudyResult(Result):
    """What a study measured, and the files of its table and plot."""

    findings: Findings
    files: tuple[Path, ...]

    def to_json(self) -> dict[str, Any]:
        return {**self.findings.to_json(), "files": [str(file) for file in self.files]}

    def table(self) -> list[dict[str, Any]]:
        """Return one row for each variant."""
        return self.findings.table()

    def figures(self) -> dict[str, Figure]:
        """Return the plot of the table."""
        from vitreous.studies.writing import study_plot

        return {"plot": study_plot(self.findings).figure}


@dataclass(frozen=True)
class ComplexityResult(Result):
    """The time of layers over length and width, beside the formula, and the files of the table and plot."""

    layers: tuple[Measured, ...]
    files: tuple[Path, ...]

    def to_json(self) -> dict[str, Any]:
        return {"layers": self.table(), "files": [str(file) for file in self.files]}

    def table(self) -> list[dict[str, Any]]:
        """Return one row for each kind of layer."""
        return [each.to_json() for each in self.layers]


def list_studies() -> dict[str, str]:
    """Return the question that each study asks, by the study's name."""
    from vitreous.studies.catalog import study_titles

    return study_titles()


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
) -> StudyResult | ComplexityResult:
    """Reproduce an experiment of the paper at small scale.

    Args:
        name: one of `list_studies()`.
        data: DATA as `train` takes it; by default the digits.
        quick: a few epochs instead of all.
        seeds: how often each variant is trained.
        out: the folder of the table and the plot; by default studies/NAME.
        settings, config: of every trial, under those that a variant sets.
        progress: print a line on stderr for each trial.

    Raises:
        InputError: no such study or data, or an option that the study does not have.
        Interrupted: Ctrl-C; the same call resumes.
    """
    require_packages("matplotlib", "scipy", extra="train", what="a study")
    from vitreous.evaluation.features import cache_folder
    from vitreous.studies.catalog import study_named
    from vitreous.studies.findings import run_study
    from vitreous.studies.writing import results_folder, write_study
    from vitreous.training.device import pick_device

    folder = Path(out) if out else Path("studies") / name
    if name == "complexity":
        given = {"DATA": data, "--seeds": seeds, "--set": settings, "--config": config}
        refused = [option for option, value in given.items() if value]
        if refused or device != "auto":
            option = refused[0] if refused else "--device"
            raise InputError(
                f"{option} does not go with the study complexity, which times single layers on one CPU "
                "thread: leave it out"
            )
        return study_complexity(folder, quick=quick)
    if seeds is not None and seeds < 1:
        raise InputError(f"--seeds {seeds} trains nothing: use 1 or more, 3 for an interval")
    chosen = study_named(name)
    scale = chosen.quick if quick else chosen.full

    def report(line: str) -> None:
        if progress:
            print(line, file=sys.stderr)

    with results_folder(folder) as results:
        findings = run_study(
            chosen,
            "digits" if data is None else data_source(data),
            settings_tree(settings, config),
            scale=replace(scale, seeds=seeds or scale.seeds),
            cache=cache_folder() / "studies",
            device=pick_device(device),
            progress=report,
        )
        return StudyResult(findings, tuple(write_study(findings, results)))


def study_complexity(folder: Path, *, quick: bool) -> ComplexityResult:
    """Time attention, recurrence and convolution over length and width."""
    from vitreous.studies import complexity
    from vitreous.studies.writing import results_folder

    values = complexity.QUICK if quick else complexity.FULL
    with results_folder(folder) as results:
        layers = complexity.measure(values)
        return ComplexityResult(tuple(layers), tuple(complexity.write_complexity(layers, values, results)))
