"""Translation: text to text with the Transformer of 2017 (arXiv 1706.03762)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from vitreous.addons.text.batches import encode_pairs, pair_loader
from vitreous.addons.text.evaluation import TranslationEvaluation, evaluate_translator
from vitreous.addons.text.models import Translator
from vitreous.addons.text.task import (
    RECIPES,
    TOKENIZER,
    TRAINING_FACTS,
    TranslationConfig,
    absolute_sources,
    averaging,
    next_token,
    pairs_config,
)
from vitreous.addons.text.text_pairs import BUNDLED, NUMBERS, Pair, Parallel, open_parallel
from vitreous.addons.text.tokenizer import Tokenizer, tokenizer_from_json
from vitreous.addons.text.transformer import Transformer
from vitreous.data.findings import Finding
from vitreous.errors import InputError
from vitreous.languages.terminal import said
from vitreous.models.settings import merged
from vitreous.tasks.recipe_choice import packaged_config
from vitreous.tasks.task import Card, HeldOut, Material, Plan, Task, TaskInfo, Trained, Tree, config_of_run
from vitreous.training.place import Place
from vitreous.training.settings import configure
from vitreous.training.step import Objective


class Translation(Task[TranslationConfig, Parallel, Sequence[Pair], Translator]):
    """Texts for texts, with a tokenizer that is trained on the training texts."""

    name, config = "translation", TranslationConfig
    info = TaskInfo(
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
        no_images="use vitreous translate",
        evaluation_options=frozenset({"beams", "length_penalty"}),
        options={},
    )

    def plan(
        self,
        source: str | Parallel | None,
        settings: Tree,
        *,
        recipe: str | None = None,
        init: str | None = None,
        base: Tree | None = None,
    ) -> Plan[TranslationConfig, Parallel]:
        settings = merged(base or {}, settings)
        opened = None if isinstance(source, str) else source
        named = opened.name if opened else str(source or settings.get("source") or self.info.source)
        where = absolute_sources(named)
        settings = {**settings, "task": self.name, "source": where}
        # Those of model and training are set over the recipe, which the data decide.
        of_data = {name: value for name, value in settings.items() if name not in ("model", "training")}
        data = opened or self.open_data(configure(self.config(), of_data))
        known = packaged_config(self.config, RECIPES / f"{where}.toml") if where in BUNDLED else None
        config = configure(known or pairs_config(len(data.train)), settings)
        return Plan(self, config, data, data.name)

    def open_data(self, config: TranslationConfig, split: Path | None = None) -> Parallel:
        return open_parallel(config.source, **config.split_options)

    def prepare(self, config: TranslationConfig, data: Parallel, place: Place) -> Material:
        batch_size, world = config.training.batch_size, place.world
        world.share(batch_size)  # raises where the processes cannot share a batch
        texts: list[str] = []
        for pair in data.train:
            texts += (pair.source, pair.target)
        tokenizer = Tokenizer.train(texts, config.tokenizer.vocabulary)
        most = config.model.max_length
        encoded = encode_pairs(data.train, tokenizer, most)
        loader = pair_loader(  # tokens are small: a step moves them to the device
            encoded, batch_size=batch_size, seed=config.seed, rank=world.rank, world_size=world.size
        )
        notes = []
        if data.empty:
            notes.append(said("skipped {count}: without text", count=data.empty))
        if encoded.too_long:
            notes.append(said("skipped {count}: more than {most} tokens", count=encoded.too_long, most=most))
        return Material(
            loader,
            len(encoded.sources),
            loader.bad,
            {TOKENIZER: tokenizer.to_json()},
            {"empty": data.empty, "too_long": encoded.too_long},
            tuple(notes),
            fixed_shapes=False,
            averaging=averaging(config, config.training.total_steps(loader.steps_per_epoch)),
        )

    def objective(self, config: TranslationConfig, data: Parallel) -> Objective:
        return next_token(config.training.label_smoothing)

    def open(self, spec: str, **overrides: object) -> Translator:
        if overrides:
            raise InputError(f"{spec} writes text: its {next(iter(overrides))} cannot be changed")
        return Translator.load(spec)

    def answerer_of(
        self, model: Translator | nn.Module, files: Mapping[str, str] | None = None
    ) -> Translator:
        if files:
            return Translator(model, tokenizer_from_json(files[TOKENIZER], where="the run"))
        return Translator.of(model) if isinstance(model, nn.Module) else model

    def open_held_out(
        self, spec: str, answerer: Translator, data: str | None, settings: Tree
    ) -> HeldOut[Sequence[Pair]]:
        """Return the held-out part of what a run learned from; of other data all of it. Raises InputError:
        no data are named, and the model is not in a run."""
        config = config_of_run(spec, data, self.config) or self.config()
        source = absolute_sources(data) if data else config.source
        found = open_parallel(source, **config.split_options)
        if source == config.source:
            return HeldOut(source, "held-out part", found.test)
        return HeldOut(source, "all of it", found.train + found.test)

    def build(self, config: TranslationConfig, data: Parallel, *, steps: int) -> nn.Module:
        return Transformer(config.model, seed=config.seed)

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
        findings: Sequence[Finding],
        extra: Mapping[str, Any],
    ) -> Path:
        from vitreous.addons.text.figures import Measured, few_sources, write_translation_report

        path, measured = trained.run.path, Measured(evaluation, findings)
        return write_translation_report(answerer, few_sources(trained.data.test), path, path, measured).report

    def extra_fields(self, trained: Trained[TranslationConfig, Parallel]) -> dict[str, object]:
        return {"skipped": dict(trained.material.skipped), "example": trained.data.test[0].source}


DEFINED = (Translation(),)
