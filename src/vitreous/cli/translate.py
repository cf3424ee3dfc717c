"""`vitreous translate train [PAIRS]` and `vitreous translate RUN "text"`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from vitreous.cli.options import (
    ConfigFile,
    Device,
    Json,
    Out,
    Settings,
    Shard,
    check_resume,
    check_shard,
    chosen,
    print_json,
    settings_tree,
    with_leaves,
)
from vitreous.cli.training import going_on, in_processes
from vitreous.errors import InputError

if TYPE_CHECKING:
    import torch

    from vitreous.data.text.parallel import Parallel
    from vitreous.training.distributed import World
    from vitreous.training.sequence.run import SequenceRun


def translate(
    *words: str,
    out: Out = None,
    resume: Annotated[Path | None, Parameter(help="a translator's run: go on where it stopped")] = None,
    steps: Annotated[int | None, Parameter(help="training steps; with --resume in all")] = None,
    batch_size: Annotated[int | None, Parameter(help="pairs in one step")] = None,
    shard: Shard = None,
    seed: Annotated[int | None, Parameter(help="of weights, order and split")] = None,
    set: Settings = None,
    config: ConfigFile = None,
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
    options = {
        "seed": seed,
        "training.steps": None if resume else steps,
        "training.batch_size": batch_size,
        "training.shard": None if resume else shard,
    }
    given = chosen(options)
    if words[0] != "train":
        check_translating(given, set, config, out, resume)
        return translate_texts(
            Path(words[0]),
            words[1:],
            beams=beams,
            length_penalty=length_penalty,
            device=device,
            json=json,
        )
    check_resume(resume, words[1:], given, set, config, out)
    check_beams(beams)
    check_shard(shard)
    return train_and_judge(
        ",".join(words[1:]) or None,
        with_leaves(settings_tree(config, set), given),
        out=out,
        resume=resume,
        shard=shard,
        steps=steps,
        beams=beams,
        length_penalty=length_penalty,
        device=device,
        json=json,
    )


def check_translating(*given: object) -> None:
    """Raises InputError where a run that is there is told how to train."""
    if any(given):
        raise InputError(
            "a run that translates takes only --beams, --length-penalty, --device and --json: all else is "
            "for vitreous translate train"
        )


def translate_texts(
    run: Path, texts: Sequence[str], *, beams: int, length_penalty: float, device: str, json: bool
) -> int:
    """Print a translation of each text, or one JSON object."""
    from vitreous.training.device import pick_device
    from vitreous.training.sequence.translator import Translation, Translator

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
    """Those to translate; how many are empty is told."""
    texts = [line for line in lines if line.strip()]
    if not texts:
        raise InputError("there is no text to translate, neither behind the run nor in standard input")
    if len(texts) < len(lines):
        print(f"skipped {len(lines) - len(texts)}: empty lines", file=sys.stderr)
    return texts


def train_and_judge(
    source: str | None,
    settings: dict[str, Any],
    *,
    out: Path | None,
    resume: Path | None,
    shard: bool | None,
    steps: int | None,
    beams: int,
    length_penalty: float,
    device: str,
    json: bool,
) -> int:
    """Train, translate what was held out, print the scores.

    Args:
        shard: how a run that goes on keeps its weights; of a new one the settings say it.
        steps: how many it is to have in all; the same.
    """
    from vitreous.data.text.parallel import open_parallel
    from vitreous.training.run import default_path
    from vitreous.training.sequence.config import TranslationConfig
    from vitreous.training.sequence.plan import plan_translation
    from vitreous.training.sequence.run import SequenceRun

    def start(here: torch.device, world: World) -> tuple[SequenceRun, Parallel]:
        if resume:
            run = going_on(SequenceRun.open(resume, TranslationConfig), world, shard=shard, steps=steps)
            config = run.config
            return run, open_parallel(config.source, seed=config.seed, test_fraction=config.test_fraction)
        config, data = plan_translation(source, settings)
        return SequenceRun.begin(out or default_path(data.name), config, here, world), data

    judged = partial(trained, beams=beams, length_penalty=length_penalty)
    return in_processes(start, judged, show=print_table, device=device, json=json)


def trained(
    run: SequenceRun,
    data: Parallel,
    device: torch.device,
    world: World,
    *,
    beams: int,
    length_penalty: float,
) -> dict[str, Any] | None:
    """Train and judge. What came out; None in all processes but the first."""
    from vitreous.api.inspecting import some_texts
    from vitreous.cli.sequence_training import carry_out
    from vitreous.evaluation.translation import evaluate_translator
    from vitreous.inspection.sequence_report import write_translation_report
    from vitreous.training.sequence.config import TranslationConfig
    from vitreous.training.sequence.plan import prepare_translation
    from vitreous.training.sequence.translator import Translator

    assert isinstance(run.config, TranslationConfig)  # as it was opened
    prepared = prepare_translation(run.config, data, world)

    def judge(model: Any) -> dict[str, Any]:
        translator = Translator(model, prepared.tokenizer)
        evaluation = evaluate_translator(translator, data.test, beams=beams, length_penalty=length_penalty)
        return {**evaluation.to_json(), "example": data.test[0].source}

    def report(model: Any) -> Path:
        translator, texts = Translator(model, prepared.tokenizer), some_texts(data.test)
        return write_translation_report(translator, texts, run.path, name=run.path.name).report

    return carry_out(run, prepared, device, world, judge=judge, report=report)


def print_table(result: dict[str, Any]) -> None:
    """What came out, for people."""
    low, high = result["exact_match_interval"]
    print(f"held-out pairs: {result['test_count']}")
    print(f"  the same to the letter  {result['exact_match']:7.2%}   ({low:.2%} to {high:.2%}, 95 %)")
    print(f"  BLEU                    {result['bleu']:6.2f}")
    print(f"  chrF                    {result['chrf']:6.2f}")
    print(
        f"\ntrained in {result['seconds']:.1f} s on {result['train_count']} pairs, "
        f"{result['parameters']:,} parameters"
    )
    print(f"run     {result['run']}")
    print(f"report  {result['report']}")
    print(f"try     vitreous translate {quote(str(result['run']))} {quote(result['example'])}")
