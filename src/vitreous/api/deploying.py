"""`vitreous.calibrate`, `optimize`, `export` and `serve`: from a trained model to one that is used."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitreous.api.arguments import (
    ImageSize,
    Settings,
    computation,
    data_source,
    file_stem,
    model_fields,
    model_name,
    named_path,
    path_of_run,
    progress_bar,
    resolve_model,
    say,
    settings_tree,
    weights_folder,
)
from vitreous.errors import InputError, check_free, require_packages
from vitreous.results import Result

if TYPE_CHECKING:
    from vitreous.deployment.exporting import ExportedFile
    from vitreous.deployment.optimizing import Optimization


@dataclass(frozen=True)
class Calibrated(Result):
    """A temperature that was fitted, and the expected calibration error on the same images.

    Attributes:
        source, part, count: the images.
        temperature: by which the logits of the model without any calibration are divided now.
        error_before, error_after: the expected calibration error.
        folder: where the calibrated model is.
        thresholds: with the largest F1, of each label, where an image may have several.
    """

    model: str
    source: str
    part: str
    count: int
    temperature: float
    error_before: float
    error_after: float
    folder: Path
    thresholds: Mapping[str, float] | None = None


def calibrate(
    model: Any,
    data: Any = None,
    *,
    out: str | Path | None = None,
    batch_size: int | None = None,
    workers: int | None = None,
    device: str = "auto",
    settings: Settings | None = None,
    config: str | Path | None = None,
    progress: bool = True,
) -> Calibrated:
    """Fit a temperature of a classifier's probabilities, and store the model with it. Ranks do not change.

    Args:
        model: a run, whose model is replaced; or any checkpoint with a head, which is written to `out`.
        data: images that the model did not learn from and is not evaluated on, in any form that `train`
            takes; by default those that a training fits the temperature on.
        out: the folder for the calibrated model; by default that of the run, whose model is replaced.
        settings, config: of the data ({"data.validation_fraction": 0.1}).

    Raises:
        InputError: no such model or data, a task without probabilities, or no images to calibrate on.
    """
    from vitreous.checkpoints.files import model_folder
    from vitreous.checkpoints.native import save_native
    from vitreous.deployment.predictor import write_thresholds
    from vitreous.evaluation.calibration import calibrate_model
    from vitreous.tasks.answering import task_of

    path, how = path_of_run(model), computation(device, batch_size, workers)
    if not isinstance(path, str | Path):
        raise InputError(f"a {type(model).__name__} is stored nowhere: vitreous.save it, and give that path")
    spec, place = str(path), Path(path).expanduser()
    folder = Path(out) if out is not None else model_folder(place.parent if place.is_file() else place)
    if out is not None:
        check_free(folder)
    elif task_of(spec) is None or not (folder / "config.json").is_file():
        raise InputError(f"{spec} cannot be changed in its place: name a folder for the model with --out")
    answerer, held = open_classifier(spec, "probabilities", data, settings_tree(settings, config))
    with progress_bar("calibrating", progress) as advance:
        how |= {"learned": held.learned, "progress": advance}
        before, after = calibrate_model(answerer.to(how["device"]), held.examples, **how)
    save_native(answerer, folder)
    errors, thresholds = (before.calibration.ece, after.calibration.ece), write_thresholds(folder, after)
    facts = held.source, held.part, after.count, answerer.temperature, *errors, folder, thresholds
    return Calibrated(spec, *facts)


def optimize(
    model: Any,
    data: Any = None,
    *,
    budget: float = 0.003,
    engines: Sequence[str] | None = None,
    timed_batch: int = 8,
    batch_size: int | None = None,
    workers: int | None = None,
    device: str = "auto",
    settings: Settings | None = None,
    config: str | Path | None = None,
    progress: bool = True,
) -> Optimization:
    """Measure the ways to compute a classifier on this machine, and keep the fastest that is accurate enough.

    Engines (PyTorch, ONNX Runtime, OpenVINO), bf16, int8 and token merging are measured. `predict`,
    `evaluate` and `serve` use what is kept, unless another precision is asked for.

    Args:
        model: a run, or a folder of weights in the native format.
        data: images that the model did not learn from; by default the validation part of the run's data.
        budget: accuracy that may be lost: 0.003 is 0.3 %.
        engines: eager, compiled, onnx, openvino; by default those that are installed, and on a CPU without
            compiled, which takes minutes.
        timed_batch: images in the batches whose time decides.
        settings, config: of the data ({"data.validation_fraction": 0.1}).
        progress: print on stderr what is measured.

    Raises:
        InputError: no such model or data, a task without labels, or no validation images.
    """
    from vitreous.deployment import optimizing

    if not 0 <= budget < 1 or timed_batch < 1:
        raise InputError(f"--budget {budget:g} is not a part of 1, as 0.3% is, or --timed-batch is below 1")
    path, folder = path_of_run(model), weights_folder(model)
    if folder is None:
        raise InputError(
            f"{model_name(model)} is neither a run nor a folder of weights, beside which the choice is "
            "written: vitreous convert it to a folder"
        )
    how = computation(device, batch_size, workers)
    chosen = optimizing.engines_here(how["device"], engines)
    answerer, held = open_classifier(str(path), "labels to compare", data, settings_tree(settings, config))
    how |= {"about": {"model": str(path), "source": held.source, "part": held.part}, "engines": chosen}
    how |= {"budget": budget, "timed_batch": timed_batch, "say": say if progress else lambda line: None}
    return optimizing.optimize(answerer.to(how["device"]).eval(), folder, held.examples, **how)


def export(
    model: Any,
    out: str | Path | None = None,
    *,
    format: str | None = None,
    precision: str = "fp32",
    data: Any = None,
    with_preprocessing: bool = False,
    image_size: ImageSize | None = None,
    settings: Settings | None = None,
    config: str | Path | None = None,
    progress: bool = True,
) -> ExportedFile:
    """Write a model as a file for other programs, and compare the outputs of both.

    The program takes any number of normalized images of one size ("images") and gives "logits" and
    "features". Labels, task, preprocessing and license are in the file.

    Args:
        model: a run, a checkpoint in any format, a model name, or a model.
        out: .onnx (ONNX), .pt2 (torch.export), .safetensors (weights for JavaScript), or a folder whose name
            ends in openvino; by default the model's name with .onnx.
        format: onnx, torch or openvino, if the name of the file does not say.
        precision: fp32; bf16 for OpenVINO; int8.
        data: images to calibrate int8 of ONNX and OpenVINO on; by default the run's validation part.
        with_preprocessing: include the preprocessing: the program takes pixels, uint8 (B, H, W, C) of any
            size, and gives probabilities.
        settings, config: fields of the model's configuration, {"model.heads": 12}; and a TOML file of them.
        progress: print on stderr that it has begun, since it takes a while.

    Raises:
        InputError: an unknown format or suffix, a package that is missing, a model that is too large for the
            format, or a program whose outputs differ.
    """
    from vitreous.deployment import exporting
    from vitreous.deployment.engines import check_weights

    fields = model_fields(settings_tree(settings, config), image_size)
    path = Path(out or file_stem(model_name(model)) + exporting.ENDINGS.get(format or "onnx", ".onnx"))
    check_weights(model, "export")
    check_free(path)
    calibrated = precision == "int8" and format != "torch" and path.suffix != ".pt2"
    if data is not None and not calibrated:
        raise InputError("--data calibrates int8 of ONNX and OpenVINO, and has no effect here: leave it out")
    opened = resolve_model(model, **fields)
    samples = calibration_samples(model, opened, data, with_preprocessing) if calibrated else ()
    if progress:
        say(f"tracing the model and writing {path} ...")
    how: Any = {"precision": precision, "samples": samples, "with_preprocessing": with_preprocessing}
    return exporting.export(opened, path, format, **how)


def open_classifier(spec: str, wanted: str, data: Any, settings: dict[str, Any]) -> tuple[Any, Any]:
    """Return MODEL's classifier, and images that it did not learn from. Raises InputError: it has no classes,
    or there are no such images."""
    from vitreous.tasks.answering import open_answerer
    from vitreous.tasks.classification import Classification

    task, answerer = open_answerer(spec)
    if not isinstance(task, Classification):
        raise InputError(f"{task.noun} has no {wanted}: give a classifier")
    source = None if data is None else data_source(data)
    return answerer, task.to_calibrate(spec, answerer, source, settings)


def calibration_samples(model: Any, opened: Any, data: Any, pixels: bool) -> Sequence[Any]:
    """Return images that int8 is calibrated on: of DATA, or of the validation part of a run's data."""
    from vitreous.deployment.optimizing import calibration_images
    from vitreous.tasks import task_named
    from vitreous.tasks.answering import task_of

    task: Any = task_of(opened) or task_named("classification")
    source = None if data is None else data_source(data, task.targets)
    held = task.to_calibrate(model_name(model), opened, source, {})
    return calibration_images(opened, held.examples, pixels=pixels)


def open_to_serve(
    spec: str, *, limits: Any, number: int, device: str, precision: str, fields: Mapping[str, Any]
) -> Any:
    """Open a model to be served; without PyTorch what `vitreous.optimize` has chosen, or an exported file."""
    from vitreous.deployment.answering import open_torchless, optimized
    from vitreous.deployment.serving.exported import open_exported_classifier

    plain = precision in ("auto", "fp32") and device in ("auto", "cpu") and not fields
    chosen = optimized(spec) if plain and precision == "auto" else None
    file = chosen.file if chosen and chosen.file else Path(spec)
    if plain and (found := open_torchless(file)):
        if chosen:
            say(chosen.sentence)
        return open_exported_classifier(found, spec, most_pixels=limits.pixels)
    from vitreous.tasks.answering import task_of
    from vitreous.tasks.serving import open_served
    from vitreous.training.precision import pick_device

    if task := task_of(spec):
        task.check_options("serve", image_size=fields.get("image_size"), set=dict(fields))
    how = {"device": pick_device(device), "precision": precision, "limits": limits, "number": number}
    return open_served(spec, say=say, **how, **fields)


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
        host: address to listen at: 127.0.0.1, or 0.0.0.0 to be reached from other machines.
        port: port to listen at; 0 for any that is free.
        max_batch: most images or texts in a batch.
        max_wait: milliseconds that a request waits for others, to share a batch.
        queue: maximum queued images or texts; beyond it the server answers 503.
        deadline: seconds from a request's last byte to its answer; beyond it the server answers 504.
        allow_host: names in the Host header that are answered beside localhost; a server that other machines
            reach answers for any name unless some are given.
        token_file: a file with a token; requests then need the header Authorization: Bearer TOKEN.
        tls_cert: a file with a certificate, for https.
        tls_key: the file with the certificate's key.
        metrics_port: a separate port for /metrics, for Prometheus.
        access_log: write a line of JSON on stderr for each request.
        workers: processes that serve at the same address; on a CPU they share the weights. Each has limits of
            its own. SIGHUP to the process that started them loads the models again, without losing a request.
            By default this process serves.
        ready: called with the address and what is served, once it answers; by default it is printed.

    Raises:
        InputError: a model that cannot be served, a port that is taken, or a package that is missing.
    """
    numbers = {"max-batch": max_batch, "queue": queue, "deadline": deadline, "workers": workers}
    for name, value in {**numbers, "max-wait": max_wait}.items():
        least = 0 if name == "max-wait" else 1
        if value is not None and value < least:
            raise InputError(f"--{name} {value:g} is too low: use {least} or more")
    if (tls_cert is None) != (tls_key is None):
        raise InputError("--tls-cert and --tls-key go together: give both")
    packages = "fastapi", "uvicorn", "python_multipart", "prometheus_client", "matplotlib"
    require_packages(*packages, extra="serve", what="serving")
    from vitreous.deployment.serving import running
    from vitreous.deployment.serving.endpoints import Limits
    from vitreous.deployment.serving.exported import serve_models

    models = dict(model) if isinstance(model, Mapping) else {"": model}
    specs = {name: named_path(each) for name, each in models.items()}
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
    opened = running.bind(host, port)
    announce = partial(ready, running.address_of(opened, "https" if tls_cert else "http"))
    with opened:
        if workers is None:
            serve_here(opened, announce, metrics_at=(host, metrics_port))
            return
        from vitreous.deployment.serving.workers import shared_counters, supervise

        with shared_counters(), running.metrics_at(host, metrics_port):
            serve_there = partial(serve_here, metrics_at=(host, None) if metrics_port is None else None)
            supervise(serve_there, opened, workers, ready=announce)
