"""Running a study: means with intervals, and whether the paper's effects are reproduced."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vitreous.errors import InputError
from vitreous.evaluation.probing import summary
from vitreous.evaluation.scores import Interval
from vitreous.languages import phrase
from vitreous.results import Result, percent
from vitreous.studies.laboratory import Laboratory, TrialResult
from vitreous.studies.study import Effect, Study, Variant, variant_label
from vitreous.training.settings import Tree, leaves

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class TableRow:
    """A variant and its results, one for each seed."""

    variant: Variant
    results: Sequence[TrialResult]

    @property
    def accuracies(self) -> list[float]:
        return [result.accuracy for result in self.results if result.accuracy is not None]

    @property
    def mean(self) -> float:
        return summary(self.accuracies).mean

    @property
    def interval(self) -> Interval:
        """95 %, Student's, over the seeds."""
        return summary(self.accuracies).interval


@dataclass(frozen=True)
class Verdict:
    """Whether an effect of the paper is reproduced: the mean paired difference over seeds, and its
    interval."""

    effect: Effect
    difference: float
    half_width: float

    @property
    def words(self) -> str:
        first_wins, significant = self.difference > 0, abs(self.difference) > self.half_width
        if not math.isfinite(self.half_width):
            name = "one-seed"
        elif self.effect.alike:
            name = "better" if significant else "alike"
        elif significant:
            name = "reproduced" if first_wins else "not-reproduced"
        else:
            name = "too-small"
        winner = variant_label(self.effect.first if first_wins else self.effect.second)
        return phrase(f"study.verdicts.{name}", winner=winner, limit=f"{100 * self.half_width:.1f}")

    @property
    def text(self) -> str:
        """The difference and the verdict."""
        half = f" ± {100 * self.half_width:.2f}" if math.isfinite(self.half_width) else ""
        difference = f"{100 * self.difference:+.2f}{half}"
        return phrase("study.verdicts.points", difference=difference, verdict=self.words)


@dataclass(frozen=True)
class Findings(Result):
    """All of a study: rows in its order, a verdict on each effect, and the files of table and plot."""

    study: Study
    source: str
    seeds: int
    epochs: float
    rows: Sequence[TableRow]
    files: tuple[Path, ...] = ()

    @property
    def verdicts(self) -> list[Verdict]:
        by_name = {row.variant.name: row for row in self.rows}
        return [
            verdict(effect, by_name[effect.first].accuracies, by_name[effect.second].accuracies)
            for effect in self.study.effects
        ]

    def to_json(self) -> dict[str, Any]:
        return {
            "study": self.study.name,
            "data": self.source,
            "place": self.study.words["place"],
            "paper_measures": self.study.words["measure"],
            "differs": self.study.words["differs"],
            "seeds": self.seeds,
            "epochs": self.epochs,
            "rows": self.table(),
            "effects": [
                {
                    "claim": self.study.words["claims"][each.effect.name],
                    "difference": each.difference,
                    "half_width": each.half_width,
                    "verdict": each.words,
                }
                for each in self.verdicts
            ],
            "files": [str(file) for file in self.files],
        }

    def figures(self) -> dict[str, Figure]:
        """Return the plot of the table."""
        from vitreous.studies.writing import study_plot

        return {"plot": study_plot(self).figure}

    def table(self) -> list[dict[str, Any]]:
        """Return one row for each variant."""
        return [
            {
                "variant": row.variant.name,
                "paper": row.variant.paper or None,
                "ours": row.mean,
                "interval": list(row.interval),
                "accuracies": row.accuracies,
                "parameters": row.results[0].parameters,
                "macs": row.results[0].macs,
                "seconds": sum(result.seconds for result in row.results),
                "group": row.variant.group or None,
                "x": row.variant.x or None,
            }
            for row in self.rows
        ]


def verdict(effect: Effect, first: Sequence[float], second: Sequence[float]) -> Verdict:
    """The paired difference: each seed has the same split and order for all variants."""
    differences = np.subtract(first, second)
    if len(differences) < 2:
        return Verdict(effect, float(differences.mean()), math.inf)
    from scipy.stats import t

    spread = float(differences.std(ddof=1)) / math.sqrt(len(differences))
    return Verdict(effect, float(differences.mean()), float(t.ppf(0.975, len(differences) - 1)) * spread)


def refuse_overwritten(study: Study, wanted: Tree, laboratory: Laboratory, plain: Laboratory) -> None:
    """Raise InputError for a setting of the user that has no effect, since each variant has its own.

    Args:
        laboratory, plain: with the settings that are `wanted`, and without.
    """
    values = leaves(wanted)
    for name in ("seed", "data.split_seed"):
        if name in values:
            raise InputError(
                f"the study {study.name} trains with the seeds 0, 1, ... for weights and split: leave out "
                f"{name}, and choose their number with --seeds"
            )
    base = laboratory.base()
    own = [leaves(variant.trial.settings) for variant in study.variants(base)]
    fixed = [name for name in values if all(name in settings for settings in own)]
    if not fixed:
        return
    # A variant may set a multiple of the user's value; what does not follow the value ignores it.
    default = plain.base()
    others = [leaves(variant.trial.settings) for variant in study.variants(default)]
    before, after = (leaves(each) for each in (default, base))
    for name in fixed:
        unchanged = [each[name] for each in own] == [each[name] for each in others]
        if unchanged and before.get(name) != after.get(name):
            raise InputError(
                f"every variant of the study {study.name} sets {name} itself, so {values[name]!r} has no "
                "effect: leave it out"
            )


def run_variants(
    study: Study, laboratory: Laboratory, seeds: int, *, progress: Callable[[str], None]
) -> Findings:
    """Train every variant with every seed, seed by seed, so that an interrupted study has whole comparisons.

    Args:
        progress: called with a line for each trial.

    Raises:
        Interrupted: Ctrl-C or SIGTERM; the same call resumes.
    """
    base = laboratory.base()
    variants = study.variants(base)
    results: list[list[TrialResult]] = [[] for _ in variants]
    for seed in range(seeds):
        for place, variant in enumerate(variants):
            _, result = laboratory.run(variant.trial, seed)
            results[place].append(result)
            done, whole = seed * len(variants) + place + 1, seeds * len(variants)
            assert result.accuracy is not None  # variants are evaluated; what they start from need not be
            accuracy = percent(result.accuracy)
            progress(f"{done}/{whole}  {variant.name}, seed {seed}: {accuracy}, {result.seconds:.0f} s")
    rows = [TableRow(variant, each) for variant, each in zip(variants, results, strict=True)]
    return Findings(study, laboratory.source, seeds, base.training.epochs, rows)
