"""From what a user gave to a checked configuration and its data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vitreous.data.text.parallel import NUMBERS, Parallel, open_parallel
from vitreous.training.sequence.config import (
    TranslationConfig,
    configure_translation,
    numbers_config,
    pairs_config,
)
from vitreous.training.starting import absolute_source


def plan_translation(source: str | None, settings: Mapping[str, Any]) -> tuple[TranslationConfig, Parallel]:
    """The configuration by the number of pairs (or that of the bundled job), with the user's settings over
    it.

    Raises:
        InputError: the data cannot be read, or a setting is unknown or does not fit.
    """
    source = source or settings.get("source") or NUMBERS
    source = ",".join(absolute_source(part) for part in source.split(","))
    first = configure_translation(TranslationConfig(source=source), {**settings, "source": source})
    data = open_parallel(source, seed=first.seed, test_fraction=first.test_fraction)
    base = numbers_config() if source == NUMBERS else pairs_config(len(data.train))
    return configure_translation(base, {**settings, "source": source}), data
