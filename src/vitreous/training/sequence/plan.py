"""From what a user gave to a checked configuration, its data, and a tokenizer that knows them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from vitreous.data.dataset import BadFiles
from vitreous.data.loading import worker_count
from vitreous.data.text.batches import encode_pairs, pair_loader
from vitreous.data.text.captions import CaptionSplits, caption_loader, encode_captions, open_captions
from vitreous.data.text.digit_lines import DIGIT_LINES, digit_line_loader
from vitreous.data.text.parallel import NUMBERS, Parallel, open_parallel
from vitreous.data.text.tokenizer import Tokenizer
from vitreous.training.distributed import World
from vitreous.training.initial_model import absolute_source
from vitreous.training.sequence.config import (
    ReadingConfig,
    TranslationConfig,
    configure_sequence,
)
from vitreous.training.sequence.recipes import (
    digit_lines_config,
    images_config,
    numbers_config,
    pairs_config,
)
from vitreous.training.trainer import Loader

Tree = Mapping[str, Any]


class Prepared(NamedTuple):
    """Training data in batches, the tokenizer that encoded them, how many examples they are made of, of at
    most how many tokens, how many were left out, by reason, and images that could not be read."""

    loader: Loader
    tokenizer: Tokenizer
    examples: int
    longest: int
    skipped: dict[str, int]
    bad: BadFiles


def plan_translation(source: str | None, settings: Tree) -> tuple[TranslationConfig, Parallel]:
    """The configuration by the number of pairs (or that of the bundled job), with the user's settings over
    it.

    Raises:
        InputError: the data cannot be read, or a setting is unknown or does not fit.
    """
    settings = with_source(source or settings.get("source") or NUMBERS, settings)
    first = configure_sequence(TranslationConfig(), settings)
    data = open_parallel(first.source, seed=first.seed, test_fraction=first.test_fraction)
    base = numbers_config() if first.source == NUMBERS else pairs_config(len(data.train))
    return configure_sequence(base, settings), data


def prepare_translation(config: TranslationConfig, data: Parallel, world: World | None = None) -> Prepared:
    """The tokenizer is trained on the training pairs alone; each process does it.

    Raises:
        InputError: there are too few pairs, or the processes cannot share a batch equally.
    """
    world = world or World()
    world.share(config.training.batch_size)  # or it is said why not
    texts = (text for pair in data.train for text in (pair.source, pair.target))
    tokenizer = Tokenizer.train(texts, config.tokenizer.vocabulary)
    encoded = encode_pairs(data.train, tokenizer, config.model.max_length)
    loader = pair_loader(
        encoded,
        batch_size=config.training.batch_size,
        seed=config.seed,
        rank=world.rank,
        world_size=world.size,
    )
    skipped = {"empty": data.empty, "too_long": encoded.too_long}
    return Prepared(loader, tokenizer, len(encoded.sources), config.model.max_length, skipped, loader.bad)


def plan_reading(source: str | None, settings: Tree) -> tuple[ReadingConfig, CaptionSplits]:
    """The same for images and their texts."""
    settings = with_source(source or settings.get("source") or DIGIT_LINES, settings)
    base = digit_lines_config() if settings["source"] == DIGIT_LINES else images_config()
    config = configure_sequence(base, settings)
    return config, open_captions(config.source, seed=config.seed, test_fraction=config.test_fraction)


def prepare_reading(
    config: ReadingConfig,
    data: CaptionSplits,
    world: World | None = None,
    device: str | torch.device = "cpu",
) -> Prepared:
    """The tokenizer is trained on the training texts alone; each process does it.

    Raises:
        InputError: there are too few images, or the processes cannot share a batch equally.
    """
    world = world or World()
    world.share(config.training.batch_size)  # or it is said why not
    tokenizer = Tokenizer.train(data.train.texts, config.tokenizer.vocabulary)
    longest = config.model.decoder.max_length
    options: dict[str, Any] = {
        "preprocessing": config.preprocessing,
        "batch_size": config.training.batch_size,
        "seed": config.seed,
        "rank": world.rank,
        "world_size": world.size,
        "device": device,
    }
    if config.source == DIGIT_LINES:
        loader = digit_line_loader(data.train.images, tokenizer, longest=longest, **options)
        examples, too_long = len(data.train.texts), 0
    else:
        encoded = encode_captions(data.train, tokenizer, longest)
        loader = caption_loader(encoded, workers=worker_count(None), **options)
        examples, too_long = len(encoded.targets), encoded.too_long
    skipped = {"empty": data.empty, "too_long": too_long}
    return Prepared(loader, tokenizer, examples, longest, skipped, loader.bad)


def with_source(source: str, settings: Tree) -> dict[str, Any]:
    """The settings with the source's paths made absolute, so that config.toml runs from anywhere."""
    return {**settings, "source": absolute_sources(source)}


def absolute_sources(source: str) -> str:
    """Every path of a source made absolute: it may be two files with a comma between."""
    return ",".join(absolute_source(part) for part in source.split(","))


def left_out(prepared: Prepared) -> list[str]:
    """A sentence for each reason that left something out."""
    reasons = {"empty": "without text on a side", "too_long": f"of more than {prepared.longest} tokens"}
    return [f"skipped {n}: {reasons[key]}" for key, n in prepared.skipped.items() if n]
