"""Runs of one task side by side: their scores on the same examples, their settings, and where they differ."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from vitreous.evaluation.result import Answers, AnswerValue, Evaluation
from vitreous.evaluation.scores import ExampleScores, Interval, quantile_interval
from vitreous.languages import phrase, words
from vitreous.results import Result, percent
from vitreous.training.callbacks import MetricsRow

MOST_NAMED = 100  # differing examples in the JSON
SIGNIFICANT = 0.05


class ComparedRun(NamedTuple):
    """A run that is compared."""

    name: str
    path: Path
    parameters: int
    rows: Sequence[MetricsRow]  # of metrics.jsonl
    settings: Mapping[str, object]  # the leaves of its configuration
    evaluation: Evaluation | None = None  # of its held-out part; None: single examples have no answers


@dataclass(frozen=True)
class Comparison(Result):
    """Two or more runs of a task, compared with the first of them.

    Attributes:
        common: the evaluations of the examples that all runs have held out, in one order; empty where there
            are none.
        relabeled: examples that are left out, since the runs' data name different answers.
        report: the page.
    """

    task: str
    runs: tuple[ComparedRun, ...]
    common: tuple[Evaluation, ...] = ()
    relabeled: int = 0
    report: Path | None = None

    @property
    def count(self) -> int:
        """The examples that all runs are compared on."""
        return self.common[0].count if self.common else 0

    @cached_property
    def differences(self) -> list[PairedDifference]:
        """Of each run but the first, to the first."""
        scores = [found for each in self.common if (found := each.scores()) is not None]
        return [paired_difference(each, scores[0]) for each in scores[1:]]

    @property
    def p_values(self) -> list[float]:
        """Of the differences, adjusted for their number."""
        return holm([each.p_value for each in self.differences])

    @cached_property
    def settings(self) -> dict[str, list[object]]:
        """The settings on which the runs differ, with the value of each; None where one lacks it."""
        found = dict[str, list[object]]()
        for name in dict.fromkeys(chain.from_iterable(run.settings for run in self.runs)):
            values = [run.settings.get(name) for run in self.runs]
            if values.count(values[0]) < len(values):
                found[name] = values
        return found

    @cached_property
    def by_class(self) -> dict[str, list[float]]:
        """The score of each class that all runs know, those that differ most first."""
        scores = [evaluation.by_class() for evaluation in self.common]
        if not scores:
            return {}
        shared = set(scores[0]).intersection(*scores[1:])
        rows = dict[str, list[float]]()
        for name in scores[0]:
            if name in shared:
                rows[name] = [each[name] for each in scores]
        return dict(sorted(rows.items(), key=lambda row: min(row[1]) - max(row[1])))

    @cached_property
    def answers(self) -> list[Answers]:
        """The answers of each run to the common examples, with the class numbers of the first run."""
        found: list[Answers] = []
        for evaluation in self.common:
            answers = evaluation.answers()
            if answers is not None:
                found.append(in_classes(answers, found[0].classes if found else answers.classes))
        return found

    @cached_property
    def differing(self) -> Int[np.ndarray, " n"]:
        """The common examples that the runs answer differently, those whose losses differ most first."""
        if not self.answers:
            return np.zeros(0, dtype=int)
        given = zip(*(each.given for each in self.answers), strict=True)
        rows = np.flatnonzero([len(set(map(str, answers))) > 1 for answers in given])
        losses = np.array([np.nan_to_num(each.loss) for each in self.answers])[:, rows]
        return rows[np.argsort(-np.ptp(losses, axis=0), kind="stable")]

    def notes(self) -> list[str]:
        """Say what is compared, in sentences."""
        names = ", ".join(f"{run.name}: {run.evaluation.count:,}" for run in self.runs if run.evaluation)
        if not any(run.evaluation for run in self.runs):
            return [phrase("compared.curves-only")]
        if not self.common:
            return [phrase("compared.nothing-in-common", names=names)]
        whole = all(run.evaluation and run.evaluation.count == self.count for run in self.runs)
        said = [phrase(f"compared.{'all' if whole else 'shared'}", count=self.count, names=names)]
        if self.relabeled:
            said.append(phrase("compared.relabeled", count=self.relabeled))
        return said

    def verdicts(self) -> list[str]:
        """Say of each run but the first whether it is better or worse, in a sentence."""
        if not self.differences or not (scores := self.common[0].scores()):
            return []
        said = []
        for run, found, p_value in zip(self.runs[1:], self.differences, self.p_values, strict=True):
            better = (found.difference > 0) != scores.lower
            kind = "alike" if not p_value < SIGNIFICANT else "better" if better else "worse"
            said.append(
                phrase(
                    f"compared.{kind}",
                    run=run.name,
                    first=self.runs[0].name,
                    score=phrase(f"scores.{scores.name}"),
                    difference=difference_text(found.difference, rate=scores.rate),
                    low=difference_text(found.interval.low, rate=scores.rate),
                    high=difference_text(found.interval.high, rate=scores.rate),
                    p=f"{p_value:.2g}",
                    exact=scores.right is not None,
                    more=found.better,
                    fewer=found.worse,
                )
            )
        return said

    def table(self) -> list[dict[str, object]]:
        """Return one row for each run: its metrics on the common examples, else on its own."""
        rows = []
        for number, run in enumerate(self.runs):
            evaluation = self.common[number] if self.common else run.evaluation
            last = run.rows[-1] if run.rows else {}
            row: dict[str, object] = {"run": run.name, "examples": evaluation.count if evaluation else None}
            for name, metric in (evaluation.metrics if evaluation else {}).items():
                row[name] = metric.value
            if not evaluation:
                row |= {name: last.get(name) for name in ("loss", "validation_loss")}
            if self.differences:
                found = self.differences[number - 1] if number else None
                row["difference"] = found.difference if found else 0.0
                row["low"], row["high"] = found.interval if found else (0.0, 0.0)
                row["p_value"] = self.p_values[number - 1] if found else None
            row |= {"parameters": run.parameters, "epochs": last.get("epoch"), "seconds": last.get("seconds")}
            rows.append(row)
        return rows

    def lines(self) -> list[list[str]]:
        """Return `table` for people: a header with the runs, then a line for each number."""
        compared = self.common or [run.evaluation for run in self.runs if run.evaluation]
        lines = [["", *(run.name for run in self.runs)]]
        lines += metric_lines(compared) if len(compared) == len(self.runs) else loss_lines(self.runs)
        lines += self.difference_lines()
        lines.append([phrase("facts.parameters"), *(f"{run.parameters:,}" for run in self.runs)])
        for name, label in (("epoch", "epochs"), ("seconds", "time")):
            line = [phrase(f"facts.{label}")]
            for run in self.runs:
                value = run.rows[-1].get(name, 0) if run.rows else 0
                line.append(phrase(f"facts.values.{label}", value=value))
            lines.append(line)
        return lines

    def difference_lines(self) -> list[list[str]]:
        """Return the differences to the first run, their intervals and p-values."""
        scores = self.common[0].scores() if self.common else None
        if not self.differences or scores is None:
            return []
        label = phrase("compared.difference", score=phrase(f"scores.{scores.name}"))
        values, intervals = [label, "–"], [phrase("compared.interval"), "–"]
        for found in self.differences:
            low, high = (difference_text(end, rate=scores.rate) for end in found.interval)
            values.append(difference_text(found.difference, rate=scores.rate))
            intervals.append(f"{low} … {high}")
        return [values, intervals, ["p", "–", *(f"{p_value:.2g}" for p_value in self.p_values)]]

    def to_json(self) -> dict[str, object]:
        score = self.common[0].scores() if self.common else None
        runs: list[dict[str, object]] = []
        for run, row in zip(self.runs, self.table(), strict=True):
            held_out: dict[str, object] = {"count": None}
            if run.evaluation:
                held_out = {"count": run.evaluation.count, **run.evaluation.metrics_to_json()}
            runs.append({"path": str(run.path), **row, "held_out": held_out})
        differences: list[dict[str, object]] = []
        for run, found, p_value in zip(self.runs[1:], self.differences, self.p_values, strict=False):
            names = {"run": run.name, "minus": self.runs[0].name}
            interval = list(found.interval)
            differences.append(
                {**names, **found._asdict(), "interval": interval, "adjusted_p_value": p_value}
            )
        return {
            "task": self.task,
            "report": str(self.report) if self.report else None,
            "count": self.count,
            "score": score.name if score else None,
            "notes": self.notes(),
            "verdicts": self.verdicts(),
            "runs": runs,
            "differences": differences,
            "settings": self.settings,
            "per_class": [{"label": label, "values": row} for label, row in self.by_class.items()],
            "differing_count": len(self.differing),
            "differing": [self.example(row) for row in self.differing[:MOST_NAMED].tolist()],
        }

    def example(self, row: int) -> dict[str, Any]:
        """Return a common example with its answers in words."""
        first = self.answers[0]
        given = [answer_in_words(each.given[row], each.classes) for each in self.answers]
        return {
            "name": self.common[0].names[row],
            "true": answer_in_words(first.true[row], first.classes),
            "answers": given,
        }


def metric_lines(compared: Sequence[Evaluation]) -> list[list[str]]:
    """Return the number of examples, and each metric of evaluations; "–" where one lacks it."""
    lines = [[phrase("compared.examples"), *(f"{each.count:,}" for each in compared)]]
    labels = dict[str, str]()
    for each in compared:
        labels.update({name: metric.label for name, metric in each.metrics.items()})
    for name, label in labels.items():
        line = [words("metrics").get(name, label)]
        for each in compared:
            metric = each.metrics.get(name)
            if metric is None:
                line.append("–")
                continue
            written = percent if metric.rate else metric.text
            text = written(metric.value)
            if metric.interval:
                text += f" ({written(metric.interval.low)} … {written(metric.interval.high)})"
            line.append(text)
        lines.append(line)
    return lines


def loss_lines(runs: Sequence[ComparedRun]) -> list[list[str]]:
    """Return the last losses of runs, which have no evaluation in common."""
    lines = []
    for name in ("loss", "validation_loss"):
        values = [run.rows[-1].get(name) if run.rows else None for run in runs]
        if any(value is not None for value in values):
            shown = ["–" if value is None else f"{value:.4f}" for value in values]
            lines.append([phrase(f"facts.{name.replace('_', '-')}"), *shown])
    return lines


def answer_in_words(value: AnswerValue, classes: Sequence[str]) -> str:
    """Return what a class number, several, a number or a text means."""
    if isinstance(value, list):
        return ", ".join(classes[each] for each in value)
    if isinstance(value, str):
        return value
    return classes[int(value)] if classes else f"{value:.4g}"


def in_classes(answers: Answers, classes: Sequence[str]) -> Answers:
    """Return answers with the class numbers of another list; classes that are missing there come after it."""
    if list(answers.classes) == list(classes):
        return answers
    every = [*classes, *(name for name in answers.classes if name not in classes)]
    numbers = [every.index(name) for name in answers.classes]

    def renumbered(values: Sequence[AnswerValue]) -> list[AnswerValue]:
        found: list[AnswerValue] = []
        for value in values:
            if isinstance(value, list):
                found.append([numbers[each] for each in value])
            else:
                assert isinstance(value, int)
                found.append(numbers[value])
        return found

    return answers._replace(classes=every, true=renumbered(answers.true), given=renumbered(answers.given))


def compare_runs(task: str, runs: Sequence[ComparedRun]) -> Comparison:
    """Compare runs on the examples that all of them have held out and agree on."""
    whole = [run.evaluation for run in runs if run.evaluation]
    if len(whole) < len(runs):
        return Comparison(task, tuple(runs))
    places = common_examples([each.names for each in whole])
    if not len(places[0]):
        return Comparison(task, tuple(runs))
    common = [each.subset(rows) for each, rows in zip(whole, places, strict=True)]
    rows = np.arange(len(places[0]))
    labels: list[list[str]] = []  # what is true of each example, as the data of each run has it
    for evaluation in common:
        answers = evaluation.answers()
        if answers is not None:
            names = [answer_in_words(value, answers.classes) for value in answers.true]
            labels.append(names)
    if labels:
        rows = np.flatnonzero([len(set(names)) == 1 for names in zip(*labels, strict=True)])
    relabeled = len(places[0]) - len(rows)
    if relabeled:
        common = [each.subset(rows) for each in common] if len(rows) else []
    return Comparison(task, tuple(runs), tuple(common), relabeled)


def difference_text(value: float, *, rate: bool) -> str:
    """Return a difference with its sign, of shares in points."""
    return (
        phrase("compared.points", value=f"{100 * value:+.1f}".replace("-", "−")) if rate else f"{value:+.4g}"
    )


RESAMPLES = 10_000  # of the bootstrap, and of the signs
AT_ONCE = 1 << 22  # numbers that are sampled together


class PairedDifference(NamedTuple):
    """The score of a model minus that of another on the same examples."""

    difference: float
    interval: Interval  # 95%, from bootstrap samples of the examples
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
    """Return the 95% interval of the mean when the examples are sampled again, with replacement."""
    if not len(differences):
        return Interval(math.nan, math.nan)
    rng = np.random.default_rng(0)
    values, counts = np.unique(differences, return_counts=True)
    # Of right and wrong, how often each value is sampled says all.
    if len(values) <= 3:
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
