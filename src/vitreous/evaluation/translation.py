"""A translator against translations that are known: BLEU, chrF, and how many are the same to the letter."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vitreous.data.text.parallel import Pair
from vitreous.errors import require_packages
from vitreous.evaluation.result import Evaluation, Metric
from vitreous.evaluation.scores import wilson_interval
from vitreous.evaluation.text_models import TEXT_BATCH, Translator

SHOWN = 20  # mistakes in the JSON


@dataclass(frozen=True)
class TranslationEvaluation(Evaluation):
    """What a translator made of each pair's source.

    Attributes:
        pairs: with the translations that were wanted.
        texts: its own.
        too_long: sources that have more tokens than it reads; they count as wrong.
        bleu, chrf: 0 ... 100, by sacrebleu with its default settings, which `signature` tells.
        seconds: of translating.
    """

    task, of = "translation", "pairs"

    pairs: Sequence[Pair]
    texts: Sequence[str]
    too_long: int
    bleu: float
    chrf: float
    signature: str
    seconds: float
    failed: Mapping[str, str] = field(default_factory=dict)

    @property
    def exact(self) -> int:
        """How many are the same to the letter."""
        return sum(pair.target == text for pair, text in zip(self.pairs, self.texts, strict=True))

    @property
    def mistakes(self) -> list[dict[str, str]]:
        return [
            {"source": pair.source, "wanted": pair.target, "translated": text}
            for pair, text in zip(self.pairs, self.texts, strict=True)
            if pair.target != text
        ]

    @property
    def count(self) -> int:
        return len(self.pairs)

    @property
    def metrics(self) -> dict[str, Metric]:
        exact = wilson_interval(self.exact, self.count)
        return {
            "exact_match": Metric(self.exact / max(self.count, 1), "exact match", exact),
            "bleu": Metric(self.bleu, "BLEU", rate=False),
            "chrf": Metric(self.chrf, "chrF", rate=False),
        }

    def details(self) -> dict[str, Any]:
        return {
            "bleu_signature": self.signature,
            "too_long": self.too_long,
            "mistakes": self.mistakes[:SHOWN],
        }


def evaluate_translator(
    translator: Translator,
    pairs: Sequence[Pair],
    *,
    beams: int = 4,
    length_penalty: float = 0.6,
    batch_size: int = TEXT_BATCH,
) -> TranslationEvaluation:
    """Translate every source with a beam, `batch_size` of them together, and compare."""
    longest = translator.model.config.max_length
    readable = [len(translator.tokenizer.encode(pair.source)) < longest for pair in pairs]
    begun = time.perf_counter()
    sources = [pair.source for pair, can in zip(pairs, readable, strict=True) if can]
    found = iter(
        translator.translate(sources, beams=beams, length_penalty=length_penalty, batch_size=batch_size)
    )
    texts = [next(found).text if can else "" for can in readable]
    seconds = time.perf_counter() - begun
    bleu, chrf, signature = scores(texts, [pair.target for pair in pairs])
    return TranslationEvaluation(pairs, texts, readable.count(False), bleu, chrf, signature, seconds)


def scores(texts: Sequence[str], wanted: Sequence[str]) -> tuple[float, float, str]:
    """BLEU and chrF of a corpus, and sacrebleu's signature of the first."""
    require_packages("sacrebleu", extra="text", what="a translator's BLEU and chrF")
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    bleu = BLEU()
    score = bleu.corpus_score(list(texts), [list(wanted)]).score
    chrf = CHRF().corpus_score(list(texts), [list(wanted)]).score
    return score, chrf, str(bleu.get_signature())
