"""`vitreous translate train [PAIRS]` and `vitreous translate RUN "text"`."""

from __future__ import annotations

import sys
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, Unpack

from cyclopts import Parameter

import vitreous as vt
from vitreous.cli.options import BatchSize, Int, Json, RunOptions
from vitreous.cli.printing import print_json
from vitreous.cli.training import Resume, train_or_resume
from vitreous.errors import InputError

if TYPE_CHECKING:
    from vitreous.tasks.running import RunResult

ANSWERING = {"beams", "length_penalty", "batch_size", "device", "precision"}  # go with a trained run


class TranslateOptions(RunOptions, total=False):
    """A run that learns from pairs of texts, and the search of its translations."""

    steps: Annotated[Int, Parameter(help="training steps (total, when resuming)")]
    batch_size: Annotated[BatchSize, Parameter(help="pairs in one step; or texts together, 128 by default")]
    beams: Annotated[Int, Parameter(help="beams of the search; 1 is greedy, 4 the default")]
    length_penalty: Annotated[float, Parameter(help="higher favors longer translations; 0.6 by default")]


def translate(
    *words: str,
    resume: Resume = None,
    json: Json = False,
    **options: Unpack[TranslateOptions],
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
    run, *texts = words
    if run == "train":
        return train_or_resume(
            vt.train_translator,
            ",".join(texts) if texts else None,
            options,
            resume,
            command="translate train",
            json=json,
            after=print_example,
        )
    if resume or not options.keys() <= ANSWERING:
        raise InputError(
            "a run that translates takes only --beams, --length-penalty, --batch-size, --device, --precision "
            "and --json: all else is for vitreous translate train"
        )
    search: dict[str, Any] = {**options}
    found = vt.translate(run, texts or sys.stdin.read().removesuffix("\n").split("\n"), **search)
    if skipped := sum(not each.source.strip() for each in found):
        print(f"skipped {skipped}: empty lines", file=sys.stderr)
    if json:
        print_json(found.to_json())
    else:
        # One line each, also where a model that learned little writes line breaks.
        print("\n".join(" ".join(each.text.split()) for each in found))
    return 0


def print_example(result: RunResult) -> None:
    """Print a command that tries the model."""
    run, example = quote(str(result.run.path)), quote(result.more["example"])
    print(f"try     vitreous translate {run} {example}")
