"""The README of a translator's run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vitreous.training.sequence.config import TranslationConfig


def card(config: TranslationConfig, result: Mapping[str, Any]) -> str:
    """What it is, what it was trained on, how good it is, and how to use it."""
    model, (low, high) = config.model, result["exact_match_interval"]
    skipped = result["skipped"]
    scores = [
        f"{result['test_count']}",
        f"{result['exact_match']:.2%}",
        f"{low:.2%} to {high:.2%}",
        f"{result['bleu']:.2f}",
        f"{result['chrf']:.2f}",
    ]
    return f"""# Translator

A Transformer (arXiv 1706.03762): {model.encoder_depth} encoder and {model.depth} decoder layers of width
{model.width}, {model.heads} heads, {model.norm}-norm, {result["parameters"]:,} parameters; one byte-pair
vocabulary of {model.vocabulary} tokens. The weights are the mean of the last {config.averaging.checkpoints}
checkpoints.

| held-out pairs | the same to the letter | 95 % interval | BLEU | chrF |
|---|---|---|---|---|
| {" | ".join(scores)} |

BLEU: sacrebleu {result["bleu_signature"]}

Trained on {result["train_count"]} pairs of `{config.source}` in {result["seconds"]:.0f} s.
Left out: {skipped["empty"]} pairs with an empty side, {skipped["too_long"]} with more than
{model.max_length} tokens.

    vitreous translate {result["run"]} "..."

`config.toml` is the whole configuration: `vitreous translate train --config config.toml` runs it again.
"""
