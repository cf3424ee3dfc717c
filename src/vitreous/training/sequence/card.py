"""The README of a run that writes text."""

from __future__ import annotations

from collections.abc import Mapping
from shlex import quote
from typing import Any

from vitreous.training.sequence.config import ReadingConfig, TranslationConfig


def card(config: TranslationConfig | ReadingConfig, result: Mapping[str, Any]) -> str:
    """What it is, what it was trained on, how good it is, and how to use it."""
    run = quote(str(result["run"]))
    if isinstance(config, TranslationConfig):
        title, about, scores = "Translator", translator(config), translation_scores(result)
        command, again = f'vitreous translate {run} "..."', "vitreous translate train"
    else:
        title, about, scores = "Reader of images", reader(config), reading_scores(result)
        command, again = f"vitreous predict {run} image.png", "vitreous train --task text"
    header = " | ".join(scores)
    skipped = result["skipped"]
    return f"""# {title}

{about}
{result["parameters"]:,} parameters; the mean of the last {config.averaging.checkpoints} checkpoints.

| {header} |
|{"---|" * len(scores)}
| {" | ".join(scores.values())} |

Trained on {result["train_count"]} examples of `{config.source}` in {result["seconds"]:.0f} s.
Left out: {skipped["empty"]} without text, {skipped["too_long"]} that are too long.

    {command}

`config.toml` is the whole configuration: `{again} --config config.toml` runs it again.
"""


def translator(config: TranslationConfig) -> str:
    model = config.model
    return (
        f"A Transformer (arXiv 1706.03762): {model.encoder_depth} encoder and {model.depth} decoder layers "
        f"of width {model.width},\n{model.heads} heads, {model.norm}-norm; one byte-pair vocabulary of "
        f"{model.vocabulary} tokens."
    )


def reader(config: ReadingConfig) -> str:
    encoder, decoder = config.model.encoder, config.model.decoder
    return (
        f"A Vision Transformer of {encoder.depth} layers, width {encoder.width}, patches of "
        f"{encoder.patch_size[0]}x{encoder.patch_size[1]} pixels,\nand a decoder (arXiv 1706.03762) of "
        f"{decoder.depth} layers that writes {decoder.vocabulary} byte-pair tokens."
    )


def translation_scores(result: Mapping[str, Any]) -> dict[str, str]:
    low, high = result["exact_match_interval"]
    return {
        "held-out pairs": str(result["test_count"]),
        "the same to the letter": f"{result['exact_match']:.2%}",
        "95 % interval": f"{low:.2%} to {high:.2%}",
        f"BLEU ({result['bleu_signature'].replace('|', ' ')})": f"{result['bleu']:.2f}",
        "chrF": f"{result['chrf']:.2f}",
    }


def reading_scores(result: Mapping[str, Any]) -> dict[str, str]:
    low, high = result["line_accuracy_interval"]
    return {
        "held-out images": str(result["test_count"]),
        "lines right": f"{result['line_accuracy']:.2%}",
        "95 % interval": f"{low:.2%} to {high:.2%}",
        "characters right": f"{result['character_accuracy']:.2%}",
    }
