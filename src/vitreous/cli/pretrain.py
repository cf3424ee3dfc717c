"""`vitreous pretrain DATA`."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from vitreous.cli.options import (
    BatchSize,
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
from vitreous.cli.training import going_on, in_processes, new_run
from vitreous.errors import InputError, nearest

if TYPE_CHECKING:
    import torch

    from vitreous.data.sources import Splits
    from vitreous.training.distributed import World
    from vitreous.training.run import Run


def pretrain(
    data: str | None = None,
    /,
    *,
    objective: Annotated[
        str | None, Parameter(help="masked-patch, mae (the default), simmim or dino")
    ] = None,
    model: Annotated[str | None, Parameter(help="ViT-Ti/16, ViT-B/16; by default the data decide")] = None,
    init: Annotated[str | None, Parameter(help="a checkpoint or run to begin with")] = None,
    image_size: ImageSize = None,
    epochs: Epochs = None,
    batch_size: BatchSize | None = None,
    out: Out = None,
    resume: Resume = None,
    device: Device = "auto",
    precision: Precision | None = None,
    shard: Shard = None,
    seed: Annotated[int | None, Parameter(help="of weights, order and masks")] = None,
    set: Settings = None,
    config: ConfigFile = None,
    json: Json = False,
) -> int:
    """Pre-train an encoder on images alone. Labels, where there are any, are not looked at.

    Fine-tune the result with vitreous train --init RUN, measure it with vitreous probe RUN DATA.

    Parameters
    ----------
    data
        digits, any folder of images, a manifest, shards, cifar10:PATH
    """
    options = {
        "model.name": model,
        "model.image_size": parse_size(image_size),
        "training.epochs": None if resume else epochs,
        "training.batch_size": batch_size,
        "training.precision": precision,
        "training.shard": None if resume else shard,
        "pretraining.objective": objective,
        "seed": seed,
    }
    given = chosen(options)
    check_resume(resume, data, given, set, config, init, out)
    check_shard(shard)

    def start(here: torch.device, world: World) -> tuple[Run, Splits]:
        from vitreous.pretraining.config import PretrainingRunConfig
        from vitreous.pretraining.plan import open_unlabeled
        from vitreous.training.run import Run

        if resume:
            run = going_on(Run.open(resume, PretrainingRunConfig), world, shard=shard, epochs=epochs)
            return run, open_unlabeled(run.config.source, run.config.data)
        settings = with_leaves(settings_tree(config, set), given)
        return begun(data, settings, init=init, out=out, device=here, world=world)

    return in_processes(start, carry_out, show=print_result, device=device, json=json)


def begun(
    data: str | None,
    settings: dict[str, Any],
    *,
    init: str | None,
    out: Path | None,
    device: torch.device,
    world: World,
) -> tuple[Run, Splits]:
    """A new run directory, and the data that it names."""
    from vitreous.pretraining.config import OBJECTIVES
    from vitreous.pretraining.plan import plan
    from vitreous.training.precision import decided
    from vitreous.training.run import default_path

    objective = settings.get("pretraining", {}).get("objective", "mae")
    if objective not in OBJECTIVES:
        raise InputError(f"unknown objective {objective!r}: {nearest(str(objective), OBJECTIVES)}")
    source = data or settings.get("source", "digits")
    planned = plan(source, settings, objective=objective, init=init or settings.get("init"))
    path = out or default_path(f"{planned.splits.name}-{objective}")
    settled = planned.config.model_copy(update={"training": decided(planned.config.training, device)})
    return new_run(path, settled, planned.reasons, world), planned.splits


def carry_out(run: Run, splits: Splits, device: torch.device, world: World) -> dict[str, Any] | None:
    """Pre-train, write the report. What came out; None in all processes but the first."""
    from vitreous.inspection.run_report import write_pretraining_report
    from vitreous.pretraining.config import PretrainingRunConfig
    from vitreous.pretraining.pretrainer import pretrain
    from vitreous.training.callbacks import Display
    from vitreous.training.initial_model import count_parameters

    config = run.config
    assert isinstance(config, PretrainingRunConfig)  # `Run` holds either kind
    display = Display("pre-training") if world.first else None
    pretrained = pretrain(run, splits, device=device, display=display, world=world)
    if not world.first:
        return None
    images = splits.validation or splits.test or splits.train
    report = write_pretraining_report(
        run.path, objective=pretrained.objective, config=config.pretraining, images=images
    )
    last = run.metrics()[-1]
    return {
        "run": str(run.path),
        "objective": config.pretraining.objective,
        "loss": last["loss"],
        "held_out_loss": last.get("validation_loss"),
        "seconds": pretrained.seconds,
        "train_count": len(splits.train),
        "parameters": count_parameters(pretrained.encoder),
        "bad_files": [{"path": path, "reason": reason} for path, reason in pretrained.bad.items()],
        "report": str(report),
    }


def print_result(result: dict[str, Any]) -> None:
    """What came out, for people."""
    held_out = "" if result["held_out_loss"] is None else f", {result['held_out_loss']:.4f} held out"
    print(f"{result['objective']}: loss {result['loss']:.4f} in training{held_out}")
    print(
        f"pre-trained in {result['seconds']:.1f} s on {result['train_count']} images, "
        f"{result['parameters']:,} parameters"
    )
    if result["bad_files"]:
        print(f"{len(result['bad_files'])} images could not be read: see {result['run']}/bad_files.txt")
    print(f"run     {result['run']}")
    print(f"report  {result['report']}")
    print(f"next    vitreous train DATA --init {quote(str(result['run']))}")
