"""How models that write text are trained: what `config.toml` holds, and what the data decide of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from vitreous.models.config import Config, Positive, Probability
from vitreous.models.preprocessing import Preprocessing
from vitreous.models.sequence_config import CaptionerConfig, DecoderConfig, TransformerConfig
from vitreous.tasks.choose import packaged_config
from vitreous.training.config import CommandConfig, TrainingConfig


class TokenizerConfig(Config):
    """One byte-pair vocabulary, shared by source and target (1706.03762, section 5.1)."""

    vocabulary: Positive = Field(default=8000, description="tokens, 259 of them bytes and marks")


class AveragingConfig(Config):
    """The mean of the last checkpoints is the result (section 6.1)."""

    checkpoints: Positive = 5
    every: Positive = Field(default=100, description="steps between two of them")


# Fields of `TrainingConfig` that have no effect here. Weights are always new, initialized in one way, so
# there is nothing to freeze, to change at low rank, or to initialize otherwise.
FOR_OTHERS = ("loss", "distillation", "initialization", "freeze", "lora", "checkpointing")


class SequenceConfig(CommandConfig):
    """What the two have in common."""

    source: str = Field(default="", description="the data")
    seed: int = Field(default=0, ge=0)
    test_fraction: Probability = Field(default=0.05, description="of the data, held out; 2,000 at most")
    tokenizer: TokenizerConfig = TokenizerConfig()
    training: TrainingConfig = TrainingConfig()
    averaging: AveragingConfig = AveragingConfig()

    @classmethod
    def following(cls, tree: Mapping[str, Any], override: Mapping[str, Any]) -> dict[str, Any]:
        """The model's vocabulary follows the tokenizer's, unless it is set itself."""
        size, model = override.get("tokenizer", {}).get("vocabulary"), override.get("model", {})
        decoder = "decoder" in tree["model"]
        if size is None or "vocabulary" in (model.get("decoder", {}) if decoder else model):
            return {}
        return {"model": {"decoder": {"vocabulary": size}} if decoder else {"vocabulary": size}}

    @model_validator(mode="after")
    def _nothing_ignored(self) -> SequenceConfig:
        where, asked = "does not apply to models that write text", self.training
        self.check_defaults("training", ["ema_decay"], f"{where}: set averaging.checkpoints")
        self.check_defaults("training", FOR_OTHERS, f"{where}: leave it out")
        if asked.optimizer.layer_decay:
            raise ValueError(f"training.optimizer.layer_decay {where}: leave it out")
        if asked.precision == "fp8":
            raise ValueError(f"training.precision=fp8 {where}: take auto, bf16 or fp32")
        if self.tokenizer.vocabulary > self.decoder.vocabulary:
            raise ValueError(
                f"tokenizer.vocabulary is {self.tokenizer.vocabulary}, but the model knows "
                f"{self.decoder.vocabulary}: raise the model's vocabulary, or leave it out"
            )
        return self

    @property
    def decoder(self) -> DecoderConfig:
        """The configuration of what writes text."""
        raise NotImplementedError


class TranslationConfig(SequenceConfig):
    """All of a translator's run."""

    command: ClassVar[str] = "translate train"

    task: Literal["translation"] = "translation"
    model: TransformerConfig = TransformerConfig()

    @property
    def decoder(self) -> DecoderConfig:
        return self.model


class CaptioningConfig(SequenceConfig):
    """All of a captioner's run."""

    task: Literal["captioning"] = "captioning"
    model: CaptionerConfig = CaptionerConfig()
    preprocessing: Preprocessing = Preprocessing()

    @property
    def decoder(self) -> DecoderConfig:
        return self.model.decoder

    @model_validator(mode="after")
    def _same_images(self) -> CaptioningConfig:
        made, taken = self.preprocessing.size, self.model.encoder.image_size
        if made != taken:
            raise ValueError(f"preprocessing.size is {made}, but the model takes {taken}: make them the same")
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
    model = {
        "width": width,
        "depth": depth,
        "encoder_depth": depth,
        "heads": width // 64,
        "mlp_dim": 4 * width,
    }
    return packaged_config(
        TranslationConfig,
        "pairs",
        {
            "tokenizer": {"vocabulary": vocabulary},
            "model": {**model, "heads": width // 64, "vocabulary": vocabulary, "dropout": dropout},
            "training": {
                "steps": steps,
                "batch_size": min(64, count),
                "peak_lr": (width * warmup) ** -0.5,
                "schedule": {"warmup": warmup, "timescale": warmup},
            },
            "averaging": {"every": max(steps // 100, 1)},
        },
    )


def numbers_config() -> TranslationConfig:
    """The bundled job of translation."""
    return packaged_config(TranslationConfig, "numbers")


def digit_lines_config() -> CaptioningConfig:
    """The bundled job of captioning."""
    return packaged_config(CaptioningConfig, "digit-lines")


def images_config(count: int) -> CaptioningConfig:
    """For a user's own images of lines of text."""
    return packaged_config(CaptioningConfig, "text-images", {"training": {"batch_size": min(32, count)}})
