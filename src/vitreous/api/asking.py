"""`vitreous.evaluate`, `predict`, `translate` and `serve`: what a trained model answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from vitreous.api.arguments import (
    ImageSize,
    Settings,
    check_beams,
    computation,
    model_fields,
    path_of_run,
    progress_bar,
    settings_tree,
)
from vitreous.api.data import data_source
from vitreous.data.image_list import image_list
from vitreous.errors import InputError
from vitreous.languages import speaking
from vitreous.results import Result

if TYPE_CHECKING:
    from vitreous.evaluation.result import Evaluation
    from vitreous.tasks.answering import Predictions


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
) -> Evaluation:
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
    from vitreous.tasks.answering import open_answerer, task_of
    from vitreous.tasks.task import module_of
    from vitreous.training.precision import computing, pick_device

    model = path_of_run(model)
    task = task_of(model) or task_named("classification")
    task.check_options("evaluate", image_size=image_size, workers=workers, set=settings, config=config)
    tree = settings_tree(settings, config)
    overrides = model_fields({"model": tree.pop("model", {})}, image_size)
    source = None if data is None else data_source(data, numbers=task.numeric)
    task, answerer = open_answerer(model, **overrides)
    held = task.held_out(str(model), answerer, source, tree)
    here = pick_device(device)
    module_of(answerer).to(here)
    how = {"device": here, "batch_size": batch_size, "workers": worker_count(workers)}
    with computing(precision, here), progress_bar("evaluating", progress) as advance:
        evaluation = task.evaluate(answerer, held.examples, progress=advance, **how)
    return replace(evaluation, model=str(model), source=held.source, part=held.part)


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
        out: where a segmenter's masks go; by default a new folder in segmented/, or, for a model in memory,
            the answers.

    Raises:
        InputError: no such model, no image at all, or an option that the task does not have.
    """
    from vitreous.tasks import task_named
    from vitreous.tasks.answering import predict as ask
    from vitreous.tasks.answering import task_of

    if top is not None and top < 1:
        raise InputError(f"--top {top} names no label: use 1 or more")
    model = path_of_run(model)
    task = task_of(model) or task_named("classification")
    task.check_options(
        "predict", top=top, out=out, image_size=image_size, workers=workers, set=settings, config=config
    )
    overrides = model_fields(settings_tree(settings, config), image_size)
    listed, missing = image_list(images)
    folder = None if out is None else Path(out)
    if folder is None and isinstance(model, str | Path):  # answers of a model itself stay in memory
        folder = task.default_out(str(model))
    named: dict[str, Any] = {"top": top, "out": folder}
    options = {name: value for name, value in named.items() if value is not None}
    with progress_bar("predicting", progress) as advance:
        how = computation(device, precision, batch_size, workers)
        found = ask(model, listed, progress=advance, overrides=overrides, **how, **options)
    failed = {each.path: each.reason for each in missing}
    return replace(found, failed={**failed, **found.failed})


class TranslatedText(NamedTuple):
    """A text, its translation, and the translation's log probability divided by a power of its length; no
    score with one beam, and where there was nothing to translate."""

    source: str
    text: str
    score: float | None


@dataclass(frozen=True)
class Translations(Result):
    """The translations of texts, in order."""

    rows: tuple[TranslatedText, ...]

    def to_json(self) -> dict[str, Any]:
        return {"translations": self.table()}

    def table(self) -> list[dict[str, Any]]:
        """Return one row for each text."""
        return [each._asdict() for each in self.rows]

    def __iter__(self) -> Iterator[TranslatedText]:
        return iter(self.rows)


def translate(
    model: Any,
    texts: str | Sequence[str],
    *,
    beams: int = 4,
    length_penalty: float = 0.6,
    batch_size: int = 128,
    device: str = "auto",
    precision: str = "fp32",
) -> Translations:
    """Translate texts with a model of `train_translator`.

    Args:
        model: a run, or the model in it.
        texts: one or many; an empty one stays empty.
        beams: how many translations the search follows; 1 is greedy.
        length_penalty: higher favors longer translations (arXiv 1609.08144, section 7).

    Raises:
        InputError: no such run or another model, no text at all, or one that is too long.
    """
    from vitreous.evaluation.text_models import Translator
    from vitreous.training.precision import computing, pick_device

    check_beams(beams)
    lines = [texts] if isinstance(texts, str) else list(texts)
    if not any(line.strip() for line in lines):
        raise InputError("there is no text to translate, neither after the run nor in standard input")
    path, here = Path(path_of_run(model)), pick_device(device)
    if not path.exists():
        raise InputError(f"no such run: {path}; to make one: vitreous translate train")
    translator = Translator.load(path)
    translator.model.to(here)
    with computing(precision, here):
        found = iter(
            translator.translate(
                [line for line in lines if line.strip()],
                beams=beams,
                length_penalty=length_penalty,
                batch_size=batch_size,
            )
        )
    pairs = [(line, next(found) if line.strip() else None) for line in lines]
    return Translations(
        tuple(TranslatedText(line, each.text if each else "", each and each.score) for line, each in pairs)
    )


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
    precision: str = "fp32",
    image_size: ImageSize | None = None,
    device: str = "auto",
    settings: Settings | None = None,
    config: str | Path | None = None,
    ready: Callable[[str, dict[str, Any]], None] = print_address,
    language: str | None = None,
) -> None:
    """Answer over HTTP until Ctrl-C, with a web page.

    Args:
        model: a run of any task that answers, a checkpoint in any format, or a model name.
        port: 0 for any that is free.
        max_batch: images or texts computed together.
        max_wait: milliseconds that a request waits for others.
        queue: maximum queued images or texts; beyond it the server answers 503.
        ready: called with the address and what is served, once it answers; by default it is printed.
        language: of the web page, "en" or "ko"; by default that of the locale.

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
    from vitreous.tasks.answering import task_of
    from vitreous.tasks.serving import open_served
    from vitreous.training.precision import pick_device

    model = path_of_run(model)
    if task := task_of(model):
        task.check_options("serve", image_size=image_size, set=settings, config=config)
    fields = model_fields(settings_tree(settings, config), image_size)
    address, chosen = running.bind(host, port), pick_device(device)
    with running.one_thread() as thread:
        opened = thread.submit(open_served, str(model), device=chosen, precision=precision, **fields).result()
        with speaking(language):
            page = page_of(opened.served, opened.about, opened.examples, Limits())
        app = build_app(
            opened.served,
            about=opened.about,
            page=page,
            model_thread=thread,
            pace=Pace(max_batch, max_wait / 1000, queue),
        )
        about = {"task": opened.served.task, **opened.about}

        running.run(app, address, ready=lambda url: ready(url, about))
