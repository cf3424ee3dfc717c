"""`vitreous train [DATA]`."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TextIO

from cyclopts import Parameter

from vitreous.cli.options import (
    ConfigFile,
    Device,
    Epochs,
    ImageSize,
    Json,
    Out,
    Precision,
    Resume,
    Settings,
    Shard,
    check_resume,
    check_shard,
    chosen,
    parse_size,
    settings_tree,
    with_leaves,
)
from vitreous.cli.training import bad_files, going_on, in_processes, new_run, print_places, say
from vitreous.errors import InputError

if TYPE_CHECKING:
    import torch

    from vitreous.data.dataset import Splits
    from vitreous.training.distributed import World
    from vitreous.training.plan import Plan
    from vitreous.training.run import Run


def train(
    data: str | None = None,
    /,
    *,
    task: Annotated[
        Literal["classes", "text", "segmentation"], Parameter(help="what is learned of each image")
    ] = "classes",
    model: Annotated[
        str | None, Parameter(help="ViT-Ti/16, R50+ViT-B/16; by default the data decide")
    ] = None,
    init: Annotated[str | None, Parameter(help="a checkpoint or run to fine-tune")] = None,
    recipe: Annotated[str | None, Parameter(help="a recipe's name; by default the data decide")] = None,
    image_size: ImageSize = None,
    epochs: Epochs = None,
    minutes: Annotated[
        float | None, Parameter(help="as many steps as fit into this time, instead of epochs")
    ] = None,
    batch_size: Annotated[
        int | Literal["auto"] | None,
        Parameter(help="images in one step; auto: the recipe's, in parts that fit the memory"),
    ] = None,
    out: Out = None,
    resume: Resume = None,
    device: Device = "auto",
    precision: Precision | None = None,
    shard: Shard = None,
    seed: Annotated[int | None, Parameter(help="of weights, order and augmentation")] = None,
    set: Settings = None,
    config: ConfigFile = None,
    strict: Annotated[bool, Parameter(help="an image that cannot be read is an error")] = False,
    json: Json = False,
) -> int:
    """Train or fine-tune a classifier.

    Parameters
    ----------
    data
        digits (the default), a folder with a sub-folder for each class, a manifest, shards, cifar10:PATH;
        with --task text a manifest whose label is the text (default: lines of handwritten digits); with
        --task segmentation a folder with images/ and masks/ (default: pages of handwritten digits)
    """
    if resume and task == "classes":
        from vitreous.cli.kinds import task_of

        match task_of(resume):
            case "text":
                task = "text"
            case "segmentation":
                task = "segmentation"
    check_minutes(minutes, epochs, task)
    fit_memory = batch_size == "auto"
    if task == "text":
        from vitreous.cli.text_task import refuse, train_text

        refuse(
            model=model,
            init=init,
            recipe=recipe,
            image_size=image_size,
            fit_memory=fit_memory,
            strict=strict,
        )
        wanted = chosen(
            {
                "training.epochs": None if resume else epochs,
                "training.batch_size": batch_size,
                "training.precision": precision,
                "training.shard": None if resume else shard,
                "seed": seed,
            }
        )
        settings = with_leaves(settings_tree(config, set), wanted)
        check_resume(resume, data, settings, out)
        check_shard(shard)
        return train_text(
            data, settings, out=out, resume=resume, shard=shard, epochs=epochs, device=device, json=json
        )
    warnings.showwarning = one_line
    options = {
        "model.name": model,
        "model.image_size": parse_size(image_size),
        "training.epochs": None if resume else epochs,
        "training.batch_size": None if fit_memory else batch_size,
        "training.precision": precision,
        "training.shard": None if resume else shard,
        "data.strict": strict or None,
        "seed": seed,
    }
    given = chosen(options)
    check_resume(resume, data, given, set, config, init, recipe, out, fit_memory, minutes)
    settings = with_leaves(settings_tree(config, set), given)
    check_shard(shard)
    if task == "segmentation":
        from vitreous.cli.segmentation_task import train_segmentation

        if recipe or fit_memory:
            raise InputError("--recipe and --batch-size auto do not go with --task segmentation: use --set")
        return train_segmentation(
            data,
            settings,
            init=init,
            out=out,
            resume=resume,
            shard=shard,
            epochs=epochs,
            device=device,
            json=json,
        )

    def start(here: torch.device, world: World) -> tuple[Run, Splits]:
        from vitreous.data.sources import open_data
        from vitreous.training.run import Run

        if resume:
            run = going_on(Run.open(resume), world, shard=shard, epochs=epochs)
            return run, open_data(run.config.source, run.config.data)
        planned = plan_of(data, settings, recipe=recipe, init=init)
        run = begun(planned, out, device=here, world=world, fit_memory=fit_memory, minutes=minutes)
        return run, planned.splits

    return in_processes(start, carry_out, show=print_table, device=device, json=json)


def plan_of(data: str | None, settings: dict[str, Any], *, recipe: str | None, init: str | None) -> Plan:
    from vitreous.training.plan import plan

    return plan(data or settings.get("source", "digits"), settings, recipe_name=recipe, init=init)


def check_minutes(minutes: float | None, epochs: float | None, task: str) -> None:
    if minutes is None:
        return
    if task != "classes":
        raise InputError(f"--minutes does not go with --task {task}: use --epochs")
    if epochs is not None:
        raise InputError("--minutes and --epochs both say how long: give one of them")
    if not minutes > 0:
        raise InputError(f"--minutes {minutes:g} leaves no time to train: give a number above 0")


def begun(
    planned: Plan,
    out: Path | None,
    *,
    device: torch.device,
    world: World,
    fit_memory: bool,
    minutes: float | None,
) -> Run:
    """A new run directory."""
    from vitreous.training.length import fit_to_minutes
    from vitreous.training.plan import settled
    from vitreous.training.run import default_path

    config = settled(planned.config, planned.splits, device, fit_memory=fit_memory, world=world)
    if minutes:
        config = fit_to_minutes(config, planned.splits, minutes=minutes, device=device, world=world)
    run = new_run(out or default_path(planned.splits.name), config, planned.reasons, world)
    if minutes:
        say(f"time: {config.training.steps} steps, measured to take {minutes:g} minutes", world)
    if fit_memory:
        parts = run.config.training.accumulate
        say(f"memory: batches of {config.training.batch_size} in {parts} parts", world)
    return run


def carry_out(run: Run, splits: Splits, device: torch.device, world: World) -> dict[str, Any] | None:
    """Train, measure, write the report and the card. What came out; None in all processes but the first."""
    from vitreous.data.contact_sheet import contact_sheet
    from vitreous.evaluation.baselines import digits_baselines
    from vitreous.evaluation.classification import evaluate
    from vitreous.evaluation.monitor import monitor
    from vitreous.evaluation.multilabel import evaluate_multilabel
    from vitreous.inspection.run_report import write_training_report
    from vitreous.training.callbacks import Display
    from vitreous.training.card import write_card
    from vitreous.training.classifier import train_classifier, train_loader
    from vitreous.training.initial_model import count_parameters

    config = run.config
    trained = train_classifier(
        run,
        splits,
        device=device,
        validate=monitor(splits, config),
        display=Display() if world.first else None,
        world=world,
    )
    if not world.first:
        return None
    held_out = splits.test or splits.validation
    measure = evaluate_multilabel if splits.summary.multi_label else evaluate
    batch = config.evaluation.batch_size
    evaluation = measure(trained.model, held_out, device=device, batch_size=batch) if held_out else None
    baselines = digits_baselines(splits) if splits.name == "digits" else ()
    result: dict[str, Any] = {
        "run": str(run.path),
        **(evaluation.to_json() if evaluation else {}),
        "held_out": "test" if splits.test else "validation" if splits.validation else None,
        "seconds": trained.seconds,
        "waiting": trained.waiting,
        "train_count": len(splits.train),
        "classes": list(splits.train.classes),
        "parameters": count_parameters(trained.model),
        "bad_files": bad_files(run, trained.bad, evaluation.failed if evaluation else {}),
        "baselines": [baseline._asdict() for baseline in baselines],
    }
    if evaluation and held_out:
        report = write_training_report(
            run.path,
            model=trained.model,
            evaluation=evaluation,
            images=held_out,
            baselines=baselines,
            sheet=contact_sheet(
                train_loader(run.config, splits, device),
                run.config.preprocessing,
                splits.train.classes,
                count=24,
            ),
        )
        result["report"] = str(report)
    write_card(run, result)
    return result


def print_table(result: dict[str, Any]) -> None:
    """What came out, for people."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column(f"held-out images: {result.get('test_count', 0)}")
    table.add_column("accuracy", justify="right")
    table.add_column("95 % interval", justify="right")
    accuracy = result.get("test_accuracy")
    rows = [("this ViT", accuracy, result["test_accuracy_interval"])] if accuracy is not None else []
    rows += [(each["name"], each["accuracy"], each["interval"]) for each in result["baselines"]]
    for name, accuracy, (low, high) in rows:
        table.add_row(name, f"{accuracy:.2%}", f"{low:.2%} to {high:.2%}")
    console = Console(soft_wrap=True)
    if rows:
        console.print(table)
    if "test_mean_average_precision" in result:
        precision = result["test_mean_average_precision"]
        console.print(f"mean average precision {precision:.4f} on {result['test_count']} held-out images")
    console.print(
        f"\ntrained in {result['seconds']:.1f} s ({result['waiting']:.1%} of them waiting for data), "
        f"{result['train_count']} images, {result['parameters']:,} parameters",
        highlight=False,
    )
    print_places(result)


def one_line(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Our own warnings as a sentence, not as a piece of source; those of libraries are not for users."""
    if "vitreous" in Path(filename).parts:
        print(f"vitreous: {message}", file=sys.stderr)
