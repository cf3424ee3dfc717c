"""`vitreous train --task text [DATA]`: images to text."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitreous.cli.training import bad_files, going_on, in_processes, print_places
from vitreous.errors import InputError

if TYPE_CHECKING:
    import torch

    from vitreous.data.text.captions import CaptionSplits
    from vitreous.training.distributed import World
    from vitreous.training.sequence.run import SequenceRun

INSTEAD = "use --set model.encoder.width=96 and its like"
MEMORY = "give a number, and --set training.accumulate=2 cuts such a batch into parts"
LEFT_OUT = "leave it out; images that cannot be read are listed in the run's bad_files.txt"


def refuse(
    *,
    model: str | None,
    init: str | None,
    recipe: str | None,
    image_size: str | None,
    fit_memory: bool,
    strict: bool,
) -> None:
    """Raise InputError for options that this task has not."""
    for option, given, instead in (
        ("--model", model, INSTEAD),
        ("--init", init, INSTEAD),
        ("--recipe", recipe, INSTEAD),
        ("--image-size", image_size, INSTEAD),
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
    shard: bool | None,
    epochs: float | None,
    device: str,
    json: bool,
) -> int:
    """Train a reader of images, read what was held out, print the scores.

    Args:
        shard: how a run that goes on keeps its weights; of a new one the settings say it.
        epochs: how many it is to have in all; the same.
    """
    from vitreous.data.text.captions import open_captions
    from vitreous.training.run import default_path
    from vitreous.training.sequence.config import ReadingConfig
    from vitreous.training.sequence.plan import plan_reading
    from vitreous.training.sequence.run import SequenceRun

    def start(here: torch.device, world: World) -> tuple[SequenceRun, CaptionSplits]:
        if resume:
            run = going_on(SequenceRun.open(resume, ReadingConfig), world, shard=shard, epochs=epochs)
            config = run.config
            return run, open_captions(config.source, seed=config.seed, test_fraction=config.test_fraction)
        config, data = plan_reading(source, settings)
        return SequenceRun.begin(out or default_path(data.name), config, here, world), data

    return in_processes(start, trained, show=print_table, device=device, json=json)


def trained(
    run: SequenceRun, data: CaptionSplits, device: torch.device, world: World
) -> dict[str, Any] | None:
    """Train and judge. What came out; None in all processes but the first."""
    from vitreous.api.inspecting import some_images
    from vitreous.cli.sequence_training import carry_out
    from vitreous.evaluation.reading import evaluate_reader
    from vitreous.inspection.sequence_report import write_reading_report
    from vitreous.training.sequence.config import ReadingConfig
    from vitreous.training.sequence.plan import prepare_reading
    from vitreous.training.sequence.reader import Reader

    assert isinstance(run.config, ReadingConfig)  # as it was opened
    prepared = prepare_reading(run.config, data, world)

    def judge(model: Any) -> dict[str, Any]:
        evaluation = evaluate_reader(Reader(model, prepared.tokenizer), data.test)
        listed = bad_files(run, dict(prepared.bad), evaluation.failed)
        return {**evaluation.to_json(), "bad_files": listed}

    def report(model: Any) -> Path:
        reader, images = Reader(model, prepared.tokenizer), some_images(data.test.images)
        return write_reading_report(reader, images, run.path, name=run.path.name).report

    return carry_out(run, prepared, device, world, judge=judge, report=report)


def print_table(result: dict[str, Any]) -> None:
    """What came out, for people."""
    low, high = result["line_accuracy_interval"]
    print(f"held-out images: {result['test_count']}")
    print(f"  lines right       {result['line_accuracy']:7.2%}   ({low:.2%} to {high:.2%}, 95 %)")
    print(f"  characters right  {result['character_accuracy']:7.2%}")
    print(
        f"\ntrained in {result['seconds']:.1f} s on {result['train_count']} images, "
        f"{result['parameters']:,} parameters"
    )
    print_places(result)
