"""`vitreous train --task segmentation [DATA]`: a class for each pixel."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitreous.cli.training import bad_files, going_on, in_processes, new_run, print_places

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
    shard: bool | None,
    epochs: float | None,
    device: str,
    json: bool,
) -> int:
    """Train a segmenter, judge it on what was held out, print the scores.

    Args:
        shard: how a run that goes on keeps its weights; of a new one the settings say it.
        epochs: how many it is to have in all; the same.
    """
    from vitreous.training.segmentation.plan import plan_segmentation, reopened

    def start(here: torch.device, world: World) -> tuple[Run, MaskSplits]:
        if resume:
            run, splits = reopened(resume)
            return going_on(run, world, shard=shard, epochs=epochs), splits
        planned = plan_segmentation(source, settings, init=init)
        return begun(planned, out, device=here, world=world), planned.splits

    return in_processes(start, carry_out, show=print_table, device=device, json=json)


def begun(planned: SegmentationPlan, out: Path | None, *, device: torch.device, world: World) -> Run:
    """A new run directory."""
    from vitreous.training.precision import decided
    from vitreous.training.run import default_path

    training = decided(planned.config.training, device)
    settled = planned.config.model_copy(update={"training": training})
    return new_run(out or default_path(planned.splits.name), settled, planned.reasons, world)


def carry_out(run: Run, splits: MaskSplits, device: torch.device, world: World) -> dict[str, Any] | None:
    """Train, judge, write the report and the card. What came out; None in all processes but the first."""
    from vitreous.api.arguments import progress_bar
    from vitreous.evaluation.segmentation import evaluate_segmenter, segmentation_monitor
    from vitreous.inspection.run_report import write_segmentation_report
    from vitreous.training.callbacks import Display
    from vitreous.training.initial_model import count_parameters
    from vitreous.training.segmentation.card import write_card
    from vitreous.training.segmentation.trainer import train_segmenter

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
    failed: Mapping[str, str] = {}
    if held_out:
        with progress_bar("judging") as progress:
            evaluation = evaluate_segmenter(
                trained.model, held_out, device=device, batch_size=batch_size, progress=progress
            )
        failed = evaluation.failed
        result |= evaluation.to_json()
        report = write_segmentation_report(
            run.path, model=trained.model, evaluation=evaluation, images=held_out
        )
        result["report"] = str(report)
    result |= {
        "held_out": "test" if splits.test else "validation" if splits.validation else None,
        "train_count": len(splits.train),
        "classes": list(splits.train.classes),
        "parameters": count_parameters(trained.model),
        "bad_files": bad_files(run, trained.bad, failed),
    }
    write_card(run, result)
    return result


def print_table(result: dict[str, Any]) -> None:
    """What came out, for people."""
    if "test_miou" in result:
        print_scores(result)
    print(
        f"\ntrained in {result['seconds']:.1f} s on {result['train_count']} images, "
        f"{result['parameters']:,} parameters"
    )
    print_places(result)


def print_scores(result: dict[str, Any]) -> None:
    """The measures, and each class's."""
    from vitreous.cli.tables import interval, percent
    from vitreous.cli.tables import print_table as table

    low, high = result["test_miou_interval"]
    print(f"images judged: {result['test_count']}")
    print(f"  mean IoU          {percent(result['test_miou'])}   95 %: {interval(low, high)}")
    print(f"  pixels right      {percent(result['test_pixel_accuracy'])}")
    if "test_foreground_miou" in result:
        print(f"  background or not {percent(result['test_foreground_miou'])}   mean IoU of the two")
    first = next(iter(result["per_class"]))
    print(f"  (mean IoU where every pixel is called {first}: {percent(result['baseline_miou'])})\n")
    rows = [(name, percent(each["iou"]), f"{each['pixels']:,}") for name, each in result["per_class"].items()]
    table(("class", "IoU", "pixels"), rows)
