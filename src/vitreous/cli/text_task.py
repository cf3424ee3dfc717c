"""`vitreous train --task text [DATA]`: pictures to text."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from vitreous.cli.options import check_resume
from vitreous.cli.training import print_places
from vitreous.errors import InputError

if TYPE_CHECKING:
    from vitreous.data.pictures import BadFiles
    from vitreous.evaluation.reading import ReadingEvaluation

INSTEAD = "use --set model.encoder.width=96 and its like"
MEMORY = "give a number, and --set training.accumulate=2 cuts such a batch into parts"
LEFT_OUT = "leave it out; pictures that cannot be read are listed in the run's bad_files.txt"


def refuse(
    *,
    model: str | None,
    init: str | None,
    recipe: str | None,
    image_size: str | None,
    shard: bool | None,
    fit_memory: bool,
    strict: bool,
) -> None:
    """Raise InputError for options that this task has not."""
    for option, given, instead in (
        ("--model", model, INSTEAD),
        ("--init", init, INSTEAD),
        ("--recipe", recipe, INSTEAD),
        ("--image-size", image_size, INSTEAD),
        ("--shard", shard, "leave it out; one process trains"),
        ("--batch-size auto", fit_memory, MEMORY),
        ("--strict", strict, LEFT_OUT),
    ):
        if given:
            raise InputError(f"{option} does not go with --task text: {instead}")


def train_text(
    source: str | None,
    settings: dict[str, Any],
    *,
    out: Path | None,
    resume: Path | None,
    device: str,
    json: bool,
) -> int:
    """Train a reader of pictures, read what was held out, print the scores."""
    from vitreous.cli.inspect_sequences import some_pictures
    from vitreous.cli.sequence_training import carry_out, check_alone
    from vitreous.data.text.captions import open_captions
    from vitreous.evaluation.reading import evaluate_reader
    from vitreous.inspection.sequence_report import write_reading_report
    from vitreous.training.device import pick_device
    from vitreous.training.run import check_free, default_path
    from vitreous.training.sequence.config import ReadingConfig
    from vitreous.training.sequence.plan import plan_reading, prepare_reading
    from vitreous.training.sequence.reader import Reader
    from vitreous.training.sequence.run import SequenceRun

    check_alone()
    check_resume(resume, source, settings, out)
    if resume:
        run = SequenceRun.open(resume)
        config = run.config
        if not isinstance(config, ReadingConfig):
            raise InputError(
                f"{resume} translates: go on with vitreous translate train --resume {quote(str(resume))}"
            )
        data = open_captions(config.source, seed=config.seed, test_fraction=config.test_fraction)
        prepared = prepare_reading(config, data)
    else:
        if out:
            check_free(out, ReadingConfig.command)
        config, data = plan_reading(source, settings)
        prepared = prepare_reading(config, data)
        run = SequenceRun.begin(out or default_path(data.name), config, pick_device(device))
    try:
        return carry_out(
            run,
            prepared,
            judge=lambda model: judged(
                evaluate_reader(Reader(model, prepared.tokeniser), data.test), prepared.bad
            ),
            report=lambda model: (
                write_reading_report(
                    Reader(model, prepared.tokeniser),
                    some_pictures(data.test.pictures),
                    run.path,
                    name=run.path.name,
                ).report
            ),
            show=print_table,
            device=device,
            json=json,
        )
    finally:
        prepared.bad.write(run.path / "bad_files.txt")


def judged(evaluation: ReadingEvaluation, bad: BadFiles) -> dict[str, Any]:
    """The scores, and all pictures that could not be read: to learn from, or to judge by."""
    bad.reasons.update(evaluation.failed)
    listed = [{"path": path, "reason": reason} for path, reason in bad]
    return {**evaluation.to_json(), "bad_files": listed}


def print_table(result: dict[str, Any]) -> None:
    """What came out, for people."""
    low, high = result["line_accuracy_interval"]
    print(f"held-out pictures: {result['test_count']}")
    print(f"  lines right       {result['line_accuracy']:7.2%}   ({low:.2%} to {high:.2%}, 95 %)")
    print(f"  characters right  {result['character_accuracy']:7.2%}")
    print(
        f"\ntrained in {result['seconds']:.1f} s on {result['train_count']} pictures, "
        f"{result['parameters']:,} parameters"
    )
    print_places(result)
