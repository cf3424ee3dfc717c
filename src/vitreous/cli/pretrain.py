"""`vitreous pretrain DATA`."""

from __future__ import annotations

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
    Workers,
    check_resume,
    parse_settings,
    parse_size,
)
from vitreous.cli.training import print_run

if TYPE_CHECKING:
    from vitreous.tasks.results import RunResult


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
    seed: Annotated[int | None, Parameter(help="random seed (initialization, shuffling, masks)")] = None,
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
    import vitreous as vt
    from vitreous.api.run import resume_run

    options: dict[str, Any] = {
        "objective": objective,
        "model": model,
        "init": init,
        "image_size": parse_size(image_size),
        "batch_size": batch_size,
        "out": out,
        "precision": precision,
        "seed": seed,
        "workers": workers,
        "settings": parse_settings(set),
        "config": config,
    }
    if resume:
        check_resume(data, *options.values())
        return print_run(
            lambda: resume_run(resume, command="pretrain", epochs=epochs, shard=shard, device=device),
            json=json,
            after=print_next,
        )
    return print_run(
        lambda: vt.pretrain(data, epochs=epochs, shard=shard, device=device, **options),
        json=json,
        after=print_next,
    )


def print_next(result: RunResult) -> None:
    """Print what to do with the encoder."""
    print(f"next    vitreous train DATA --init {quote(str(result.run.path))}")
