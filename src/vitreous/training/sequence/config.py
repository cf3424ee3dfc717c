"""The whole description of how a translator, or a reader of images, is trained: what its `config.toml`
holds, and what `--set` can name."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

from pydantic import Field, ValidationError, model_validator

from vitreous.errors import InputError
from vitreous.models.config import Config, Positive, Probability
from vitreous.models.legacy import with_current_names
from vitreous.models.preprocessing import Preprocessing
from vitreous.models.sequence_config import CaptionerConfig, DecoderConfig, TransformerConfig
from vitreous.models.settings import check_names, explain
from vitreous.training.config import CommandConfig, TrainingConfig
from vitreous.training.settings import by_epochs, merged, without_none_words

Kind = TypeVar("Kind", bound="SequenceConfig")


class TokenizerConfig(Config):
    """One byte-pair vocabulary, shared by source and target (1706.03762, section 5.1)."""

    vocabulary: Positive = Field(default=8000, description="tokens, 259 of them bytes and marks")


class AveragingConfig(Config):
    """The mean of the last checkpoints is the result (section 6.1)."""

    checkpoints: Positive = 5
    every: Positive = Field(default=100, description="steps between two of them")


# What stands in `TrainingConfig`, and this training does not do. What it begins with is always drawn anew, in
# one way, so there is nothing to freeze, to change at low rank, or to draw otherwise.
FOR_OTHERS = (
    "ema_decay",
    "loss",
    "distillation",
    "initialization",
    "freeze",
    "lora",
    "checkpointing",
)


class SequenceConfig(CommandConfig):
    """What the two have in common."""

    source: str = Field(default="", description="the data")
    seed: int = Field(default=0, ge=0)
    test_fraction: Probability = Field(default=0.05, description="of the data, held out; 2,000 at most")
    tokenizer: TokenizerConfig = TokenizerConfig()
    training: TrainingConfig = TrainingConfig()
    averaging: AveragingConfig = AveragingConfig()

    @model_validator(mode="after")
    def _nothing_ignored(self) -> SequenceConfig:
        asked, default = self.training, TrainingConfig()
        for name in FOR_OTHERS:
            if getattr(asked, name) != getattr(default, name):
                instead = "set averaging.checkpoints" if name == "ema_decay" else "leave it out"
                raise ValueError(f"training.{name} is not for what writes text: {instead}")
        if asked.optimizer.layer_decay:
            raise ValueError(
                "training.optimizer.layer_decay knows the layers of an encoder alone: leave it out for what "
                "writes text"
            )
        if asked.precision == "fp8":
            raise ValueError("training.precision=fp8 is not for what writes text: take auto, bf16 or fp32")
        return self


class TranslationConfig(SequenceConfig):
    """All of a translator's run."""

    command: ClassVar[str] = "translate train"

    task: Literal["translation"] = "translation"
    model: TransformerConfig = TransformerConfig()

    @model_validator(mode="after")
    def _vocabulary(self) -> TranslationConfig:
        check_vocabulary(self.tokenizer, self.model)
        return self


class ReadingConfig(SequenceConfig):
    """All of the run of a model that reads the text in images."""

    command: ClassVar[str] = "train --task text"

    task: Literal["text"] = "text"
    model: CaptionerConfig = CaptionerConfig()
    preprocessing: Preprocessing = Preprocessing()

    @model_validator(mode="after")
    def _same_images(self) -> ReadingConfig:
        made, taken = self.preprocessing.size, self.model.encoder.image_size
        if made != taken:
            raise ValueError(f"preprocessing.size is {made}, but the model takes {taken}: make them the same")
        check_vocabulary(self.tokenizer, self.model.decoder)
        return self


def check_vocabulary(tokenizer: TokenizerConfig, decoder: DecoderConfig) -> None:
    """Every token of the tokenizer must be one of the model's."""
    if tokenizer.vocabulary > decoder.vocabulary:
        raise ValueError(
            f"tokenizer.vocabulary is {tokenizer.vocabulary}, but the model knows {decoder.vocabulary}: "
            "raise the model's vocabulary, or leave it out"
        )


def with_vocabulary(model: Mapping[str, Any], size: int) -> dict[str, Any]:
    """A model's settings with a vocabulary of that size."""
    return merged(model, {"decoder": {"vocabulary": size}} if "decoder" in model else {"vocabulary": size})


def configure_sequence(base: Kind, *overrides: Mapping[str, Any]) -> Kind:
    """`base` with the leaves of each tree changed, later trees over earlier ones.

    The model's vocabulary follows the tokenizer's unless it is set itself.

    Raises:
        InputError: an unknown setting (with the nearest name), or values that do not fit together.
    """
    tree: dict[str, Any] = base.model_dump()
    for override in overrides:
        if problem := check_names(override, type(base)):
            raise InputError(problem)
        if vocabulary := override.get("tokenizer", {}).get("vocabulary"):
            tree["model"] = with_vocabulary(tree["model"], vocabulary)
        tree = merged(tree, by_epochs(override))
    try:
        return type(base)(**without_none_words(tree, type(base)))
    except ValidationError as error:
        raise InputError(explain(error, "").removeprefix(".")) from None


def read_config(path: Path) -> TranslationConfig | ReadingConfig:
    """A run's config.toml.

    Raises:
        InputError: there is none, or it is that of a classifier.
    """
    try:
        tree = with_current_names(tomllib.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise InputError(f"{path.parent} is no run: cannot read {path.name}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {path}: {error}") from None
    match tree.get("task"):
        case "translation":
            return configure_sequence(TranslationConfig(), tree)
        case "text":
            return configure_sequence(ReadingConfig(), tree)
    raise InputError(
        f"{path.parent} is no run of a model that writes text: its config.toml names no such task"
    )
