"""Models against each other on the same examples: paired differences, their intervals and tests."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from vitreous.evaluation.scores import Interval, quantile_interval

RESAMPLES = 10_000  # of the bootstrap, and of the signs
AT_ONCE = 1 << 22  # numbers that are sampled together


class ExampleScores(NamedTuple):
    """How good the answer to each example is, for paired comparisons."""

    name: str  # of the score, in the catalog of the pages
    values: Float[np.ndarray, " N"]  # one for each example; NaN where nothing can be said
    rate: bool = True  # whether they are shares, written in percent
    lower: bool = False  # whether a lower one is better

    @property
    def right(self) -> Bool[np.ndarray, " N"] | None:
        """Which answers are right, where each is right or wrong."""
        return self.values == 1 if np.isin(self.values, (0, 1)).all() else None


class PairedDifference(NamedTuple):
    """The score of a model minus that of another on the same examples."""

    difference: float
    interval: Interval  # 95 %, from bootstrap samples of the examples
    p_value: float  # of no difference: McNemar's exact test, or a permutation test of the signs
    better: int  # examples with a higher score
    worse: int  # those with a lower one


def paired_difference(scores: ExampleScores, others: ExampleScores) -> PairedDifference:
    """Compare the scores of a model with those of another on the same examples, in the same order."""
    known = ~(np.isnan(scores.values) | np.isnan(others.values))
    differences = (scores.values - others.values)[known]
    better, worse = int((differences > 0).sum()), int((differences < 0).sum())
    binary = scores.right is not None and others.right is not None
    p_value = mcnemar(better, worse) if binary else sign_test(differences)
    mean = float(differences.mean()) if len(differences) else math.nan
    return PairedDifference(mean, bootstrap_interval(differences), p_value, better, worse)


def mcnemar(better: int, worse: int) -> float:
    """Return the two-sided p-value of McNemar's exact test (1947): if the two models were equally good, each
    example on which one of them alone is right would be either's with probability 1/2."""
    from scipy.stats import binomtest

    return float(binomtest(better, better + worse).pvalue) if better != worse else 1.0


def sign_test(differences: Float[np.ndarray, " N"]) -> float:
    """Return the two-sided p-value of a permutation test: if the two models were equally good, each
    difference could as well have the other sign."""
    if not differences.any():
        return 1.0
    rng, observed, extreme = np.random.default_rng(0), abs(differences.sum()), 0
    for count in chunks(len(differences)):
        signs = 2 * rng.integers(0, 2, (count, len(differences)), dtype=np.int8) - 1
        extreme += int((np.abs(signs @ differences) >= observed * (1 - 1e-9)).sum())
    return (extreme + 1) / (RESAMPLES + 1)


def bootstrap_interval(differences: Float[np.ndarray, " N"]) -> Interval:
    """Return the 95 % interval of the mean when the examples are sampled again, with replacement."""
    if not len(differences):
        return Interval(math.nan, math.nan)
    rng = np.random.default_rng(0)
    values, counts = np.unique(differences, return_counts=True)
    if len(values) <= 3:  # of right and wrong: how often each value is sampled says all
        sampled = rng.multinomial(len(differences), counts / len(differences), RESAMPLES)
        return quantile_interval(sampled @ values / len(differences))
    means = []
    for count in chunks(len(differences)):
        rows = rng.integers(0, len(differences), (count, len(differences)))
        means.append(differences[rows].mean(axis=1))
    return quantile_interval(np.concatenate(means))


def chunks(width: int) -> Iterable[int]:
    """Yield parts of the resamples that fit the memory, of so many numbers each."""
    size = max(AT_ONCE // max(width, 1), 1)
    for start in range(0, RESAMPLES, size):
        yield min(size, RESAMPLES - start)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values adjusted for their number (Holm, 1979)."""
    adjusted, highest = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(np.argsort(p_values).tolist()):
        highest = max(highest, min(p_values[place] * (len(p_values) - rank), 1.0))
        adjusted[place] = highest
    return adjusted


def common_examples(names: Sequence[Sequence[str]]) -> list[Int[np.ndarray, " N"]]:
    """Return for each list of names the places of those that all lists have, in the order of the first; a
    name that occurs several times is matched occurrence by occurrence."""
    places = []
    for listed in names:
        seen: Counter[str] = Counter()
        keys = {}
        for place, name in enumerate(listed):
            keys[name, seen[name]] = place
            seen[name] += 1
        places.append(keys)
    in_all = set(places[0]).intersection(*places[1:])
    shared = [key for key in places[0] if key in in_all]
    found: list[Int[np.ndarray, " N"]] = []
    for keys in places:
        rows = [keys[key] for key in shared]
        found.append(np.array(rows, dtype=int))
    return found
