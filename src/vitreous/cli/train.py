"""`vitreous train [DATA]`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

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
    Workers,
    check_resume,
    check_shard,
    chosen,
    parse_size,
    settings_tree,
    with_leaves,
)
from vitreous.cli.training import carry_out, check_minutes

if TYPE_CHECKING:
    import torch

    from vitreous.tasks.running import Started
    from vitreous.training.distributed import World


def train(
    data: str | None = None,
    /,
    *,
    task: Annotated[
        str | None,
        Parameter(help="classification (the default), regression, segmentation, captioning"),
    ] = None,
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
    workers: Workers = None,
    set: Settings = None,
    config: ConfigFile = None,
    strict: Annotated[bool, Parameter(help="an image that cannot be read is an error")] = False,
    json: Json = False,
) -> int:
    """Train or fine-tune a model on images.

    Parameters
    ----------
    data
        digits (the default), a folder with a sub-folder for each class, a manifest, shards, cifar10:PATH;
        with --task captioning a manifest whose label is the text (default: lines of handwritten digits); with
        --task segmentation a folder with images/ and masks/ (default: pages of handwritten digits)
    """
    from vitreous.errors import InputError
    from vitreous.tasks import task_named

    check_minutes(minutes, epochs)
    fit_memory = batch_size == "auto"
    options = {
        "model.name": model,
        "model.image_size": parse_size(image_size),
        "training.epochs": None if resume else epochs,
        "training.batch_size": None if fit_memory else batch_size,
        "training.precision": precision,
        "training.shard": None if resume else shard,
        "data.strict": strict or None,
        "data.workers": workers,
        "seed": seed,
    }
    given = chosen(options)
    check_resume(resume, data, given, set, config, init, recipe, out, fit_memory, minutes)
    settings = settings_tree(config, set)
    named = task_named(str(task or settings.get("task", "classification")))
    if named.config.command != "train":
        raise InputError(f"--task {named.name} is trained by vitreous {named.config.command}")
    named.check_options(
        "train",
        {
            "--model": model,
            "--init": init,
            "--recipe": recipe,
            "--image-size": image_size,
            "--minutes": minutes,
            "--batch-size auto": fit_memory,
            "--workers": workers,
            "--strict": strict,
        },
    )
    check_shard(shard)

    def start(here: torch.device, world: World) -> Started:
        from vitreous.tasks.running import resume_run, start_run

        if resume:
            return resume_run(resume, task=task, world=world, shard=shard, epochs=epochs)
        return start_run(
            named,
            data,
            with_leaves(settings, given),
            recipe=recipe,
            init=init,
            out=out,
            device=here,
            world=world,
            fit_memory=fit_memory,
            minutes=minutes,
        )

    return carry_out(start, device=device, json=json)
