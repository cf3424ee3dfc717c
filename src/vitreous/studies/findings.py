"""Running a study: means with intervals, and whether the paper's effects are reproduced."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vitreous.errors import InputError
from vitreous.evaluation.fewshot import summary
from vitreous.evaluation.scores import Interval
from vitreous.results import Result
from vitreous.studies.laboratory import Laboratory, TrialResult
from vitreous.studies.study import Effect, Scale, Study, Tree, Variant, settings_of


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
    """Whether an effect of the paper is reproduced: the mean paired difference over seeds, and its
    interval."""

    effect: Effect
    difference: float
    half_width: float

    @property
    def words(self) -> str:
        if not math.isfinite(self.half_width):
            return "not testable with one seed"
        significant = abs(self.difference) > self.half_width
        if self.effect.alike:
            if significant:
                return f"here {self.winner} is better"
            return f"no significant difference; one below {100 * self.half_width:.1f} points would not show"
        if not significant:
            return "not significant: these data, or so few runs, are too small to show it"
        return "reproduced" if self.difference > 0 else f"not reproduced: {self.winner} is better"

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


def run_study(
    study: Study,
    source: Any,
    wanted: Tree,
    *,
    scale: Scale,
    cache: Path,
    device: torch.device,
    progress: Callable[[str], None],
) -> Findings:
    """Train every variant of a study with every seed and compare them.

    Args:
        source: DATA as `train` takes it.
        wanted: the user's settings of all trials.
        scale: epochs, unless `wanted` has them, and seeds.
        cache: the folder of finished runs.
        progress: called with a line for each trial.

    Raises:
        InputError: a setting that the study or all of its variants determine.
        Interrupted: Ctrl-C or SIGTERM; the same call resumes.
    """
    laboratory = Laboratory(source, settings_of(study, scale, wanted), cache=cache, device=device)
    refuse_overwritten(study, laboratory, wanted)
    return run_variants(study, laboratory, scale.seeds, progress=progress)


def refuse_overwritten(study: Study, laboratory: Laboratory, wanted: Tree) -> None:
    """Raise InputError for a setting of the user that has no effect, since each variant has its own."""
    for name in ("seed", "data.split_seed"):
        if name in flat_settings(wanted):
            raise InputError(
                f"the study {study.name} trains with the seeds 0, 1, ... for weights and split: leave out "
                f"{name}, and choose their number with --seeds"
            )
    base = laboratory.base()
    own = [flat_settings(variant.trial.settings) for variant in study.variants(base)]
    for name, value in flat_settings(wanted).items():
        if not all(name in settings for settings in own):
            continue
        # A variant may set a multiple of the user's value; what does not follow the value ignores it.
        section, _, field = name.partition(".")
        part = getattr(base, section)
        rest = flat_settings(part.model_dump())
        without = laboratory_without(laboratory, name).base()
        unchanged = [flat_settings(variant.trial.settings) for variant in study.variants(without)]
        same = flat_settings(getattr(without, section).model_dump()).get(field) == rest.get(field)
        if not same and [each[name] for each in own] == [each[name] for each in unchanged]:
            raise InputError(
                f"every variant of the study {study.name} sets {name} itself, so {value!r} has no effect: "
                "leave it out"
            )


def laboratory_without(laboratory: Laboratory, name: str) -> Laboratory:
    """Return the same laboratory without one setting, by its dotted name."""
    settings = copy.deepcopy(dict(laboratory.settings))
    *sections, leaf = name.split(".")
    tree: Any = settings
    for section in sections:
        tree = tree[section]
    del tree[leaf]
    return Laboratory(laboratory.source, settings, cache=laboratory.cache, device=laboratory.device)


def flat_settings(tree: Tree, prefix: str = "") -> dict[str, Any]:
    """Return the leaves of a tree of settings by their dotted names."""
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        path = prefix + name
        flat |= flat_settings(value, f"{path}.") if isinstance(value, Mapping) else {path: value}
    return flat


def run_variants(
    study: Study, laboratory: Laboratory, seeds: int, *, progress: Callable[[str], None]
) -> Findings:
    """Train every variant with every seed, seed by seed, so that an interrupted study has whole
    comparisons."""
    base = laboratory.base()
    variants = study.variants(base)
    results: list[list[TrialResult]] = [[] for _ in variants]
    for seed in range(seeds):
        for place, variant in enumerate(variants):
            result = laboratory.run(variant.trial, seed)
            results[place].append(result)
            done, whole = seed * len(variants) + place + 1, seeds * len(variants)
            progress(
                f"{done}/{whole}  {variant.name}, seed {seed}: {result.accuracy:.2%}, {result.seconds:.0f} s"
            )
    rows = [Row(variant, each) for variant, each in zip(variants, results, strict=True)]
    return Findings(study, laboratory.source, seeds, base.training.epochs, rows)
