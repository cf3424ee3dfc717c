"""Translation: text to text with the Transformer of 2017 (arXiv 1706.03762)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import nn

from vitreous.data.text.batches import encode_pairs, pair_loader
from vitreous.data.text.parallel import NUMBERS, Pair, Parallel, open_parallel
from vitreous.data.text.tokenizer import Tokenizer, tokenizer_from_json
from vitreous.deployment.serving.endpoints import Limits, Served
from vitreous.evaluation.result import Evaluation
from vitreous.evaluation.text_models import Translator
from vitreous.evaluation.translation import TranslationEvaluation, evaluate_translator
from vitreous.models.transformer import Transformer
from vitreous.tasks.task import Card, Material, Progress
from vitreous.tasks.text.captioning import text_facts
from vitreous.tasks.text.config import TranslationConfig
from vitreous.tasks.text.recipes import numbers_config, pairs_config
from vitreous.tasks.text.task import TextTask, check_tokenizer, check_unchanged
from vitreous.training.distributed import World
from vitreous.training.run import Run

if TYPE_CHECKING:
    from vitreous.inspection.model_report import Question
    from vitreous.inspection.page import Inspection

SHORT = 80  # characters: a page holds the maps of every head


class Translation(TextTask):
    """Texts for texts."""

    name = "translation"
    noun = "a translator"
    config = TranslationConfig
    default_source = NUMBERS
    no_images = "use vitreous translate"
    options: ClassVar[Mapping[str, frozenset[str]]] = {}
    takes = "texts"
    inspected = 4

    def open_source(self, source: str, *, seed: int, test_fraction: float) -> Parallel:
        return open_parallel(source, seed=seed, test_fraction=test_fraction)

    def recipe(self, source: str, examples: int) -> TranslationConfig:
        return numbers_config() if source == NUMBERS else pairs_config(examples)

    def prepare(
        self, config: TranslationConfig, data: Parallel, *, device: torch.device, world: World
    ) -> Material:
        world.share(config.training.batch_size)  # raises where the processes cannot share a batch
        texts = (text for pair in data.train for text in (pair.source, pair.target))
        tokenizer = Tokenizer.train(texts, config.tokenizer.vocabulary)
        longest = config.model.max_length
        encoded = encode_pairs(data.train, tokenizer, longest)
        loader = pair_loader(
            encoded,
            batch_size=config.training.batch_size,
            seed=config.seed,
            rank=world.rank,
            world_size=world.size,
        )
        skipped = {"empty": data.empty, "too_long": encoded.too_long}
        return self.material(
            loader, tokenizer, skipped, longest, examples=len(encoded.sources), bad=loader.bad
        )

    def random_model(self, config: TranslationConfig) -> nn.Module:
        return Transformer(config.model, seed=config.seed)

    def answerer(self, result: Any, material: Material) -> Translator:
        return Translator(result, tokenizer_from_json(material.tokenizer or "", where="the run"))

    def not_learned(self, data: Parallel) -> list[Pair]:
        return data.train + data.test

    def evaluate(
        self,
        answerer: Translator,
        examples: Sequence[Pair],
        *,
        device: torch.device,
        batch_size: int,
        workers: int = 0,
        progress: Progress | None = None,
        **options: Any,
    ) -> TranslationEvaluation:
        """Translate every source, and compare.

        Args:
            options: `beams` and `length_penalty` of the search.
        """
        return evaluate_translator(answerer, examples, batch_size=batch_size, **options)

    def report(
        self, run: Run, answerer: Any, evaluation: Evaluation | None, examples: Any, data: Any, **more: Any
    ) -> Path:
        from vitreous.inspection.sequence_report import write_translation_report

        return write_translation_report(answerer, self.to_inspect(examples), run.path, run.path).report

    def to_inspect(self, examples: Sequence[Pair]) -> list[str]:
        """Return the sources of a few pairs, spread over all; short ones where there are some."""
        sources = [pair.source for pair in examples]
        few = [source for source in sources if len(source) <= SHORT] or sources
        return few[:: max(len(few) // self.inspected, 1)][: self.inspected]

    def inspect(self, answerer: Any, examples: Sequence[Any], folder: Path, question: Question) -> Inspection:
        from vitreous.inspection.sequence_report import write_translation_report

        check_tokenizer(answerer)
        return write_translation_report(answerer, examples, folder, Path(question.name))

    def more(self, run: Run, answerer: Any, material: Material, data: Parallel) -> dict[str, Any]:
        return {**super().more(run, answerer, material, data), "example": data.test[0].source}

    def card(self, config: TranslationConfig, result: Mapping[str, Any]) -> Card:
        model = config.model
        return Card(
            f"A Transformer (arXiv 1706.03762): {model.encoder_depth} encoder and {model.depth} decoder "
            f"layers of width {model.width}, {model.heads} heads, {model.norm}-norm; one byte-pair "
            f"vocabulary of {model.vocabulary} tokens",
            {**text_facts(config, result), "BLEU signature": result["bleu_signature"].replace("|", " ")},
            'translate RUN "..."',
            "ids = model(source, target)  # see vt.Translator for texts",
            "The figures hold for texts like those it was measured on.",
        )

    def open(self, spec: str, **overrides: Any) -> Translator:
        check_unchanged(spec, overrides)
        return Translator.load(Path(spec).expanduser())

    def serve(self, answerer: Translator, device: torch.device, limits: Limits) -> Served:
        from vitreous.deployment.serving.writing import TextTranslator

        return TextTranslator(answerer)

    def examples(self, run: Path, config: TranslationConfig, count: int) -> Sequence[str]:
        """Return held-out numbers."""
        if config.source != NUMBERS:
            return ()
        pairs = open_parallel(NUMBERS, seed=config.seed, test_fraction=config.test_fraction).test
        # A step that is not a multiple of the six directions, so that each is seen; short ones are easier to
        # follow.
        rows = range(0, len(pairs) // 8, max(len(pairs) // 8 // count, 7) // 6 * 6 + 1)
        return [pairs[row].source for row in rows][:count]


DEFINED = (Translation(),)
