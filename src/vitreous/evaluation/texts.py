"""Models that write text against texts that are known: translations, and the texts of images."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vitreous.data.text.captions import Captions
from vitreous.data.text.parallel import Pair
from vitreous.errors import require_packages
from vitreous.evaluation.outputs import image_batches
from vitreous.evaluation.paired import ExampleScores
from vitreous.evaluation.result import Answers, Evaluation, Metric, TextTable
from vitreous.evaluation.scores import wilson_interval
from vitreous.evaluation.text_models import IMAGE_BATCH, TEXT_BATCH, Reader, Translator

SHOWN = 20  # mistakes in the JSON


@dataclass(frozen=True, kw_only=True)
class TextEvaluation(Evaluation):
    """What a model wrote for each example.

    Attributes:
        names: the name of each image, or the source text.
        wanted: the texts that are known.
        texts: the model's.
    """

    per_example = ("wanted", "texts")

    wanted: Sequence[str]
    texts: Sequence[str]

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
        """(name or source, known text, model's text) where the two texts differ."""
        rows = zip(self.names, self.wanted, self.texts, strict=True)
        return [row for row in rows if row[1] != row[2]]

    def exact(self, label: str) -> Metric:
        """Return the share of texts that are right to the letter."""
        hits = self.count - len(self.mistakes)
        return Metric(hits / max(self.count, 1), label, wilson_interval(hits, self.count))

    def named_mistakes(self, *names: str) -> list[dict[str, str]]:
        """Return some of the mistakes with a name for each of their three texts."""
        return [dict(zip(names, row, strict=True)) for row in self.mistakes[:SHOWN]]


@dataclass(frozen=True, kw_only=True)
class CaptioningEvaluation(TextEvaluation):
    """What a reader made of each image."""

    task = "captioning"

    @property
    def characters(self) -> float:
        """1 - (insertions, deletions and replacements) / (characters of the known texts): one minus the
        character error rate; 0 where that is above 1, which it is where too much was written."""
        wrong = sum(edits(want, text) for want, text in zip(self.wanted, self.texts, strict=True))
        return max(1 - wrong / sum(len(want) for want in self.wanted), 0.0)

    @property
    def metrics(self) -> dict[str, Metric]:
        return {
            "line_accuracy": self.exact("lines right"),
            "character_accuracy": Metric(self.characters, "characters right"),
        }

    def details(self) -> dict[str, Any]:
        return {"mistakes": self.named_mistakes("image", "wanted", "read")}

    def tables(self) -> list[TextTable]:
        if not self.mistakes:
            return []
        return [TextTable("mistakes", ("image", "text", "read"), self.mistakes[:5], words=3)]


@dataclass(frozen=True, kw_only=True)
class TranslationEvaluation(TextEvaluation):
    """What a translator made of each pair's source.

    Attributes:
        too_long: sources that have more tokens than it reads; they count as wrong.
        bleu, chrf: 0 ... 100, by sacrebleu with its default settings, which `signature` says.
    """

    task, of = "translation", "pairs"

    too_long: int
    bleu: float
    chrf: float
    signature: str

    def subset(self, rows: Sequence[int] | np.ndarray) -> Any:
        some = super().subset(rows)
        bleu, chrf, _ = corpus_scores(some.texts, some.wanted)
        return replace(some, bleu=bleu, chrf=chrf)

    @property
    def metrics(self) -> dict[str, Metric]:
        return {
            "exact_match": self.exact("exact match"),
            "bleu": Metric(self.bleu, "BLEU", rate=False),
            "chrf": Metric(self.chrf, "chrF", rate=False),
        }

    def details(self) -> dict[str, Any]:
        return {
            "bleu_signature": self.signature,
            "too_long": self.too_long,
            "mistakes": self.named_mistakes("source", "wanted", "translated"),
        }


def evaluate_reader(
    reader: Reader, captions: Captions, *, beams: int = 4, batch_size: int = IMAGE_BATCH
) -> CaptioningEvaluation:
    """Read every image with a beam, `batch_size` of them together, and compare."""
    began = time.perf_counter()
    rows: list[int] = []
    texts: list[str] = []
    failed: dict[str, str] = {}
    for some in image_batches(captions.images, batch_size, failed):
        found = reader.read([image for _, image in some], beams=beams, batch_size=batch_size)
        rows += [row for row, _ in some]
        texts += [each.text for each in found]
    return CaptioningEvaluation(
        names=[captions.images.name(row) for row in rows],
        indices=rows,
        wanted=[captions.texts[row] for row in rows],
        texts=texts,
        failed=failed,
        seconds=time.perf_counter() - began,
    )


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
    began = time.perf_counter()
    sources = [pair.source for pair, can in zip(pairs, readable, strict=True) if can]
    found = iter(
        translator.translate(sources, beams=beams, length_penalty=length_penalty, batch_size=batch_size)
    )
    texts = [next(found).text if can else "" for can in readable]
    seconds = time.perf_counter() - began
    wanted = [pair.target for pair in pairs]
    bleu, chrf, signature = corpus_scores(texts, wanted)
    return TranslationEvaluation(
        names=[pair.source for pair in pairs],
        indices=range(len(pairs)),
        wanted=wanted,
        texts=texts,
        failed={},
        seconds=seconds,
        too_long=readable.count(False),
        bleu=bleu,
        chrf=chrf,
        signature=signature,
    )


def corpus_scores(texts: Sequence[str], wanted: Sequence[str]) -> tuple[float, float, str]:
    """Return BLEU and chrF of a corpus, and sacrebleu's signature of the first."""
    require_packages("sacrebleu", extra="text", what="a translator's BLEU and chrF")
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    bleu = BLEU()
    score = bleu.corpus_score(list(texts), [list(wanted)]).score
    chrf = CHRF().corpus_score(list(texts), [list(wanted)]).score
    return score, chrf, str(bleu.get_signature())


def edits(wanted: str, text: str) -> int:
    """Return the fewest insertions, deletions and replacements from one text to the other (Levenshtein,
    1966)."""
    row = list(range(len(text) + 1))
    for i, letter in enumerate(wanted, start=1):
        above, row[0] = row[0], i
        for j, other in enumerate(text, start=1):
            above, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, above + (letter != other))
    return row[-1]
