"""What a translator learns by: its configuration, its loss, and the mean of its last checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal, TypedDict

import torch
import torch.nn.functional as F
from pydantic import model_validator
from torch import nn

from vitreous.addons.text.batches import TextBatch
from vitreous.addons.text.config import TransformerConfig
from vitreous.addons.text.text_pairs import BUNDLED
from vitreous.addons.text.tokenizer import PAD
from vitreous.models.config_parts import Config, Positive, Probability, setting
from vitreous.tasks.recipe_choice import packaged_config
from vitreous.tasks.task import Tree
from vitreous.training.config import CommandConfig, MachineConfig, length_of
from vitreous.training.initial_model import absolute_source
from vitreous.training.learner import AverageWeight, exponential
from vitreous.training.step import Measured, Objective

# Fields of `TrainingConfig` that have no effect here. Weights are always new, initialized in one way, so
# there is nothing to freeze, to change at low rank, or to initialize otherwise.
TOKENIZER = "tokenizer.json"
RECIPES = Path(__file__).parent / "recipes"
WITHOUT_LAST = 0.99  # decay of the average where the end of a training is not known
FOR_OTHERS = ("loss", "distillation", "initialization", "head", "freeze", "lora")
TRAINING_FACTS = {
    "Weights": "the mean of the last {averaging.checkpoints} checkpoints",
    "Left out": "{skipped[empty]} without text, {skipped[too_long]} that are too long",
}


class TokenizerConfig(Config):
    """One byte-pair vocabulary, shared by source and target (1706.03762, section 5.1)."""

    vocabulary: Positive = setting(8000, "tokens, 259 of them bytes and marks")


class AveragingConfig(Config):
    """The mean of the last checkpoints is the result (section 6.1)."""

    checkpoints: Positive = setting(5, "how many of the last ones are averaged")
    every: Positive = setting(100, "steps between two of them")


class SplitOptions(TypedDict):
    """How data without parts of their own are split."""

    seed: int
    test_fraction: float


class TranslationConfig(CommandConfig):
    """All of a translator's run."""

    command: ClassVar[str] = "translate train"

    task: Literal["translation"] = setting("translation", "always translation")
    model: TransformerConfig = TransformerConfig()
    test_fraction: Probability = setting(0.05, "of the data, held out; 2,000 at most")
    tokenizer: TokenizerConfig = TokenizerConfig()
    averaging: AveragingConfig = AveragingConfig()

    @property
    def width(self) -> int:
        """Of the model, as that of an image model's configuration."""
        return self.model.width

    @property
    def split_options(self) -> SplitOptions:
        """How data without parts of their own are split."""
        return {"seed": self.seed, "test_fraction": self.test_fraction}

    @classmethod
    def following(cls, tree: Tree, override: Tree) -> Tree:
        """The model's vocabulary follows the tokenizer's, unless it is set itself."""
        size = override.get("tokenizer", {}).get("vocabulary")
        if size is None or "vocabulary" in override.get("model", {}):
            return {}
        return {"model": {"vocabulary": size}}

    @model_validator(mode="after")
    def _nothing_ignored(self) -> TranslationConfig:
        where, asked = "does not apply to models that write text", self.training
        self.check_defaults("training", ["ema"], f"{where}: set averaging.checkpoints")
        self.check_defaults("training", FOR_OTHERS, f"{where}: leave it out")
        if asked.computed.checkpointing:
            raise ValueError(f"training.machine.checkpointing {where}: leave it out")
        if asked.computed.evaluation_batch_size != MachineConfig().evaluation_batch_size:
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
    """For a user's own pairs, by their number: the paper's base model from 200,000 pairs on, half and a
    quarter of its width below."""
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
