"""`vitreous translate train [PAIRS]` and `translate RUN [TEXT...]`."""

from __future__ import annotations

import sys
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, Unpack

from cyclopts import Parameter

import vitreous as vt
from vitreous.addons.text.options import TranslateOptions, TranslatorOptions
from vitreous.cli.options import Json, with_parsed_options
from vitreous.cli.printing import print_json, print_named
from vitreous.cli.streams import read_stdin
from vitreous.cli.training import RESUMED, MovedData, Resume, train_or_resume
from vitreous.languages.terminal import CallError, said

if TYPE_CHECKING:
    from vitreous.tasks.task import RunResult


@with_parsed_options()
def translate(
    *words: Annotated[
        str,
        Parameter(
            help="train, then a TSV file, two text files, or hf:NAME (by default, numbers in Korean, English "
            "and German words); or a run, then texts (by default, the lines of stdin)"
        ),
    ],
    resume: Resume = None,
    moved_data: MovedData = None,
    json: Json = False,
    **options: Unpack[TranslatorOptions],
) -> int:
    """Train the original Transformer (2017) on pairs of texts, or translate with it."""

    def print_example(result: RunResult) -> None:
        path, example = quote(str(result.run.path)), quote(result.extra["example"])
        print_named("try", f"vitreous translate {path} {example}")

    if not words:
        raise CallError('say what to do: vitreous translate train, or vitreous translate RUN "text"')
    run, *texts = words
    if run == "train":
        return train_or_resume(
            vt.train_translator,
            ",".join(texts) if texts else None,
            options,
            resume,
            moved_data,
            command="translate train",
            resumed={*RESUMED, "beams", "length_penalty"},
            json=json,
            after=print_example,
        )
    if resume or moved_data or not options.keys() <= TranslateOptions.__annotations__.keys():
        raise CallError(
            "translating with a run takes only --beams, --length-penalty, --batch-size, --device, "
            "--precision and --json: other options are for vitreous translate train"
        )
    answering: dict[str, Any] = {**options}
    found = vt.translate(run, texts or read_stdin().removesuffix("\n").split("\n"), **answering)
    if skipped := sum(not each.source.strip() for each in found):
        print(said("skipped {count}: empty lines", count=skipped), file=sys.stderr)
    if json:
        print_json(found.to_json())
    else:
        # One line each, also where a model that learned little writes line breaks.
        print("\n".join(" ".join(each.text.split()) for each in found))
    return 0
