"""`vitreous.evaluate`, `predict` and `serve`: what a trained model answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from vitreous.api.arguments import ImageSize, Settings, model_fields, progress_bar, settings_tree
from vitreous.api.data import data_source
from vitreous.data.image_list import image_list
from vitreous.errors import InputError

if TYPE_CHECKING:
    from vitreous.tasks.results import Evaluated, Predictions


def evaluate(
    model: Any,
    data: Any = None,
    *,
    image_size: ImageSize | None = None,
    batch_size: int = 64,
    workers: int | None = None,
    device: str = "auto",
    precision: str = "fp32",
    settings: Settings | None = None,
    config: str | Path | None = None,
    progress: bool = True,
) -> Evaluated:
    """Evaluate a model on data that it did not learn from, each example once.

    Args:
        model: a run, or any checkpoint with a head.
        data: DATA as `train` takes it; by default the held-out part of what the run was trained on.
        settings, config: of the data ({"data.test_fraction": 0.3}) and the model's configuration.

    Raises:
        InputError: no such model or data, nothing was held out, or an option that the task does not have.
    """
    from vitreous.data.loading import worker_count
    from vitreous.tasks import task_named
    from vitreous.tasks.running import evaluate_model, task_of
    from vitreous.training.device import pick_device

    model = path_of_run(model)
    task = task_of(model) or task_named("classification")
    given = {"--image-size": image_size, "--workers": workers, "--set": settings or None, "--config": config}
    task.check_options("evaluate", given)
    tree = settings_tree(settings, config)
    overrides = model_fields({"model": tree.pop("model", {})}, image_size)
    source = None if data is None else data_source(data, numbers=task.name == "regression")
    with progress_bar("evaluating", progress) as advance:
        return evaluate_model(
            model,
            source,
            tree,
            device=pick_device(device),
            precision=precision,
            batch_size=batch_size,
            workers=worker_count(workers),
            progress=advance,
            overrides=overrides,
        )


def predict(
    model: Any,
    images: Any,
    *,
    top: int | None = None,
    out: str | Path | None = None,
    image_size: ImageSize | None = None,
    batch_size: int = 64,
    workers: int | None = None,
    device: str = "auto",
    precision: str = "fp32",
    settings: Settings | None = None,
    config: str | Path | None = None,
    progress: bool = True,
) -> Predictions:
    """Classify images, write their text, or find the class of each pixel, as the task of the model is.

    Args:
        model: a run, any checkpoint with a head, or a model.
        images: one or many paths, folders, globs, PIL images, arrays or tensors.
        top: how many labels to name, the most probable first; by default 5.
        out: where a segmenter's masks go.

    Raises:
        InputError: no such model, no image at all, or an option that the task does not have.
    """
    from vitreous.data.loading import worker_count
    from vitreous.tasks import task_named
    from vitreous.tasks.running import predict as ask
    from vitreous.tasks.running import task_of
    from vitreous.training.device import pick_device

    if top is not None and top < 1:
        raise InputError(f"--top {top} names no label: use 1 or more")
    model = path_of_run(model)
    task = task_of(model) or task_named("classification")
    given = {
        "--top": top,
        "--out": out,
        "--image-size": image_size,
        "--workers": workers,
        "--set": settings or None,
        "--config": config,
    }
    task.check_options("predict", given)
    listed, missing = image_list(images)
    folder = Path(out) if out else task.default_out(str(model))
    options = {name: value for name, value in (("top", top), ("out", folder)) if value is not None}
    with progress_bar("predicting", progress) as advance:
        found = ask(
            model,
            listed,
            device=pick_device(device),
            precision=precision,
            batch_size=batch_size,
            workers=worker_count(workers),
            progress=advance,
            overrides=model_fields(settings_tree(settings, config), image_size),
            **options,
        )
    failed = {each.path: each.reason for each in missing}
    return replace(found, failed={**failed, **found.failed})


def serve(
    model: Any,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    max_batch: int = 32,
    max_wait: int | float = 5.0,
    queue: int = 256,
    precision: Literal["auto", "fp32", "bf16"] = "fp32",
    image_size: ImageSize | None = None,
    device: str = "auto",
    settings: Settings | None = None,
    config: str | Path | None = None,
    ready: Callable[[str, dict[str, Any]], None] | None = None,
) -> None:
    """Answer over HTTP until Ctrl-C, with a web page.

    Args:
        model: a run of any task that answers, a checkpoint in any format, or a model name.
        port: 0 for any that is free.
        max_batch: images or texts computed together.
        max_wait: milliseconds that a request waits for others.
        queue: maximum queued images or texts; beyond it the server answers 503.
        ready: called with the address and what is served, once it answers; by default it is printed.

    Raises:
        InputError: a model that cannot be served, a port that is taken, or a package that is missing.
    """
    for name, value, least in (("max-batch", max_batch, 1), ("max-wait", max_wait, 0), ("queue", queue, 1)):
        if value < least:
            raise InputError(f"--{name} {value:g} is too low: use {least} or more")
    from vitreous.deployment.serving import check_installed

    check_installed()
    from vitreous.deployment.serving import running
    from vitreous.deployment.serving.app import Pace, build_app
    from vitreous.deployment.serving.endpoints import Limits
    from vitreous.deployment.serving.page import page_of
    from vitreous.tasks.running import task_of
    from vitreous.tasks.serving import open_served
    from vitreous.training.device import pick_device

    model = path_of_run(model)
    if task := task_of(model):
        given = {"--image-size": image_size, "--set": settings or None, "--config": config}
        task.check_options("serve", given)
    fields = model_fields(settings_tree(settings, config), image_size)
    address, chosen = running.bind(host, port), pick_device(device)
    with running.one_thread() as thread:
        opened = thread.submit(open_served, str(model), device=chosen, precision=precision, **fields).result()
        app = build_app(
            opened.served,
            about=opened.about,
            page=page_of(opened.served, opened.about, opened.examples, Limits()),
            model_thread=thread,
            pace=Pace(max_batch, max_wait / 1000, queue),
        )
        about = {"task": opened.served.task, **opened.about}

        def announce(url: str) -> None:
            if ready:
                ready(url, about)
            else:
                print(f"{about['name']} answers at {url}  (Ctrl-C stops it)", flush=True)

        running.run(app, address, ready=announce)


def path_of_run(model: Any) -> Any:
    """Return the path of a `Run`; anything else as it is."""
    return model.path if hasattr(model, "path") and hasattr(model, "resume") else model
