"""`vitreous.train`, `pretrain` and the training of a translator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from vitreous.api.arguments import ImageSize, Settings, settings_tree
from vitreous.api.data import data_source
from vitreous.api.run import Run, check_shard, train_in_processes
from vitreous.errors import InputError, nearest

if TYPE_CHECKING:
    import torch

    from vitreous.tasks.running import Started
    from vitreous.training.distributed import World


def train(
    data: Any = None,
    *,
    task: str | None = None,
    model: str | None = None,
    init: Any = None,
    recipe: str | None = None,
    image_size: ImageSize | None = None,
    epochs: int | float | None = None,
    minutes: int | float | None = None,
    batch_size: int | Literal["auto"] | None = None,
    out: str | Path | None = None,
    device: str = "auto",
    precision: str | None = None,
    shard: bool | None = None,
    seed: int | None = None,
    workers: int | None = None,
    strict: bool = False,
    settings: Settings | None = None,
    config: str | Path | None = None,
    callbacks: Iterable[Any] = (),
    progress: bool = True,
) -> Run:
    """Train or fine-tune a model on images; evaluate it on the held-out part, write the report and the card.

    Args:
        data: a folder with a sub-folder for each class, a manifest, shards, "cifar10:PATH", "hf:NAME"; or in
            memory: a torch Dataset, a Hugging Face dataset, (images, labels), a list of (image, label). By
            default the task's own small data: the digits.
        task: classification (the default), multilabel, regression, segmentation or captioning.
        model: a name such as "ViT-S/16"; by default the data decide.
        init: a checkpoint or a run to fine-tune.
        recipe: one of `list_recipes()`; by default the data decide.
        epochs, minutes: how long; one of them.
        batch_size: images of a step; "auto": the recipe's, in micro-batches that fit the memory.
        out: the run directory; by default a new one in runs/.
        precision: auto, fp32, bf16 or fp8.
        shard: under torchrun, shard the weights over the processes (FSDP).
        seed: the random seed of initialization, shuffling and augmentation.
        workers: threads that decode.
        strict: an image that cannot be read is an error.
        settings: any leaf of the configuration, {"training.peak_lr": 1e-3}; and a TOML file of them.
        callbacks: `vitreous.training.callbacks.Callback` objects, or functions that get each row of metrics.
        progress: show progress, and why the recipe was chosen, on stderr.

    Raises:
        InputError: data, settings or options that do not fit together.
        Interrupted: Ctrl-C or SIGTERM came, and the state is saved: `Run(path).resume()` continues.
    """
    from vitreous.tasks import task_named
    from vitreous.tasks.running import start_run

    check_minutes(minutes, epochs)
    fit_memory = batch_size == "auto"
    leaves = {
        "model.name": model,
        "model.image_size": image_size,
        "training.epochs": epochs,
        "training.batch_size": None if fit_memory else batch_size,
        "training.precision": precision,
        "training.shard": shard,
        "data.strict": strict or None,
        "data.workers": workers,
        "seed": seed,
    }
    tree = merged_settings(settings, config, leaves)
    named = task_named(str(task or tree.get("task", "classification")))
    if named.config.command != "train":
        instead = "vitreous.pretrain" if named.config.command == "pretrain" else "vitreous translate train"
        raise InputError(f"the task {named.name} is trained by {instead}")
    given = {
        "--model": model,
        "--init": init,
        "--recipe": recipe,
        "--image-size": image_size,
        "--minutes": minutes,
        "--batch-size auto": fit_memory,
        "--workers": workers,
        "--strict": strict,
    }
    named.check_options("train", given)
    check_shard(shard)
    source = None if data is None else data_source(data, numbers=named.name == "regression")

    def start(here: torch.device, world: World) -> Started:
        return start_run(
            named,
            source,
            tree,
            recipe=recipe,
            init=checkpoint_path(init),
            out=None if out is None else Path(out),
            device=here,
            world=world,
            fit_memory=fit_memory,
            minutes=minutes,
        )

    return train_in_processes(start, device=device, callbacks=callbacks, progress=progress)


def pretrain(
    data: Any = None,
    *,
    objective: str | None = None,
    model: str | None = None,
    init: Any = None,
    image_size: ImageSize | None = None,
    epochs: int | float | None = None,
    batch_size: int | None = None,
    out: str | Path | None = None,
    device: str = "auto",
    precision: str | None = None,
    shard: bool | None = None,
    seed: int | None = None,
    workers: int | None = None,
    settings: Settings | None = None,
    config: str | Path | None = None,
    callbacks: Iterable[Any] = (),
    progress: bool = True,
) -> Run:
    """Pre-train an encoder on images alone; labels, where there are any, are not used.

    Args:
        objective: masked-patch, mae (the default), simmim or dino.
        data, model, init, epochs, ...: see `train`.

    Raises:
        InputError, Interrupted: see `train`.
    """
    from vitreous.tasks.pretraining.config import OBJECTIVES
    from vitreous.tasks.running import start_run

    leaves = {
        "model.name": model,
        "model.image_size": image_size,
        "training.epochs": epochs,
        "training.batch_size": batch_size,
        "training.precision": precision,
        "training.shard": shard,
        "data.workers": workers,
        "seed": seed,
    }
    tree = merged_settings(settings, config, leaves)
    name = str(objective or tree.get("task", "mae"))
    if name not in OBJECTIVES:
        raise InputError(f"unknown objective {name!r}: {nearest(name, OBJECTIVES)}")
    check_shard(shard)
    source = None if data is None else data_source(data)

    def start(here: torch.device, world: World) -> Started:
        path = None if out is None else Path(out)
        return start_run(name, source, tree, init=checkpoint_path(init), out=path, device=here, world=world)

    return train_in_processes(start, device=device, callbacks=callbacks, progress=progress)


def train_translator(
    pairs: str | None = None,
    *,
    steps: int | None = None,
    epochs: int | float | None = None,
    batch_size: int | None = None,
    out: str | Path | None = None,
    device: str = "auto",
    precision: str | None = None,
    shard: bool | None = None,
    seed: int | None = None,
    settings: Settings | None = None,
    config: str | Path | None = None,
    callbacks: Iterable[Any] = (),
    progress: bool = True,
    **search: Any,
) -> Run:
    """Train the Transformer of 2017 on pairs of texts.

    Args:
        pairs: a TSV file, two text files with a comma between, hf:NAME; by default numbers in words.
        search: `beams` and `length_penalty` of the evaluation.
        steps, epochs, ...: see `train`.

    Raises:
        InputError, Interrupted: see `train`.
    """
    from vitreous.tasks.running import start_run

    leaves = {
        "seed": seed,
        "training.steps": steps,
        "training.epochs": epochs,
        "training.precision": precision,
        "training.batch_size": batch_size,
        "training.shard": shard,
    }
    tree = merged_settings(settings, config, leaves)
    check_shard(shard)

    def start(here: torch.device, world: World) -> Started:
        path = None if out is None else Path(out)
        return start_run("translation", pairs, tree, out=path, device=here, world=world)

    return train_in_processes(start, device=device, callbacks=callbacks, progress=progress, **search)


def merged_settings(
    settings: Settings | None, config: str | Path | None, leaves: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the settings with those leaves over them that are given."""
    given = {name: value for name, value in leaves.items() if value is not None}
    tree = settings_tree(settings, config)
    from vitreous.models.settings import set_leaf

    for name, value in given.items():
        set_leaf(tree, name, value)
    return tree


def checkpoint_path(init: Any) -> str | None:
    """Return the path of what a run begins with: a path or a `Run`. Raises InputError for a model."""
    path = getattr(init, "path", init)
    if path is None or isinstance(path, str | Path):
        return None if path is None else str(path)
    raise InputError(
        f"init is a path, or a Run, not a {type(init).__name__}: vitreous.save it, and give that path"
    )


def check_minutes(minutes: int | float | None, epochs: int | float | None) -> None:
    """Raise InputError for two lengths, or one of nothing."""
    if minutes is None:
        return
    if epochs is not None:
        raise InputError("--minutes and --epochs both say how long: give one of them")
    if not minutes > 0:
        raise InputError(f"--minutes {minutes:g} leaves no time to train: give a number above 0")
