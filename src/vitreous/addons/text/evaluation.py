"""Translations against those that are known."""

from __future__ import annotations

import time
from collections import ChainMap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vitreous.addons.text.models import TEXT_BATCH, Translator
from vitreous.addons.text.text_pairs import Pair
from vitreous.errors import require_packages
from vitreous.evaluation.result import Answers, Evaluation, Metric
from vitreous.evaluation.scores import ExampleScores, Interval, quantile_interval, resamples, wilson_interval
from vitreous.training.distributed import ALONE, World

SHOWN = 20  # mistakes in the JSON


@dataclass(frozen=True, kw_only=True)
class TranslationEvaluation(Evaluation):
    """What a translator made of each pair's source.

    Attributes:
        names: the source texts.
        wanted: their known translations.
        texts: the translator's.
        too_long: sources that have more tokens than it reads; they count as wrong.
        bleu, chrf: 0 ... 100, by sacrebleu with its default settings, which `signature` says.
        bleu_interval, chrf_interval: 95% when the pairs are sampled again, with replacement (bootstrap).
    """

    task, of = "translation", "pairs"
    per_example = ("wanted", "texts")

    wanted: Sequence[str]
    texts: Sequence[str]
    too_long: int
    bleu: float
    chrf: float
    signature: str
    bleu_interval: Interval | None = None
    chrf_interval: Interval | None = None

    def scores(self) -> ExampleScores:
        return ExampleScores("exact", np.array([a == b for a, b in self.pairs()], dtype=float))

    def answers(self) -> Answers:
        right = np.array([a == b for a, b in self.pairs()])
        shares = [edits(want, text) / max(len(want), 1) for want, text in self.pairs()]
        return Answers((), self.wanted, self.texts, np.array(shares), right=right, loss_name="edits")

    def pairs(self) -> Iterator[tuple[str, str]]:
        """Yield each known text and the model's."""
        return zip(self.wanted, self.texts, strict=True)

    @property
    def mistakes(self) -> list[tuple[str, str, str]]:
        """(source, known text, model's text) where the two texts differ."""
        rows = zip(self.names, self.wanted, self.texts, strict=True)
        return [row for row in rows if row[1] != row[2]]

    def subset(self, rows: Sequence[int] | np.ndarray) -> Any:
        some = super().subset(rows)
        return replace(some, **corpus_scores(some.texts, some.wanted))

    @property
    def metrics(self) -> dict[str, Metric]:
        hits = self.count - len(self.mistakes)  # right to the letter
        exact = Metric(hits / max(self.count, 1), "exact match", wilson_interval(hits, self.count))
        return {
            "exact_match": exact,
            "bleu": Metric(self.bleu, "BLEU", self.bleu_interval, rate=False),
            "chrf": Metric(self.chrf, "chrF", self.chrf_interval, rate=False),
        }

    def details(self) -> dict[str, object]:
        mistakes = []
        for source, wanted, translated in self.mistakes[:SHOWN]:
            mistakes.append({"source": source, "wanted": wanted, "translated": translated})
        return {
            "bleu_signature": self.signature,
            "too_long": self.too_long,
            "mistakes": mistakes,
        }


def evaluate_translator(
    translator: Translator,
    pairs: Sequence[Pair],
    *,
    beams: int = 4,
    length_penalty: float = 0.6,
    batch_size: int = TEXT_BATCH,
    world: World = ALONE,
) -> TranslationEvaluation:
    """Translate every source with a beam, `batch_size` of similar length together, and compare; all processes
    of `world` share the batches."""
    longest = translator.model.config.max_length
    lengths = [len(translator.tokenizer.encode(pair.source)) for pair in pairs]
    readable = [row for row in sorted(range(len(pairs)), key=lengths.__getitem__) if lengths[row] < longest]
    began = time.perf_counter()
    starts = range(world.rank * batch_size, len(readable), world.size * batch_size)
    mine: list[int] = []
    for start in starts:
        mine += readable[start : start + batch_size]
    sources = [pairs[row].source for row in mine]
    found = translator.translate(sources, beams=beams, length_penalty=length_penalty, batch_size=batch_size)
    own = {row: each.text for row, each in zip(mine, found, strict=True)}
    written = dict(ChainMap(*world.gather(own)))
    texts = [written.get(row, "") for row in range(len(pairs))]
    seconds = time.perf_counter() - began
    wanted = [pair.target for pair in pairs]
    return TranslationEvaluation(
        names=[pair.source for pair in pairs],
        indices=range(len(pairs)),
        wanted=wanted,
        texts=texts,
        failed={},
        seconds=seconds,
        too_long=len(pairs) - len(readable),
        **corpus_scores(texts, wanted),
    )


def corpus_scores(texts: Sequence[str], wanted: Sequence[str]) -> dict[str, Any]:
    """Return what a `TranslationEvaluation` has of sacrebleu: BLEU and chrF of a corpus, with intervals where
    it has more than one pair, and BLEU's signature."""
    require_packages("sacrebleu", extra="text", what="a translator's BLEU and chrF")
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    resampled = resamples(len(texts))
    metrics: dict[str, Any] = {"bleu": BLEU(), "chrf": CHRF()}
    found: dict[str, Any] = {}
    for name, metric in metrics.items():
        found[name] = metric.corpus_score(list(texts), [list(wanted)]).score
        # What the score is computed from, summed over the pairs: sacrebleu's own way to its bootstrap.
        parts = np.array(metric._extract_corpus_statistics(list(texts), [list(wanted)]))
        scores = [metric._compute_score_from_stats(list(each)).score for each in resampled @ parts]
        interval = quantile_interval([float(each) for each in scores]) if len(texts) > 1 else None
        found[f"{name}_interval"] = interval
    return {**found, "signature": str(metrics["bleu"].get_signature())}


def edits(wanted: str, text: str) -> int:
    """Return the fewest insertions, deletions and replacements between two texts (Levenshtein, 1966)."""
    row = list(range(len(text) + 1))
    for i, letter in enumerate(wanted, start=1):
        above, row[0] = row[0], i
        for j, other in enumerate(text, start=1):
            above, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, above + (letter != other))
    return row[-1]
