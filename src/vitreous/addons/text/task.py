"""Translation: text to text with the Transformer of 2017 (arXiv 1706.03762). Its configuration, its task, its
loss, and the mean of its last checkpoints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import model_validator
from torch import nn

from vitreous.addons.text.batches import TextBatch, encode_pairs, pair_loader
from vitreous.addons.text.config import TransformerConfig
from vitreous.addons.text.evaluation import TranslationEvaluation, evaluate_translator
from vitreous.addons.text.models import Translator
from vitreous.addons.text.text_pairs import BUNDLED, NUMBERS, Pair, Parallel, open_parallel
from vitreous.addons.text.tokenizer import PAD, Tokenizer, tokenizer_from_json
from vitreous.addons.text.transformer import Transformer
from vitreous.errors import InputError
from vitreous.languages.terminal import said
from vitreous.models.config_parts import Config, Positive, Probability, setting
from vitreous.models.settings import merged
from vitreous.tasks.recipe_choice import packaged_config
from vitreous.tasks.task import (
    Card,
    HeldOut,
    Plan,
    RunResult,
    Task,
    TaskInfo,
    Trained,
    TrainingBatches,
    Tree,
    config_of_run,
)
from vitreous.training.config import CommandConfig, MachineConfig, length_of
from vitreous.training.initial_model import absolute_source
from vitreous.training.learner import AverageWeight, exponential
from vitreous.training.machine import Place
from vitreous.training.settings import configure
from vitreous.training.step import Measured, Objective

TOKENIZER = "tokenizer.json"
RECIPES = Path(__file__).parent / "recipes"
WITHOUT_LAST = 0.99  # decay of the average where the end of a training is not known
# Fields of `TrainingConfig` that have no effect here. Weights are always new, initialized in one way, so
# there is nothing to freeze, to change at low rank, or to initialize otherwise.
FOR_OTHERS = ("loss", "distillation", "initialization", "head", "freeze", "lora")


class TokenizerConfig(Config):
    """One byte-pair vocabulary, shared by source and target (1706.03762, section 5.1)."""

    vocabulary: Positive = setting(8000, "number of tokens, 259 of which are bytes and special tokens")


class AveragingConfig(Config):
    """The mean of the last checkpoints is the result (section 6.1)."""

    checkpoints: Positive = setting(5, "number of final checkpoints that are averaged")
    every: Positive = setting(100, "number of steps between two averaged checkpoints")


class TranslationConfig(CommandConfig):
    """The complete configuration of a translation run."""

    command: ClassVar[str] = "translate train"

    task: Literal["translation"] = setting("translation", "always translation")
    model: TransformerConfig = TransformerConfig()
    test_fraction: Probability = setting(0.05, "share of the data that is held out, at most 2,000 pairs")
    tokenizer: TokenizerConfig = TokenizerConfig()
    averaging: AveragingConfig = AveragingConfig()

    @property
    def width(self) -> int:
        """Of the model, as that of an image model's configuration."""
        return self.model.width

    @classmethod
    def following(cls, tree: Tree, override: Tree) -> Tree:
        """Return the model's vocabulary, which follows the tokenizer's unless it is set itself."""
        size = override.get("tokenizer", {}).get("vocabulary")
        if size is None or "vocabulary" in override.get("model", {}):
            return {}
        return {"model": {"vocabulary": size}}

    @model_validator(mode="after")
    def _nothing_ignored(self) -> TranslationConfig:
        where, asked = "does not apply to models that write text", self.training
        self.check_defaults("training", ["ema"], f"{where}: set averaging.checkpoints")
        self.check_defaults("training", FOR_OTHERS, f"{where}: leave it out")
        if asked.machine_config.checkpointing:
            raise ValueError(f"training.machine.checkpointing {where}: leave it out")
        if asked.machine_config.evaluation_batch_size != MachineConfig().evaluation_batch_size:
            raise ValueError(f"training.machine.evaluation_batch_size {where}: leave it out")
        if asked.optimizer.layer_decay:
            raise ValueError(f"training.optimizer.layer_decay {where}: leave it out")
        if self.tokenizer.vocabulary > self.model.vocabulary:
            raise ValueError(
                f"tokenizer.vocabulary is {self.tokenizer.vocabulary}, but the model knows "
                f"{self.model.vocabulary}: raise the model's vocabulary, or leave it out"
            )
        return self


def pairs_config(count: int) -> TranslationConfig:
    """Return the configuration for a user's own pairs, by their number: the paper's base model from 200,000
    pairs on, half and a quarter of its width below."""
    if count >= 200_000:
        width, depth, dropout, vocabulary = 512, 6, 0.1, 32_000
    elif count >= 20_000:
        width, depth, dropout, vocabulary = 256, 3, 0.1, 8000
    else:
        width, depth, dropout, vocabulary = 128, 2, 0.2, 2000
    steps = min(max(40 * count // 64, 1000), 100_000)
    warmup = min(4000, steps // 10)
    model: dict[str, object] = {"width": width, "depth": depth, "encoder_depth": depth, "heads": width // 64}
    model |= {"mlp_dim": 4 * width, "vocabulary": vocabulary, "dropout": dropout}
    training: dict[str, object] = {
        "length": length_of(steps=steps),
        "batch_size": min(64, count),
        "peak_lr": (width * warmup) ** -0.5,
    }
    training |= {"schedule": {"warmup": warmup, "timescale": warmup}}
    settings = {
        "tokenizer": {"vocabulary": vocabulary},
        "model": model,
        "training": training,
        "averaging": {"every": max(steps // 100, 1)},
    }
    return packaged_config(TranslationConfig, RECIPES / "pairs.toml", settings)


class Translation(Task[TranslationConfig, Parallel, Sequence[Pair], Translator]):
    """Texts for texts, with a tokenizer that is trained on the training texts."""

    name, config = "translation", TranslationConfig
    info = TaskInfo(
        noun="a translator",
        card=Card(
            "A Transformer (arXiv 1706.03762): {model.encoder_depth} encoder and {model.depth} decoder "
            "layers of width {model.width}, {model.heads} heads, {model.norm}-norm; one byte-pair vocabulary "
            "of {model.vocabulary} tokens",
            {
                "Weights": "the mean of the last {averaging.checkpoints} checkpoints",
                "Left out": "{skipped[empty]} without text, {skipped[too_long]} that are too long",
                "BLEU signature": "{bleu_signature}",
            },
            'translate RUN "..."',
            "ids = model(source, target)  # see vt.Translator for texts",
            "The metrics apply to texts like those it was evaluated on.",
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
        return open_parallel(config.source, seed=config.seed, test_fraction=config.test_fraction)

    def prepare(self, config: TranslationConfig, data: Parallel, place: Place) -> TrainingBatches:
        batch_size, world = config.training.batch_size, place.world
        # This raises InputError where the processes cannot share a batch.
        world.share(batch_size)
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
        return TrainingBatches(
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
        found = open_parallel(source, seed=config.seed, test_fraction=config.test_fraction)
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

    def report(self, trained: Trained[TranslationConfig, Parallel], result: RunResult) -> Path:
        from vitreous.addons.text.figures import few_sources, write_translation_report

        path, sources = trained.run.path, few_sources(trained.data.test)
        evaluation: Any = result.evaluation
        shown = write_translation_report(result.answerer, sources, path, path, evaluation, result.findings)
        return shown.report

    def extra_fields(self, trained: Trained[TranslationConfig, Parallel]) -> dict[str, object]:
        return {"skipped": dict(trained.batches.skipped), "example": trained.data.test[0].source}


def averaging(config: TranslationConfig, steps: int) -> AverageWeight:
    """Return how the weights are averaged: the last checkpoints, unless it is not known which these will
    be."""
    if config.training.minutes:
        return exponential(WITHOUT_LAST)
    return last_checkpoints(steps, config.averaging.checkpoints, config.averaging.every)


def last_checkpoints(total: int, count: int, every: int) -> AverageWeight:
    """Return the weights of the mean of `count` checkpoints, `every` steps apart, the last one at the end of
    training (1706.03762, section 6.1), or of as many as there are. The mean grows as they come, so that none
    is stored; before the first of the `count` it is the newest one, and before any the weights themselves."""
    first = (total - 1) % every  # the step of the first of all checkpoints

    def weight(step: int) -> float:
        left, between = divmod(total - 1 - step, every)
        averaged = min(max(count - 1 - left, 0), step // every)  # checkpoints that are in the mean already
        return 0.0 if between and step > first else 1 / (averaged + 1)

    return weight


def next_token(smoothing: float) -> Objective:
    """Return the cross-entropy of each target token, given the source and the tokens before it; targets are
    smoothed to (1 - s) t + s / V (1706.03762, section 5.4). Padding does not count."""

    def objective(model: nn.Module, batch: TextBatch, generator: torch.Generator) -> Measured:
        source, target, tokens = batch
        logits, wanted = model(source, target[:, :-1]).float(), target[:, 1:]
        loss = F.cross_entropy(
            logits.flatten(0, 1),
            wanted.flatten(),
            ignore_index=PAD,
            label_smoothing=smoothing,
            reduction="sum",
        )
        right = (logits.detach().argmax(dim=-1) == wanted) & (wanted != PAD)
        return loss / tokens.sum(), {"accuracy": right.sum() / tokens.sum()}

    return objective


def absolute_sources(source: str) -> str:
    """Return a source with every path made absolute: it may be two files with a comma between. The names of
    texts that come with the package stay, also where this folder has a file of that name."""
    if source in BUNDLED:
        return source
    return ",".join(absolute_source(part) for part in source.split(","))


DEFINED = (Translation(),)
