"""`vitreous train [DATA]`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

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
    parse_settings,
    parse_size,
)
from vitreous.cli.training import print_run


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
    seed: Annotated[
        int | None, Parameter(help="random seed (initialization, shuffling, augmentation)")
    ] = None,
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
    import vitreous as vt
    from vitreous.api.run import resume_run

    options: dict[str, Any] = {
        "model": model,
        "init": init,
        "recipe": recipe,
        "image_size": parse_size(image_size),
        "minutes": minutes,
        "batch_size": batch_size,
        "out": out,
        "precision": precision,
        "seed": seed,
        "workers": workers,
        "strict": strict,
        "settings": parse_settings(set),
        "config": config,
    }
    if resume:
        check_resume(data, *options.values())
        return print_run(
            lambda: resume_run(resume, task=task, epochs=epochs, shard=shard, device=device), json=json
        )
    return print_run(
        lambda: vt.train(data, task=task, epochs=epochs, shard=shard, device=device, **options), json=json
    )
