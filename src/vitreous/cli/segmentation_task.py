"""`vitreous train --task segmentation [DATA]`: a class for each pixel."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitreous.cli.options import print_json
from vitreous.errors import InputError

if TYPE_CHECKING:
    import torch

    from vitreous.data.segmentation.masked import MaskSplits
    from vitreous.training.distributed import World
    from vitreous.training.run import Run
    from vitreous.training.segmentation.plan import SegmentationPlan


def train_segmentation(
    source: str | None,
    settings: dict[str, Any],
    *,
    init: str | None,
    out: Path | None,
    resume: Path | None,
    device: str,
    json: bool,
) -> int:
    """Train a segmenter, judge it on what was held out, print the scores."""
    from vitreous.cli.train import say
    from vitreous.training.device import pick_device
    from vitreous.training.distributed import joined
    from vitreous.training.segmentation.plan import plan_segmentation, reopened
    from vitreous.training.signals import Interrupted

    if resume and (source or settings or init or out):
        raise InputError("--resume goes on with the run's own configuration: give no other settings")
    with joined(pick_device(device)) as (world, here):
        if resume:
            run, splits = reopened(resume)
        else:
            planned = plan_segmentation(source, settings, init=init)
            run, splits = begun(planned, out, device=here, world=world), planned.splits
        try:
            result = carry_out(run, splits, device=here, world=world)
        except Interrupted as stopped:
            say(
                f"vitreous: stopped at step {stopped.step}, and the state is saved: go on with "
                f"vitreous {run.config.command} --resume {run.path}",
                world,
            )
            return 130
    if result is not None:
        print_json(result) if json else print_table(result)
    return 0


def begun(planned: SegmentationPlan, out: Path | None, *, device: torch.device, world: World) -> Run:
    """A new run directory."""
    from vitreous.cli.train import say
    from vitreous.training.precision import pick_precision
    from vitreous.training.run import Run, default_path

    training = planned.config.training
    precision = pick_precision(training.precision, device)
    settled = planned.config.model_copy(
        update={"training": training.model_copy(update={"precision": precision})}
    )
    run = Run.shared(out or default_path(planned.splits.name), settled, world)
    for reason in planned.reasons:
        say(f"recipe: {reason}", world)
    return run


def carry_out(run: Run, splits: MaskSplits, *, device: torch.device, world: World) -> dict[str, Any] | None:
    """Train, judge, write the report and the card. What came out; None in all processes but the first."""
    from vitreous.cli.progress import progress_bar
    from vitreous.data.pictures import BadFiles
    from vitreous.evaluation.segmentation import evaluate_segmenter, segmentation_monitor
    from vitreous.inspection.segmentation_report import write_segmentation_report
    from vitreous.training.display import Display
    from vitreous.training.segmentation.card import write_card
    from vitreous.training.segmentation.trainer import train_segmenter
    from vitreous.training.starting import count_parameters

    batch_size = run.config.evaluation.batch_size
    trained = train_segmenter(
        run,
        splits,
        device=device,
        validate=segmentation_monitor(splits.validation, batch_size=batch_size),
        display=Display() if world.first else None,
        world=world,
    )
    if not world.first:
        return None
    held_out = splits.test or splits.validation
    result: dict[str, Any] = {"run": str(run.path), "seconds": trained.seconds}
    bad = BadFiles()
    bad.reasons.update(trained.bad)
    if held_out:
        with progress_bar("judging") as progress:
            evaluation = evaluate_segmenter(
                trained.model, held_out, device=device, batch_size=batch_size, progress=progress
            )
        bad.reasons.update(evaluation.failed)
        result |= evaluation.to_json()
        report = write_segmentation_report(
            run.path, model=trained.model, evaluation=evaluation, pictures=held_out
        )
        result["report"] = str(report)
    bad.write(run.path / "bad_files.txt")
    result |= {
        "held_out": "test" if splits.test else "validation" if splits.validation else None,
        "train_count": len(splits.train),
        "classes": list(splits.train.classes),
        "parameters": count_parameters(trained.model),
        "bad_files": [{"path": path, "reason": reason} for path, reason in bad],
    }
    write_card(run, result)
    return result


def print_table(result: dict[str, Any]) -> None:
    """What came out, for people."""
    if "test_miou" in result:
        print_scores(result)
    print(
        f"\ntrained in {result['seconds']:.1f} s on {result['train_count']} pictures, "
        f"{result['parameters']:,} parameters"
    )
    if result["bad_files"]:
        listed = f"{result['run']}/bad_files.txt"
        print(f"pictures that could not be read and were left out: {len(result['bad_files'])}, see {listed}")
    print(f"run     {result['run']}")
    if "report" in result:
        print(f"report  {result['report']}")


def print_scores(result: dict[str, Any]) -> None:
    """The measures, and each class's."""
    from vitreous.cli.tables import interval, percent
    from vitreous.cli.tables import print_table as table

    low, high = result["test_miou_interval"]
    print(f"pictures judged: {result['test_count']}")
    print(f"  mean IoU          {percent(result['test_miou'])}   95 %: {interval(low, high)}")
    print(f"  pixels right      {percent(result['test_pixel_accuracy'])}")
    if "test_foreground_miou" in result:
        print(f"  background or not {percent(result['test_foreground_miou'])}   mean IoU of the two")
    first = next(iter(result["per_class"]))
    print(f"  (mean IoU where every pixel is called {first}: {percent(result['baseline_miou'])})\n")
    rows = [(name, percent(each["iou"]), f"{each['pixels']:,}") for name, each in result["per_class"].items()]
    table(("class", "IoU", "pixels"), rows)
