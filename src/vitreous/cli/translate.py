"""`vitreous translate train [PAIRS]` and `vitreous translate RUN "text"`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from vitreous.cli.options import (
    ConfigFile,
    Device,
    Epochs,
    Json,
    Out,
    Precision,
    Settings,
    Shard,
    check_resume,
    parse_settings,
    print_json,
)
from vitreous.cli.training import print_run
from vitreous.errors import InputError

if TYPE_CHECKING:
    from vitreous.tasks.results import RunResult


def translate(
    *words: str,
    out: Out = None,
    resume: Annotated[
        Path | None, Parameter(help="a translator's run: resume from its last checkpoint")
    ] = None,
    steps: Annotated[int | None, Parameter(help="training steps (total, when resuming)")] = None,
    epochs: Epochs = None,
    batch_size: Annotated[int | None, Parameter(help="pairs in one step")] = None,
    shard: Shard = None,
    seed: Annotated[int | None, Parameter(help="random seed (initialization, shuffling, split)")] = None,
    set: Settings = None,
    config: ConfigFile = None,
    precision: Precision | None = None,
    beams: Annotated[int, Parameter(help="of the search; 1 is greedy")] = 4,
    length_penalty: Annotated[float, Parameter(help="higher favors longer translations")] = 0.6,
    device: Device = "auto",
    json: Json = False,
) -> int:
    """Train the Transformer of 2017 on pairs of texts, or translate with it.

    Parameters
    ----------
    words
        train, then a TSV file, two text files, or hf:NAME (nothing: numbers in words between Korean, English
        and German); or a run, then texts (nothing: a text in each line of standard input)
    """
    if not words:
        raise InputError('say what: vitreous translate train, or vitreous translate RUN "text"')
    options: dict[str, Any] = {
        "batch_size": batch_size,
        "out": out,
        "precision": precision,
        "seed": seed,
        "settings": parse_settings(set),
        "config": config,
    }
    if words[0] != "train":
        check_translating(*options.values(), steps, epochs, shard, resume)
        return translate_texts(
            Path(words[0]),
            words[1:],
            beams=beams,
            length_penalty=length_penalty,
            device=device,
            json=json,
        )
    check_beams(beams)
    from vitreous.api.learning import train_translator
    from vitreous.api.run import resume_run

    lengths: dict[str, Any] = {"steps": steps, "epochs": epochs, "shard": shard, "device": device}
    search: dict[str, Any] = {"beams": beams, "length_penalty": length_penalty}
    if resume:
        check_resume(words[1:], *options.values())
        return print_run(
            lambda: resume_run(resume, command="translate train", **lengths, **search),
            json=json,
            after=print_example,
        )
    return print_run(
        lambda: train_translator(",".join(words[1:]) or None, **lengths, **options, **search),
        json=json,
        after=print_example,
    )


def check_translating(*given: object) -> None:
    """Raise InputError where options of training are given with a trained run."""
    if any(given):
        raise InputError(
            "a run that translates takes only --beams, --length-penalty, --device and --json: all else is "
            "for vitreous translate train"
        )


def translate_texts(
    run: Path, texts: Sequence[str], *, beams: int, length_penalty: float, device: str, json: bool
) -> int:
    """Print a translation of each text, or one JSON object."""
    from vitreous.evaluation.text_models import Translation, Translator
    from vitreous.training.device import pick_device

    if not run.exists():
        raise InputError(f"no such run: {run}; to make one: vitreous translate train")
    check_beams(beams)
    translator = Translator.load(run)
    translator.model.to(pick_device(device))
    lines = texts or sys.stdin.read().removesuffix("\n").split("\n")
    found = iter(
        translator.translate(lines_with_text(lines), beams=beams, length_penalty=length_penalty),
    )
    # A line for each line, so that both sides of a file stay beside each other: empty ones stay empty.
    rows = [(line, next(found) if line.strip() else Translation("", None, [])) for line in lines]
    if json:
        told = [{"source": line, "text": each.text, "score": each.score} for line, each in rows]
        print_json({"translations": told})
    else:
        # One line each, also where a model that learned little writes line breaks.
        print("\n".join(" ".join(each.text.split()) for _, each in rows))
    return 0


def check_beams(beams: int) -> None:
    """Raises InputError where the search would follow nothing."""
    if beams < 1:
        raise InputError(f"--beams {beams}: at least one is needed")


def lines_with_text(lines: Sequence[str]) -> list[str]:
    """Return the lines to translate; how many are empty is printed."""
    texts = [line for line in lines if line.strip()]
    if not texts:
        raise InputError("there is no text to translate, neither after the run nor in standard input")
    if len(texts) < len(lines):
        print(f"skipped {len(lines) - len(texts)}: empty lines", file=sys.stderr)
    return texts


def print_example(result: RunResult) -> None:
    """Print a command that tries the model."""
    run, example = quote(str(result.run.path)), quote(result.more["example"])
    print(f"try     vitreous translate {run} {example}")
