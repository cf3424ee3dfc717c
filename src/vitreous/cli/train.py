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
    ImageSize,
    Json,
    Out,
    Precision,
    Settings,
    Shard,
    check_shard,
    parse_size,
    print_json,
    settings_tree,
)
from vitreous.errors import InputError

if TYPE_CHECKING:
    import torch

    from vitreous.data.pictures import Splits
    from vitreous.training.distributed import World
    from vitreous.training.plan import Plan
    from vitreous.training.run import Run


def train(
    data: str | None = None,
    /,
    *,
    task: Annotated[
        Literal["classes", "text", "segmentation"], Parameter(help="what is learned of each picture")
    ] = "classes",
    model: Annotated[
        str | None, Parameter(help="ViT-Ti/16, R50+ViT-B/16; by default the data decide")
    ] = None,
    init: Annotated[str | None, Parameter(help="a checkpoint or run to fine-tune")] = None,
    recipe: Annotated[str | None, Parameter(help="a recipe's name; by default the data decide")] = None,
    image_size: ImageSize = None,
    epochs: Annotated[float | None, Parameter(help="passes over the data")] = None,
    minutes: Annotated[
        float | None, Parameter(help="as many steps as fit into this time, instead of epochs")
    ] = None,
    batch_size: Annotated[
        int | Literal["auto"] | None,
        Parameter(help="pictures in one step; auto: the recipe's, in parts that fit the memory"),
    ] = None,
    out: Out = None,
    resume: Annotated[Path | None, Parameter(help="a run directory: go on where it stopped")] = None,
    device: Device = "auto",
    precision: Precision | None = None,
    shard: Shard = None,
    seed: Annotated[int | None, Parameter(help="of weights, order and augmentation")] = None,
    set: Settings = None,
    config: ConfigFile = None,
    strict: Annotated[bool, Parameter(help="a picture that cannot be read is an error")] = False,
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

        task = "segmentation" if task_of(resume) == "segmentation" else task
    check_minutes(minutes, epochs, task)
    if task == "text":
        from vitreous.cli.text_task import refuse, train_text

        refuse(model=model, init=init, recipe=recipe, image_size=image_size, precision=precision)
        wanted = {"training.epochs": epochs, "training.batch_size": batch_size, "seed": seed}
        settings = put(
            {n: value for n, value in wanted.items() if value is not None}, settings_tree(config, set)
        )
        return train_text(data, settings, out=out, resume=resume, device=device, json=json)
    warnings.showwarning = one_line
    fit_memory = batch_size == "auto"
    options: dict[str, Any] = {
        "model.name": model,
        "model.image_size": parse_size(image_size),
        "training.epochs": epochs,
        "training.batch_size": None if fit_memory else batch_size,
        "training.precision": precision,
        "training.shard": None if resume else shard,
        "data.strict": strict or None,
        "seed": seed,
    }
    given = {name: value for name, value in options.items() if value is not None}
    if resume and (data or given or set or config or init or recipe or out or fit_memory or minutes):
        raise InputError("--resume goes on with the run's own configuration: give no other settings")
    settings = put(given, settings_tree(config, set))
    check_shard(shard)
    if task == "segmentation":
        from vitreous.cli.segmentation_task import train_segmentation

        if recipe or fit_memory:
            raise InputError("--recipe and --batch-size auto do not go with --task segmentation: use --set")
        return train_segmentation(data, settings, init=init, out=out, resume=resume, device=device, json=json)
    from vitreous.training.device import pick_device
    from vitreous.training.distributed import joined
    from vitreous.training.signals import Interrupted

    with joined(pick_device(device)) as (world, here):
        if resume:
            run, splits = reopened(resume, shard=shard)
        else:
            planned = plan_of(data, settings, recipe=recipe, init=init)
            run = begun(planned, out, device=here, world=world, fit_memory=fit_memory, minutes=minutes)
            splits = planned.splits
        try:
            result = carry_out(run, splits, device=here, world=world)
        except Interrupted as stopped:
            say(
                f"vitreous: stopped at step {stopped.step}, and the state is saved: go on with "
                f"vitreous train --resume {run.path}",
                world,
            )
            return 130
    if result is not None:
        print_json(result) if json else print_table(result)
    return 0


def put(values: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
    """The settings with those that have an option of their own."""
    from vitreous.models.settings import set_leaf

    for name, value in values.items():
        set_leaf(settings, name, value)
    return settings


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
    from vitreous.training.pacing import paced
    from vitreous.training.plan import settled
    from vitreous.training.run import Run, default_path

    config = settled(planned.config, planned.splits, device, fit_memory=fit_memory, world=world)
    if minutes:
        config = paced(config, planned.splits, minutes=minutes, device=device, world=world)
    run = Run.shared(out or default_path(planned.splits.name), config, world)
    for reason in planned.reasons:
        say(f"recipe: {reason}", world)
    if minutes:
        say(f"time: {config.training.steps} steps, measured to take {minutes:g} minutes", world)
    if fit_memory:
        parts = run.config.training.accumulate
        say(f"memory: batches of {config.training.batch_size} in {parts} parts", world)
    return run


def say(words: str, world: World) -> None:
    """Once, however many processes there are."""
    if world.first:
        print(words, file=sys.stderr)


def reopened(path: Path, *, shard: bool | None) -> tuple[Run, Splits]:
    """A run that goes on, with shards or without, and its data."""
    from vitreous.data.sources import open_data
    from vitreous.training.run import Run

    run = Run.open(path).spread(shard)
    return run, open_data(run.config.source, run.config.data)


def carry_out(run: Run, splits: Splits, *, device: torch.device, world: World) -> dict[str, Any] | None:
    """Train, measure, write the report and the card. What came out; None in all processes but the first."""
    from vitreous.data.contact_sheet import contact_sheet
    from vitreous.data.pictures import BadFiles
    from vitreous.evaluation.baselines import digits_baselines
    from vitreous.evaluation.classification import evaluate
    from vitreous.evaluation.monitor import monitor
    from vitreous.evaluation.multilabel import evaluate_multilabel
    from vitreous.inspection.training_report import write_training_report
    from vitreous.training.card import write_card
    from vitreous.training.classifier import train_classifier, train_loader
    from vitreous.training.display import Display
    from vitreous.training.starting import count_parameters

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
    bad = BadFiles()
    bad.reasons.update({**trained.bad, **(evaluation.failed if evaluation else {})})
    bad.write(run.path / "bad_files.txt")
    result: dict[str, Any] = {
        "run": str(run.path),
        **(evaluation.to_json() if evaluation else {}),
        "held_out": "test" if splits.test else "validation" if splits.validation else None,
        "seconds": trained.seconds,
        "waiting": trained.waiting,
        "train_count": len(splits.train),
        "classes": list(splits.train.classes),
        "parameters": count_parameters(trained.model),
        "bad_files": [{"path": path, "reason": reason} for path, reason in bad],
        "baselines": [baseline._asdict() for baseline in baselines],
    }
    if evaluation and held_out:
        report = write_training_report(
            run.path,
            model=trained.model,
            evaluation=evaluation,
            pictures=held_out,
            baselines=baselines,
            sheet=contact_sheet(train_loader(run.config, splits, device), count=24),
        )
        result["report"] = str(report)
    write_card(run, result)
    return result


def print_table(result: dict[str, Any]) -> None:
    """What came out, for people."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column(f"held-out pictures: {result.get('test_count', 0)}")
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
        console.print(f"mean average precision {precision:.4f} on {result['test_count']} held-out pictures")
    console.print(
        f"\ntrained in {result['seconds']:.1f} s ({result['waiting']:.1%} of them waiting for data), "
        f"{result['train_count']} pictures, {result['parameters']:,} parameters",
        highlight=False,
    )
    if result["bad_files"]:
        listed = f"{result['run']}/bad_files.txt"
        print(f"pictures that could not be read and were left out: {len(result['bad_files'])}, see {listed}")
    print(f"run     {result['run']}")
    if "report" in result:
        print(f"report  {result['report']}")


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
