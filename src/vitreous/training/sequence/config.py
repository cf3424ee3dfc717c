"""The whole description of a translator's training: what its `config.toml` holds, and what `--set` can
name."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomlkit
from pydantic import Field, ValidationError

from vitreous.errors import InputError
from vitreous.models.config import Config, Positive, Probability
from vitreous.models.sequence_config import TransformerConfig
from vitreous.models.settings import check_names, explain
from vitreous.training.config import OptimiserConfig, ScheduleConfig, TrainingConfig
from vitreous.training.settings import fill, merged, without_none_words


class TokeniserConfig(Config):
    """One byte-pair vocabulary for both languages (1706.03762, section 5.1)."""

    vocabulary: Positive = Field(default=8000, description="tokens, 259 of them bytes and marks")


class AveragingConfig(Config):
    """The mean of the last checkpoints is the result (section 6.1)."""

    checkpoints: Positive = 5
    every: Positive = Field(default=100, description="steps between two of them")


class TranslationConfig(Config):
    """All of a translator's run."""

    source: str = Field(default="numbers", description="the parallel text")
    seed: int = Field(default=0, ge=0)
    test_fraction: Probability = Field(default=0.05, description="of the pairs, held out; 2,000 at most")
    tokeniser: TokeniserConfig = TokeniserConfig()
    model: TransformerConfig = TransformerConfig()
    training: TrainingConfig = TrainingConfig()
    averaging: AveragingConfig = AveragingConfig()


def paper_rate(width: int, warmup: int) -> tuple[float, ScheduleConfig]:
    """The paper's learning rate d^-0.5 min(step^-0.5, step warmup^-1.5) (section 5.3) as a peak and a
    curve."""
    return (width * warmup) ** -0.5, ScheduleConfig(kind="rsqrt", warmup=warmup, timescale=warmup)


def paper_optimiser() -> OptimiserConfig:
    """Adam with b1 0.9, b2 0.98, eps 1e-9 (section 5.3)."""
    return OptimiserConfig(betas=(0.9, 0.98), eps=1e-9, weight_decay=0.0, clip_norm=1.0)


def numbers_config() -> TranslationConfig:
    """The bundled job: numbers in words between Korean, English and German.

    vitreous translate train
    """
    rate, schedule = paper_rate(width=96, warmup=400)
    return TranslationConfig(
        test_fraction=0.02,
        tokeniser=TokeniserConfig(vocabulary=400),
        model=TransformerConfig(
            vocabulary=400,
            width=96,
            depth=2,
            encoder_depth=2,
            heads=4,
            mlp_dim=192,
            max_length=64,
            norm="pre",
            final_norm=True,
            dropout=0.0,
            never=(0, 1),
        ),
        training=TrainingConfig(
            steps=2000,
            batch_size=128,
            peak_lr=rate,
            optimiser=paper_optimiser(),
            schedule=schedule,
            label_smoothing=0.1,
        ),
    )


def pairs_config(count: int) -> TranslationConfig:
    """For somebody's own pairs, by their number: the paper's base model from 200,000 pairs on, half and a
    quarter of its width below."""
    if count >= 200_000:
        width, depth, dropout, vocabulary = 512, 6, 0.1, 32_000
    elif count >= 20_000:
        width, depth, dropout, vocabulary = 256, 3, 0.1, 8000
    else:
        width, depth, dropout, vocabulary = 128, 2, 0.2, 2000
    steps = min(max(40 * count // 64, 1000), 100_000)
    rate, schedule = paper_rate(width, warmup=min(4000, steps // 10))
    return TranslationConfig(
        tokeniser=TokeniserConfig(vocabulary=vocabulary),
        model=TransformerConfig(
            vocabulary=vocabulary,
            width=width,
            depth=depth,
            encoder_depth=depth,
            heads=width // 64,
            mlp_dim=4 * width,
            max_length=256,
            dropout=dropout,
            never=(0, 1),
        ),
        training=TrainingConfig(
            steps=steps,
            batch_size=64,
            peak_lr=rate,
            optimiser=paper_optimiser(),
            schedule=schedule,
            label_smoothing=0.1,
        ),
        averaging=AveragingConfig(every=max(steps // 100, 1)),
    )


def configure_translation(base: TranslationConfig, *overrides: Mapping[str, Any]) -> TranslationConfig:
    """`base` with the leaves of each tree changed, later trees over earlier ones.

    Raises:
        InputError: an unknown setting (with the nearest name), or values that do not fit together.
    """
    tree: dict[str, Any] = base.model_dump()
    for override in overrides:
        if problem := check_names(override, TranslationConfig):
            raise InputError(problem)
        tree = merged(tree, override)
    tree["model"]["vocabulary"] = max(tree["model"]["vocabulary"], tree["tokeniser"]["vocabulary"])
    try:
        return TranslationConfig(**without_none_words(tree, TranslationConfig))
    except ValidationError as error:
        raise InputError(explain(error, "").removeprefix(".")) from None


def read_translation_config(path: Path) -> TranslationConfig:
    """A run's config.toml.

    Raises:
        InputError: there is none, or it is not that of a translator.
    """
    try:
        tree = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(
            f"{path.parent} is no translator's run: cannot read {path.name}: {error.strerror}"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {path}: {error}") from None
    return configure_translation(TranslationConfig(), tree)


def translation_toml(config: TranslationConfig) -> str:
    """Every leaf, with what the field means behind it."""
    document = tomlkit.document()
    document.add(tomlkit.comment("Run this again with: vitreous translate train --config config.toml"))
    fill(document, config)
    return tomlkit.dumps(document)
