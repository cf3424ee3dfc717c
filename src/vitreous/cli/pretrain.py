"""`vitreous pretrain DATA`."""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING, Annotated

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
    Workers,
    check_resume,
    check_shard,
    chosen,
    parse_size,
    settings_tree,
    with_leaves,
)
from vitreous.cli.training import carry_out

if TYPE_CHECKING:
    import torch

    from vitreous.tasks.running import RunResult, Started
    from vitreous.training.distributed import World


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
    workers: Workers = None,
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
    from vitreous.errors import InputError, nearest

    options = {
        "model.name": model,
        "model.image_size": parse_size(image_size),
        "training.epochs": None if resume else epochs,
        "training.batch_size": batch_size,
        "training.precision": precision,
        "training.shard": None if resume else shard,
        "data.workers": workers,
        "seed": seed,
    }
    given = chosen(options)
    check_resume(resume, data, objective, given, set, config, init, out)
    check_shard(shard)
    settings = settings_tree(config, set)

    def start(here: torch.device, world: World) -> Started:
        from vitreous.tasks.pretraining.config import OBJECTIVES
        from vitreous.tasks.running import resume_run, start_run

        if resume:
            return resume_run(resume, command="pretrain", world=world, shard=shard, epochs=epochs)
        name = str(objective or settings.get("task", "mae"))
        if name not in OBJECTIVES:
            raise InputError(f"unknown objective {name!r}: {nearest(name, OBJECTIVES)}")
        return start_run(
            name, data, with_leaves(settings, given), init=init, out=out, device=here, world=world
        )

    return carry_out(start, device=device, json=json, after=print_next)


def print_next(result: RunResult) -> None:
    """Print what to do with the encoder."""
    print(f"next    vitreous train DATA --init {quote(str(result.run.path))}")
