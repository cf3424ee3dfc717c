"""`vitreous.evaluate` and `predict`: what a trained model answers."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitreous.api.arguments import (
    ImageSize,
    Settings,
    Threshold,
    check_batch_size,
    check_whole,
    computation,
    fastest,
    model_fields,
    path_of_run,
    program_of,
    progress_bar,
    say,
    settings_tree,
    threshold_of,
    weights_folder,
)
from vitreous.errors import InputError

if TYPE_CHECKING:
    from vitreous.data.image_list import Failure, ImageList
    from vitreous.deployment.answering import Predictions


def predict(
    model: Any,
    images: Any,
    *,
    top: int | None = None,
    threshold: Threshold | None = None,
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
    """Ask a model about images: their classes, numbers, or what else the task of the model gives.

    Args:
        model: a run, any checkpoint with a head, or a model.
        images: one or many paths, folders, globs, PIL images, arrays or tensors. With a folder as `out` any
            DATA: folders, manifests, tar shards, Parquet files, URLs.
        top: number of labels for each image, most probable first; by default 5.
        threshold: name all labels that are as probable as well, `labels`: several where an image can have
            several, or none where the model is unsure. {"cat": 0.3}: of some labels, 0.5 for the others.
            "best": of each label the one with the largest F1 on the validation part.
        tta: test-time augmentation: the mean answer to an image, its corners and, if the model was trained
            with them, mirror images; five or ten times the work.
        out: where to write the answers: a new .csv, .jsonl or .parquet file, which gets a row for each image
            as it is answered; or a folder, which gets a Parquet file for each part of the images, and is
            continued where it has some. Of a task that writes images: the folder for them, by default a new
            one.
        engine: ray: compute on a Ray cluster (RAY_ADDRESS), or with Ray on this machine; `out` is then a
            folder.
        actors: number of Ray actors, each with a model; by default one for each GPU or machine.

    Returns:
        The answers, but for those that are in `out`.

    Raises:
        InputError: no such model, no image at all, or an option that the task does not have.
    """
    check_whole("top", top)
    if top is not None and top < 1:
        raise InputError(f"`top` {top} names no label: use 1 or more")
    check_batch_size(batch_size)
    from vitreous.data.image_list import image_list

    model = path_of_run(model)
    missing: Sequence[Failure] = ()
    others = tta, out, engine, actors, settings, config, image_size
    plain = threshold is None and not any(others) and device in ("auto", "cpu")
    if plain and (file := torchless_file(model, precision)):
        images, missing = image_list(images)  # once: they may come from a generator
        how: dict[str, Any] = {"batch_size": batch_size, "workers": workers, "progress": progress}
        found = predict_without_torch(file, images, top=top or 5, **how)
        if found is not None:
            return with_failures(found, missing)
    from vitreous.api.answer_parts import answer_parts, check_for_folder, is_folder
    from vitreous.api.predictor import Predictor
    from vitreous.deployment.answering import Predictions
    from vitreous.tasks import task_named
    from vitreous.tasks.answer_tables import ENDINGS, check_table
    from vitreous.tasks.answerer import predict as ask
    from vitreous.tasks.answerer import task_of
    from vitreous.training.run import default_path

    opened = model if settings or config or image_size else program_of(model)
    task = task_of(opened) or task_named("classification")
    threshold = threshold_of(model, threshold)
    asked: dict[str, Any] = {"top": top, "threshold": threshold, "tta": tta, "image_size": image_size}
    task.check_options("predict", **asked, out=out, workers=workers, settings=settings, config=config)
    if out is not None and is_folder(out) and not task.answer_folder:
        asked |= {"device": device, "precision": precision, "batch_size": batch_size, "workers": workers}
        predictor = Predictor(model, settings=settings, config=config, **asked)
        done = answer_parts(predictor, images, out, engine=engine, actors=actors, progress=progress)
        return Predictions(task.name, (), done.reasons, done.images, out=Path(out))
    check_for_folder(engine, actors)
    overrides = model_fields(settings_tree(settings, config), image_size)
    listed, others_missing = image_list(images)
    table = Path(out) if out is not None and (Path(out).suffix in ENDINGS or not task.answer_folder) else None
    folder = Path(out) if out is not None and not table else None
    if table:
        check_table(table)
    if not folder and task.answer_folder and isinstance(model, str | Path):  # of a model itself: in memory
        folder = default_path(Path(model).name, root=Path(task.answer_folder))
    named: dict[str, Any] = {"top": top, "threshold": threshold, "out": folder}
    options = {name: value for name, value in named.items() if value is not None}
    quick = opened if tta or folder else fastest(opened, precision, device, overrides)
    with progress_bar("predicting", progress) as advance:
        options |= computation(device, batch_size, workers) | {"precision": precision}
        options |= {"overrides": overrides, "table": table, "tta": tta, "weights": weights_folder(model)}
        found = ask(quick, listed, progress=advance, say=say, **options)
    return with_failures(found, [*missing, *others_missing])


def with_failures(found: Predictions, missing: Sequence[Failure]) -> Predictions:
    """Return answers with the images that were not found before those that could not be read."""
    return replace(found, failed={**{each.path: each.reason for each in missing}, **found.failed})


def torchless_file(model: Any, precision: str) -> tuple[Path, str] | None:
    """Return an exported file that MODEL is, or the one that was chosen for it with a sentence that says so;
    None for what PyTorch computes."""
    from vitreous.deployment.answering import substitute
    from vitreous.deployment.programs import is_program

    if not isinstance(model, str | Path) or precision not in ("auto", "fp32"):
        return None
    if is_program(model):
        return Path(model), ""
    chosen = substitute(model) if precision == "auto" else None
    return (chosen.file, chosen.sentence) if chosen and chosen.file else None


def predict_without_torch(
    file: tuple[Path, str],
    images: ImageList,
    *,
    top: int,
    batch_size: int | None,
    workers: int | None,
    progress: bool,
) -> Predictions | None:
    """Classify images with an exported file, without PyTorch; None where that is not to be had, or for so
    many images that PyTorch's way of decoding is worth its loading, unless there is no other way."""
    from vitreous.deployment.answering import BATCH, MANY, open_torchless, predict_exported
    from vitreous.deployment.programs import PIXELS

    found = open_torchless(file[0])
    if found is None or (len(images) >= MANY and found.about["inputs"] != PIXELS):
        return None
    if file[1]:
        say(file[1])
    with progress_bar("predicting", progress) if len(images) > BATCH else nullcontext() as advance:
        how: dict[str, Any] = {"batch_size": batch_size or BATCH, "workers": workers, "progress": advance}
        return predict_exported(found, images, top=top, **how)
