"""The configuration of a run that trains a translator or a captioner: what its `config.toml` holds, and what
`--set` can name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from vitreous.models.config import Config, Positive, Probability
from vitreous.models.preprocessing import Preprocessing
from vitreous.models.sequence_config import CaptionerConfig, DecoderConfig, TransformerConfig
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
        asked, default = self.training, TrainingConfig()
        for name in FOR_OTHERS:
            if getattr(asked, name) != getattr(default, name):
                instead = "set averaging.checkpoints" if name == "ema_decay" else "leave it out"
                raise ValueError(f"training.{name} does not apply to models that write text: {instead}")
        if asked.optimizer.layer_decay:
            raise ValueError(
                "training.optimizer.layer_decay knows the layers of an encoder alone: leave it out of models "
                "that write text"
            )
        if asked.precision == "fp8":
            raise ValueError(
                "training.precision=fp8 does not apply to models that write text: take auto, bf16 or fp32"
            )
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


class CaptioningConfig(SequenceConfig):
    """All of a captioner's run."""

    task: Literal["captioning"] = "captioning"
    model: CaptionerConfig = CaptionerConfig()
    preprocessing: Preprocessing = Preprocessing()

    @model_validator(mode="after")
    def _same_images(self) -> CaptioningConfig:
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
