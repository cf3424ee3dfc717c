"""From results to what can be said: means with intervals, and whether the paper's effects are there."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vitreous.evaluation.fewshot import summary
from vitreous.evaluation.scores import Interval
from vitreous.results import Result
from vitreous.studies.laboratory import Laboratory, TrialResult
from vitreous.studies.study import Effect, Study, Variant


@dataclass(frozen=True)
class Row:
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
    """Whether an effect of the paper is there: the mean difference over seeds, paired, and its interval."""

    effect: Effect
    difference: float
    half_width: float

    @property
    def words(self) -> str:
        if not math.isfinite(self.half_width):
            return "one seed cannot tell"
        told_apart = abs(self.difference) > self.half_width
        if self.effect.alike:
            if told_apart:
                return f"here {self.winner} is better"
            return f"no difference is to be told; one of {100 * self.half_width:.1f} points would not show"
        if not told_apart:
            return "not to be told from chance: these data, or so few runs, are too small to show it"
        return "seen here, too" if self.difference > 0 else f"not here: {self.winner} is better"

    @property
    def winner(self) -> str:
        return repr(self.effect.first if self.difference > 0 else self.effect.second)


@dataclass(frozen=True)
class Findings(Result):
    """All of a study: rows in its order, and a verdict on each effect."""

    study: Study
    source: str
    seeds: int
    epochs: float
    rows: Sequence[Row]

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
            "place": self.study.place,
            "paper_measures": self.study.measure,
            "differs": self.study.differs,
            "seeds": self.seeds,
            "epochs": self.epochs,
            "rows": self.table(),
            "effects": [
                {
                    "claim": each.effect.claim,
                    "difference": each.difference,
                    "half_width": each.half_width,
                    "verdict": each.words,
                }
                for each in self.verdicts
            ],
        }

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
                "x": row.variant.x,
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


def carry_out(study: Study, laboratory: Laboratory, seeds: int, *, tell: Callable[[str], None]) -> Findings:
    """Every variant with every seed, seed by seed, so that an interrupted study has whole comparisons.

    Args:
        tell: is given a line about each trial.
    """
    base = laboratory.base()
    variants = study.variants(base)
    results: list[list[TrialResult]] = [[] for _ in variants]
    for seed in range(seeds):
        for place, variant in enumerate(variants):
            result = laboratory.run(variant.trial, seed)
            results[place].append(result)
            done, whole = seed * len(variants) + place + 1, seeds * len(variants)
            tell(
                f"{done}/{whole}  {variant.name}, seed {seed}: {result.accuracy:.2%}, {result.seconds:.0f} s"
            )
    rows = [Row(variant, each) for variant, each in zip(variants, results, strict=True)]
    return Findings(study, laboratory.source, seeds, base.training.epochs, rows)
