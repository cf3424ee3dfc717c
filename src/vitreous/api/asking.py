"""`vitreous.evaluate`, `predict` and `serve`: what a trained model answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitreous.api.arguments import (
    ImageSize,
    Settings,
    computation,
    data_source,
    fastest,
    model_fields,
    model_name,
    path_of_run,
    progress_bar,
    say,
    settings_tree,
    weights_folder,
)
from vitreous.data.dataset import ImageDataset
from vitreous.data.image_list import image_list
from vitreous.errors import InputError, require_packages

if TYPE_CHECKING:
    from vitreous.deployment.answering import Predictions
    from vitreous.evaluation.result import Evaluation


def evaluate(
    model: Any,
    data: Any = None,
    *,
    tta: bool = False,
    image_size: ImageSize | None = None,
    batch_size: int | None = None,
    workers: int | None = None,
    device: str = "auto",
    precision: str = "auto",
    settings: Settings | None = None,
    config: str | Path | None = None,
    progress: bool = True,
) -> Evaluation:
    """Evaluate a model on data that it did not learn from, each example once; under torchrun all processes
    share the examples, and each has the result.

    Args:
        model: a run, any checkpoint with a head, or a model.
        data: DATA as `train` takes it; by default the held-out part of what the run was trained on.
        tta: test-time augmentation: the mean answer to an image, its corners and, if the model was trained
            with them, mirror images; five or ten times the work.
        settings, config: of the data ({"data.test_fraction": 0.3}) and the model's configuration.

    Raises:
        InputError: no such model or data, nothing was held out, or an option that the task does not have.
    """
    from vitreous.evaluation.outputs import automatic_precision
    from vitreous.tasks import task_named
    from vitreous.tasks.answering import open_answerer, task_of
    from vitreous.tasks.task import module_of
    from vitreous.training.distributed import process_group
    from vitreous.training.precision import computing

    model = path_of_run(model)
    task = task_of(model) or task_named("classification")
    task.check_options(
        "evaluate", tta=tta, image_size=image_size, workers=workers, set=settings, config=config
    )
    tree = settings_tree(settings, config)
    overrides = model_fields({"model": tree.pop("model", {})}, image_size)
    source = None if data is None else data_source(data, numbers=task.numeric)
    quick = model if tta else fastest(model, precision, device, overrides)
    task, answerer = open_answerer(quick, tta=tta, **overrides)
    name = model_name(model)
    held = task.held_out(name, answerer, source, tree)
    how = computation(device, precision, batch_size, workers)
    with process_group(how["device"]) as (world, here):
        how |= {"device": here, "world": world}
        module_of(answerer).to(here)
        wanted, shown = how.pop("precision"), progress and world.first
        if world.first:
            wanted = automatic_precision(
                answerer,
                held.examples if isinstance(held.examples, ImageDataset) else None,
                wanted,
                here,
                folder=weights_folder(model),
                workers=how["workers"],
                say=say,
            )
        with computing(world.broadcast(wanted), here), progress_bar("evaluating", shown) as advance:
            evaluation = task.evaluate(answerer, held.examples, progress=advance, **how)
    return replace(evaluation, model=name, source=held.source, part=held.part)


def predict(
    model: Any,
    images: Any,
    *,
    top: int | None = None,
    threshold: int | float | None = None,
    tta: bool = False,
    out: str | Path | None = None,
    engine: str | None = None,
    actors: int | None = None,
    image_size: ImageSize | None = None,
    batch_size: int | None = None,
    workers: int | None = None,
    device: str = "auto",
    precision: str = "auto",
    settings: Settings | None = None,
    config: str | Path | None = None,
    progress: bool = True,
) -> Predictions:
    """Classify images, write their text, or find the class of each pixel, as the task of the model is.

    Args:
        model: a run, any checkpoint with a head, or a model.
        images: one or many paths, folders, globs, PIL images, arrays or tensors. With a folder as `out` any
            DATA: folders, manifests, tar shards, Parquet files, URLs.
        top: how many labels to name, the most probable first; by default 5.
        threshold: name all labels that are as probable as well, `labels`: several where an image can have
            several, or none where the model is unsure.
        tta: see `evaluate`.
        out: a new .csv, .jsonl or .parquet file, which gets a row for each image as it is answered; the
            result then holds no answers. Or a folder, which gets a Parquet file for each part of the images,
            and is continued where it has some. Of a segmenter the folder for the masks; by default a new one
            in segmented/, or, for a model in memory, the answers.
        engine, actors: of a folder with Parquet files; "ray" computes in so many processes of a Ray cluster.

    Raises:
        InputError: no such model, no image at all, or an option that the task does not have.
    """
    if top is not None and top < 1:
        raise InputError(f"--top {top} names no label: use 1 or more")
    model = path_of_run(model)
    others = tta, out, engine, actors, settings, config, image_size
    if threshold is None and not any(others) and device in ("auto", "cpu"):
        found = predict_without_torch(
            model, images, top or 5, batch_size, workers, precision=precision, progress=progress
        )
        if found is not None:
            return found
    from vitreous.api.answer_parts import answer_parts, check_for_folder, is_folder
    from vitreous.api.predictor import Predictor
    from vitreous.deployment.answering import Predictions
    from vitreous.tasks import task_named
    from vitreous.tasks.answer_tables import ENDINGS, check_table
    from vitreous.tasks.answering import predict as ask
    from vitreous.tasks.answering import task_of
    from vitreous.training.run import default_path

    task = task_of(model) or task_named("classification")
    if threshold is not None and not 0 <= threshold <= 1:
        raise InputError(f"--threshold {threshold:g} is not a probability: give a number from 0 to 1")
    task.check_options(
        "predict",
        top=top,
        threshold=threshold,
        tta=tta,
        out=out,
        image_size=image_size,
        workers=workers,
        set=settings,
        config=config,
    )
    if out is not None and is_folder(out) and not task.answer_folder:
        asked: dict[str, Any] = {"top": top, "threshold": threshold, "tta": tta, "image_size": image_size}
        asked |= {"device": device, "precision": precision, "batch_size": batch_size, "workers": workers}
        predictor = Predictor(model, settings=settings, config=config, **asked)
        done = answer_parts(predictor, images, out, engine=engine, actors=actors, progress=progress)
        return Predictions(task.name, (), done.reasons, done.images, out=Path(out))
    check_for_folder(engine, actors)
    overrides = model_fields(settings_tree(settings, config), image_size)
    listed, missing = image_list(images)
    table = Path(out) if out is not None and (Path(out).suffix in ENDINGS or not task.answer_folder) else None
    folder = Path(out) if out is not None and not table else None
    if table:
        check_table(table)
    if not folder and task.answer_folder and isinstance(model, str | Path):  # of a model itself: in memory
        folder = default_path(Path(model).name, root=Path(task.answer_folder))
    named: dict[str, Any] = {"top": top, "threshold": threshold, "out": folder}
    options = {name: value for name, value in named.items() if value is not None}
    quick = model if tta or folder else fastest(model, precision, device, overrides)
    with progress_bar("predicting", progress) as advance:
        how = computation(device, precision, batch_size, workers)
        found = ask(
            quick,
            listed,
            progress=advance,
            overrides=overrides,
            table=table,
            tta=tta,
            weights=weights_folder(model),
            say=say,
            **how,
            **options,
        )
    failed = {each.path: each.reason for each in missing}
    return replace(found, failed={**failed, **found.failed})


def predict_without_torch(
    model: Any,
    images: Any,
    top: int,
    batch_size: int | None,
    workers: int | None,
    *,
    precision: str,
    progress: bool,
) -> Predictions | None:
    """Classify images with an exported file, or with the one that was chosen for MODEL, without PyTorch; None
    where that is not to be had, or for so many images that PyTorch's way of decoding is worth its loading."""
    from vitreous.deployment.answering import BATCH, MANY, open_torchless, optimized, predict_exported
    from vitreous.deployment.engines import is_program

    if not isinstance(model, str | Path) or precision not in ("auto", "fp32"):
        return None
    chosen = optimized(model) if precision == "auto" else None
    file = Path(model) if is_program(model) else chosen.file if chosen else None
    if file is None:
        return None
    listed, missing = image_list(images)
    found = open_torchless(file) if len(listed) < MANY else None
    if found is None:
        return None
    if chosen:
        say(chosen.sentence)
    bar = progress_bar("predicting", progress) if len(listed) > BATCH else nullcontext()
    with bar as advance:
        answers = predict_exported(
            found, listed, top=top, batch_size=batch_size or BATCH, workers=workers, progress=advance
        )
    failed = {each.path: each.reason for each in missing}
    return replace(answers, failed={**failed, **answers.failed})


def print_address(url: str, about: Mapping[str, Any]) -> None:
    """Print where a model is served."""
    print(f"{about['name']} answers at {url}  (Ctrl-C stops it)", flush=True)


def serve(
    model: Any,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    max_batch: int = 32,
    max_wait: int | float = 5.0,
    queue: int = 256,
    deadline: int | float = 60.0,
    allow_host: Sequence[str] | None = None,
    token_file: str | Path | None = None,
    tls_cert: str | Path | None = None,
    tls_key: str | Path | None = None,
    metrics_port: int | None = None,
    access_log: bool = False,
    workers: int | None = None,
    precision: str = "auto",
    image_size: ImageSize | None = None,
    device: str = "auto",
    settings: Settings | None = None,
    config: str | Path | None = None,
    ready: Callable[[str, dict[str, Any]], None] = print_address,
    language: str | None = None,
) -> None:
    """Answer over HTTP until Ctrl-C, with a web page.

    Args:
        model: a run of any task that answers, a checkpoint in any format, or a model name; or several,
            {"a": run, "b": run}, whose addresses begin with /models/a and /models/b.
        port: 0 for any that is free.
        max_batch: images or texts computed together.
        max_wait: milliseconds that a request waits for others.
        queue: maximum queued images or texts; beyond it the server answers 503.
        deadline: seconds from a request's last byte to its answer; beyond it the server answers 504.
        allow_host: names in the Host header that are answered beside localhost; a server that other machines
            reach answers for any name unless some are given.
        token_file: a file with a token; requests then need the header Authorization: Bearer TOKEN.
        tls_cert, tls_key: the files of a certificate and its key, for https.
        metrics_port: GET /metrics is at this port alone, for Prometheus.
        access_log: write a line of JSON on stderr for each request.
        workers: processes that serve at the one address and share the weights on a CPU, each with limits of
            its own. SIGHUP to the one that started them loads the models again, without losing a request.
            By default this process serves.
        ready: called with the address and what is served, once it answers; by default it is printed.
        language: of the web page, "en" or "ko"; by default that of the locale.

    Raises:
        InputError: a model that cannot be served, a port that is taken, or a package that is missing.
    """
    numbers = {"max-batch": (max_batch, 1), "max-wait": (max_wait, 0), "queue": (queue, 1)}
    for name, (value, least) in {
        **numbers,
        "deadline": (deadline, 1),
        "workers": (1 if workers is None else workers, 1),
    }.items():
        if value < least:
            raise InputError(f"--{name} {value:g} is too low: use {least} or more")
    if (tls_cert is None) != (tls_key is None):
        raise InputError("--tls-cert and --tls-key go together: give both")
    packages = "fastapi", "uvicorn", "python_multipart", "prometheus_client", "matplotlib"
    require_packages(*packages, extra="serve", what="serving")
    from vitreous.api.deploying import open_to_serve
    from vitreous.deployment.serving import running
    from vitreous.deployment.serving.endpoints import Limits
    from vitreous.deployment.serving.exported import serve_models

    models = dict(model) if isinstance(model, Mapping) else {"": model}
    specs = {name: str(path_of_run(each)) for name, each in models.items()}
    fields = model_fields(settings_tree(settings, config), image_size)
    serve_here = partial(
        serve_models,
        specs,
        open_one=partial(open_to_serve, device=device, precision=precision, fields=fields),
        limits=Limits(max_batch=max_batch, max_wait=max_wait / 1000, queue=queue, deadline=deadline),
        hosts=running.hosts_of(host, allow_host or ()),
        token=None if token_file is None else running.read_token(Path(token_file)),
        tls=running.Tls(Path(tls_cert), Path(tls_key)) if tls_cert and tls_key else None,
        log_access=access_log,
        language=language,
    )
    opened, scheme = running.bind(host, port), "https" if tls_cert else "http"

    def announce(about: dict[str, Any]) -> None:
        ready(running.address_of(opened, scheme), about)

    with opened:
        if workers is None:
            serve_here(opened, announce, metrics_at=(host, metrics_port))
            return
        from vitreous.deployment.serving.workers import shared_counters, supervise

        with shared_counters(), running.metrics_at(host, metrics_port):
            serve_there = partial(serve_here, metrics_at=(host, None) if metrics_port is None else None)
            supervise(serve_there, opened, workers, ready=announce)
