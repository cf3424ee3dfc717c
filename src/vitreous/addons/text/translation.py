"""Translation: text to text with the Transformer of 2017 (arXiv 1706.03762)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Unpack

from torch import nn

from vitreous.addons.text.batches import encode_pairs, pair_loader
from vitreous.addons.text.evaluation import TranslationEvaluation, evaluate_translator
from vitreous.addons.text.models import Translator
from vitreous.addons.text.task import (
    RECIPES,
    TRAINING_FACTS,
    LoaderOptions,
    TextLoader,
    TextTask,
    TranslationConfig,
    pairs_config,
)
from vitreous.addons.text.text_pairs import BUNDLED, NUMBERS, Pair, Parallel, open_parallel
from vitreous.addons.text.tokenizer import Tokenizer
from vitreous.addons.text.transformer import Transformer
from vitreous.tasks.recipe_choice import packaged_config
from vitreous.tasks.task import About, Card, Trained

SHORT = 80  # characters: a page holds the maps of every head


class Translation(TextTask[TranslationConfig, Parallel, Translator]):
    """Texts for texts."""

    name, config, answers = "translation", TranslationConfig, Translator
    about = About(
        noun="a translator",
        card=Card(
            "A Transformer (arXiv 1706.03762): {model.encoder_depth} encoder and {model.depth} decoder "
            "layers of width {model.width}, {model.heads} heads, {model.norm}-norm; one byte-pair vocabulary "
            "of {model.vocabulary} tokens",
            {**TRAINING_FACTS, "BLEU signature": "{bleu_signature}"},
            'translate RUN "..."',
            "ids = model(source, target)  # see vt.Translator for texts",
            "The figures hold for texts like those it was measured on.",
        ),
        source=NUMBERS,
        panels="text",
        inspected=4,
        no_images="use vitreous translate",
        evaluation_options=frozenset({"beams", "length_penalty"}),
        options={},
    )

    def open_source(self, source: str, config: TranslationConfig) -> Parallel:
        return open_parallel(source, **config.split_options)

    def recipe(self, source: str, data: Parallel) -> TranslationConfig:
        if source in BUNDLED:
            return packaged_config(TranslationConfig, RECIPES / f"{source}.toml")
        return pairs_config(len(data.train))

    def training_texts(self, data: Parallel) -> list[str]:
        texts: list[str] = []
        for pair in data.train:
            texts += (pair.source, pair.target)
        return texts

    def batches(
        self,
        config: TranslationConfig,
        data: Parallel,
        tokenizer: Tokenizer,
        **options: Unpack[LoaderOptions],
    ) -> tuple[TextLoader, int, int]:
        encoded = encode_pairs(data.train, tokenizer, config.model.max_length)
        loader = pair_loader(  # tokens are small: a step moves them to the device
            encoded,
            batch_size=options["batch_size"],
            seed=options["seed"],
            rank=options["rank"],
            world_size=options["world_size"],
        )
        return loader, len(encoded.sources), encoded.too_long

    def build(self, config: TranslationConfig, data: Parallel, *, steps: int) -> nn.Module:
        return Transformer(config.model, seed=config.seed)

    def not_learned(self, data: Parallel) -> list[Pair]:
        return data.train + data.test

    def evaluate(
        self, answerer: Translator, examples: Sequence[Pair], **options: Any
    ) -> TranslationEvaluation:
        """Translate every source, and compare. options: `beams` and `length_penalty` of the search."""
        used = {"batch_size", "beams", "length_penalty", "world"} & options.keys()
        return evaluate_translator(answerer, examples, **{name: options[name] for name in used})

    def report(
        self,
        trained: Trained[TranslationConfig, Parallel],
        answerer: Translator,
        evaluation: Any,
        **more: Any,
    ) -> Path:
        from vitreous.addons.text.figures import Measured, write_translation_report

        texts, path = self.to_inspect(trained.data.test), trained.run.path
        measured = Measured(evaluation, more["findings"])
        return write_translation_report(answerer, texts, path, path, measured).report

    def to_inspect(self, examples: Sequence[Pair]) -> list[str]:
        """Return the sources of a few pairs, spread over all; short ones where there are some."""
        sources = [pair.source for pair in examples]
        few = [source for source in sources if len(source) <= SHORT] or sources
        return few[:: max(len(few) // self.about.inspected, 1)][: self.about.inspected]

    def more(self, trained: Trained[TranslationConfig, Parallel]) -> dict[str, object]:
        return {**super().more(trained), "example": trained.data.test[0].source}


DEFINED = (Translation(),)
