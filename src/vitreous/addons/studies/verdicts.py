"""What the seeds say about a claim: a mean with its interval, and a verdict by a rule fixed before."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from vitreous.addons.studies.study import Claim, TrialResult, Variant
from vitreous.evaluation.comparison import holm
from vitreous.evaluation.scores import Interval, half_width
from vitreous.languages import phrase, words

VerdictName = Literal["seen", "not-seen", "undecided"]
LEVEL, POWER = 0.05, 0.8
PILOT = 5  # seeds whose results were known when the claims were chosen


@dataclass(frozen=True)
class TableRow:
    """A variant and its results, one for each seed."""

    variant: Variant
    results: Sequence[TrialResult]
    overlap: float = 0.0  # test images for each image that is learned from, where seeds split the same images

    def values(self, measure: str) -> list[float]:
        return [result.values[measure] for result in self.results]

    def mean(self, measure: str) -> float:
        return float(np.mean(self.values(measure)))

    def interval(self, measure: str) -> Interval:
        """Return the 95% interval, Student's, over the seeds, each of which drew images of its own; of splits
        of the same images with Nadeau and Bengio's correction."""
        mean, half = self.mean(measure), half_width(self.values(measure), self.overlap)
        return Interval(mean - half, mean + half)


@dataclass(frozen=True)
class Verdict:
    """What the seeds say about a claim."""

    claim: Claim
    seeds: tuple[float, ...]  # its value for each seed
    chosen: tuple[str, ...] = ()  # of each group that it names, the variant with the best validation
    holm: bool | None = None  # its verdict stays where all claims of a ledger are tested together (Holm 1979)
    overlap: float = 0.0  # as that of the rows
    unit: float | None = None  # the standard deviation of the null, in the measure's own unit

    @property
    def mean(self) -> float:
        return float(np.mean(self.seeds))

    @property
    def half_width(self) -> float:
        return half_width(self.seeds, self.overlap)

    @property
    def verdict(self) -> VerdictName:
        """The rule. "more": seen above 0; not seen where the interval ends below the margin. "alike": seen
        where the interval is within the margin; not seen where it is outside of it."""
        low, high, margin = self.mean - self.half_width, self.mean + self.half_width, self.claim.margin
        if self.claim.rule == "more":
            return "seen" if low > 0 else "not-seen" if high < margin else "undecided"
        if max(abs(low), abs(high)) < margin:
            return "seen"
        return "not-seen" if low > margin or high < -margin else "undecided"

    @property
    def in_ledger(self) -> VerdictName:
        """The verdict among all claims of a ledger: undecided where Holm's correction takes it away."""
        return "undecided" if self.holm is False else self.verdict

    @property
    def p_value(self) -> float:
        """Of the test of a decided claim, two-sided: Student's, against 0; for "alike" of the one-sided test
        against the nearer margin, doubled."""
        from scipy.stats import t

        count = len(self.seeds)
        spread = float(np.std(self.seeds, ddof=1)) if count > 1 else 0.0
        spread *= math.sqrt(1 / count + self.overlap)
        if not spread:
            return 0.0 if self.verdict != "undecided" else 1.0
        value = abs(self.mean)
        if self.claim.rule == "alike" and self.verdict != "undecided":
            value = abs(self.claim.margin - abs(self.mean))
        elif self.verdict == "not-seen" and self.claim.rule == "more":
            value = self.claim.margin - self.mean
        return float(2 * t.sf(value / spread, count - 1))

    @property
    def detectable(self) -> float:
        """The smallest true difference that so many seeds would have shown in four of five such studies."""
        if len(self.seeds) < 2:
            return math.inf
        from scipy.stats import t

        freedom = len(self.seeds) - 1
        quantiles = float(t.ppf(1 - LEVEL / 2, freedom)), float(t.ppf(POWER, freedom))
        return self.half_width * sum(quantiles) / quantiles[0]

    def number(self, value: float, sign: str = "") -> str:
        return f"{100 * value:{sign}.1f}" if self.claim.points else f"{value:{sign}.3g}"

    @property
    def difference(self) -> str:
        """The mean with its interval, and the unit."""
        unit = words("study")["points-unit" if self.claim.points else "null-unit"]
        margin = f" ± {self.number(self.half_width)}" if len(self.seeds) > 1 else ""
        size = f"{self.unit:.2g}" if self.unit else ""
        return phrase("study.difference", value=self.number(self.mean, "+") + margin, unit=unit, size=size)

    @property
    def text(self) -> str:
        """The verdict in words, with what could have been detected where nothing was decided."""
        name: str = "one-seed" if len(self.seeds) < 2 else self.in_ledger
        text: str = words("study.verdicts")[name]
        if name == "undecided" and self.verdict != "undecided":
            return phrase("study.verdicts.alone", verdict=text, alone=words("study.verdicts")[self.verdict])
        if name == "undecided":
            text = phrase("study.verdicts.limit", verdict=text, limit=self.number(self.detectable))
        return text

    def to_json(self, sentence: str) -> dict[str, object]:
        claim = self.claim
        return {
            "claim": claim.name,
            "sentence": sentence,
            "source": claim.source,
            "place": claim.place,
            "paper": claim.paper or None,
            "measure": claim.measure,
            "rule": claim.rule,
            "margin": claim.margin,
            "null": claim.null or None,
            "unit": self.unit,
            "terms": [list(term) for term in claim.terms],
            "chosen": list(self.chosen),
            "seeds": list(self.seeds),
            "mean": self.mean,
            "half_width": self.half_width if len(self.seeds) > 1 else None,
            "p_value": self.p_value,
            "detectable": self.detectable if len(self.seeds) > 1 else None,
            "verdict": self.verdict,
        }


def verdict(claim: Claim, rows: Sequence[TableRow]) -> Verdict:
    """Return the value of the claim for each seed that all its variants have: paired, since the variants of a
    seed share images and order. Of ten seeds or more on generated images those of the pilot are left out: a
    verdict stands on seeds that were drawn after its design."""
    named = [row_named(name, rows, claim.measure) for _, name in claim.terms]
    seeds = min(len(row.results) for row in named)
    total, chosen = np.zeros(seeds), []
    for (weight, name), row in zip(claim.terms, named, strict=True):
        total += weight * np.array(row.values(claim.measure)[:seeds])
        chosen += [row.variant.name] if row.variant.name != name else []
    if seeds >= 2 * PILOT and not rows[0].overlap:
        total = total[PILOT:]
    unit = None
    if claim.null:
        unit = float(np.std(row_named(claim.null, rows).values(claim.measure), ddof=1))
        total /= unit
    return Verdict(claim, tuple(total.tolist()), tuple(chosen), overlap=rows[0].overlap, unit=unit)


def row_named(name: str, rows: Sequence[TableRow], measure: str = "accuracy") -> TableRow:
    """Return the row of a variant, or of a group the one with the best mean of the measure on validation
    images."""
    named = [row for row in rows if row.variant.name == name]
    members = named or [row for row in rows if row.variant.group == name]
    chosen_by = "few-shot-validation" if measure == "few-shot" else "validation"
    return members[0] if len(members) == 1 else max(members, key=lambda row: row.mean(chosen_by))


def with_holm(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Return the verdicts with whether each of the decided ones stays when all are tested together (Holm)."""
    adjusted = holm([each.p_value for each in verdicts])
    found: list[Verdict] = []
    for verdict, p_value in zip(verdicts, adjusted, strict=True):
        stays = p_value <= LEVEL if verdict.verdict != "undecided" else None
        found.append(replace(verdict, holm=stays))
    return found
