"""Recipes for what writes text: the two bundled jobs, and rules for a user's own pairs and images."""

from __future__ import annotations

from typing import Any

from vitreous.data.text.digit_lines import DIGIT_LINES, HEIGHT, WIDTH
from vitreous.data.text.parallel import NUMBERS
from vitreous.data.text.tokenizer import SMALLEST
from vitreous.models.config import ConvolutionStemConfig, PositionConfig, ViTConfig
from vitreous.models.preprocessing import Preprocessing
from vitreous.models.sequence_config import CaptionerConfig, DecoderConfig, TransformerConfig
from vitreous.tasks.text.config import (
    AveragingConfig,
    CaptioningConfig,
    TokenizerConfig,
    TranslationConfig,
)
from vitreous.training.config import OptimizerConfig, ScheduleConfig, TrainingConfig

# The paper's order of norms needs a longer warm-up. Pad and start are never written.
PRE_NORM: dict[str, Any] = {"norm": "pre", "final_norm": True, "never": (0, 1)}


def paper_rate(width: int, warmup: int) -> tuple[float, ScheduleConfig]:
    """The paper's learning rate d^-0.5 min(step^-0.5, step warmup^-1.5) (section 5.3) as a peak and a
    curve."""
    return (width * warmup) ** -0.5, ScheduleConfig(kind="rsqrt", warmup=warmup, timescale=warmup)


def paper_training(width: int, *, steps: int, batch_size: int, warmup: int) -> TrainingConfig:
    """Adam with b1 0.9, b2 0.98, eps 1e-9, the paper's rate and its label smoothing (sections 5.3 and
    5.4)."""
    rate, schedule = paper_rate(width, warmup)
    return TrainingConfig(
        steps=steps,
        batch_size=batch_size,
        peak_lr=rate,
        optimizer=OptimizerConfig(betas=(0.9, 0.98), eps=1e-9, weight_decay=0.0, clip_norm=1.0),
        schedule=schedule,
        label_smoothing=0.1,
    )


def numbers_config() -> TranslationConfig:
    """The bundled job: numbers in words between Korean, English and German.

    vitreous translate train
    """
    return TranslationConfig(
        source=NUMBERS,
        test_fraction=0.02,
        tokenizer=TokenizerConfig(vocabulary=400),
        model=TransformerConfig(
            vocabulary=400,
            width=96,
            depth=2,
            encoder_depth=2,
            heads=4,
            mlp_dim=192,
            max_length=64,
            dropout=0.0,
            **PRE_NORM,
        ),
        training=paper_training(96, steps=2000, batch_size=128, warmup=400),
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
    return TranslationConfig(
        tokenizer=TokenizerConfig(vocabulary=vocabulary),
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
        training=paper_training(width, steps=steps, batch_size=64, warmup=min(4000, steps // 10)),
        averaging=AveragingConfig(every=max(steps // 100, 1)),
    )


def digit_lines_config() -> CaptioningConfig:
    """The bundled job: lines of handwritten digits.

    vitreous train --task captioning

    Chosen on lines of 288 of the training digits, held out while the other 1,149 were learned: of these lines
    93.0 % were right after 2,500 steps. Lines are composed anew for every step, the first of them short: with
    long lines from the start 72 % of the digits were still wrong after 2,000 steps, so 3 % after 1,000.
    """
    vocabulary = SMALLEST + 11  # ten digits, and the mark of a word's beginning
    return CaptioningConfig(
        source=DIGIT_LINES,
        tokenizer=TokenizerConfig(vocabulary=vocabulary),
        model=CaptionerConfig(
            encoder=ViTConfig(
                image_size=(HEIGHT, WIDTH),
                channels=1,
                patch_size=(4, 4),
                num_classes=None,
                width=96,
                depth=3,
                heads=4,
                mlp_dim=192,
                stem=ConvolutionStemConfig(widths=(32, 64, 64), strides=(1, 2, 2)),
                position=PositionConfig(kind="sincos-2d"),
                class_token=False,
                pooling="mean",
            ),
            decoder=DecoderConfig(
                vocabulary=vocabulary,
                width=96,
                depth=2,
                heads=4,
                mlp_dim=192,
                max_length=16,
                dropout=0.0,
                **PRE_NORM,
            ),
        ),
        preprocessing=Preprocessing(size=(HEIGHT, WIDTH), channels=1, mean=(0.107,), std=(0.237,)),
        training=TrainingConfig(
            steps=2500,
            batch_size=32,
            peak_lr=1.5e-3,
            optimizer=OptimizerConfig(betas=(0.9, 0.98), weight_decay=0.05),
            schedule=ScheduleConfig(warmup=100),
            label_smoothing=0.05,
        ),
        averaging=AveragingConfig(checkpoints=5, every=40),
    )


def images_config() -> CaptioningConfig:
    """For somebody's own images of lines of text: scaled to a height of 32 and a width of 256 pixels."""
    vocabulary = 2 * SMALLEST
    size = (32, 256)
    return CaptioningConfig(
        tokenizer=TokenizerConfig(vocabulary=vocabulary),
        model=CaptionerConfig(
            encoder=ViTConfig(
                image_size=size,
                patch_size=(8, 8),
                num_classes=None,
                width=192,
                depth=4,
                heads=6,
                mlp_dim=768,
                stem=ConvolutionStemConfig(widths=(32, 64, 128), strides=(2, 2, 2)),
                class_token=False,
                pooling="mean",
                dropout=0.1,
            ),
            decoder=DecoderConfig(
                vocabulary=vocabulary,
                width=192,
                depth=3,
                heads=6,
                mlp_dim=768,
                max_length=128,
                dropout=0.1,
                **PRE_NORM,
            ),
        ),
        preprocessing=Preprocessing(size=size, resize="fit"),
        training=TrainingConfig(
            epochs=30,
            batch_size=32,
            peak_lr=5e-4,
            optimizer=OptimizerConfig(betas=(0.9, 0.98), weight_decay=0.05),
            schedule=ScheduleConfig(warmup=0.1),
            label_smoothing=0.1,
        ),
    )
