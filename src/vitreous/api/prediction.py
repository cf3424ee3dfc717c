"""`vitreous.predict`: what a trained model answers to images."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitreous.api.arguments import (
    ImageSize,
    ModelLike,
    Settings,
    Threshold,
    model_fields,
    progress_bar,
    say,
    settings_tree,
)
from vitreous.api.model_use import ModelUse
from vitreous.api.predictor import Predictor
from vitreous.data.image_list import ImageList, image_list
from vitreous.deployment.answers import (
    WRITERS,
    Predictions,
    answer_file,
    check_answer_file,
    check_for_folder,
    is_folder,
)
from vitreous.deployment.programs import is_program, substitute
from vitreous.deployment.torchless import TorchlessClassifier, open_torchless
from vitreous.errors import InputError, LazyModule

if TYPE_CHECKING:
    from vitreous.api import answer_parts, engines, model_source
    from vitreous.results import Answer
    from vitreous.training import run as runs
else:  # they import PyTorch, without which an exported file answers
    answer_parts = LazyModule("vitreous.api.answer_parts")
    engines = LazyModule("vitreous.api.engines")
    model_source = LazyModule("vitreous.api.model_source")
    runs = LazyModule("vitreous.training.run")

FEW = 8  # images, whose progress is not shown


def predict(
    model: ModelLike,
    images: object,
    *,
    top: int | None = None,
    threshold: Threshold | None = None,
    tta: bool = False,
    out: str | Path | None = None,
    engine: str | None = None,
    actors: int | None = None,
    image_size: ImageSize | None = None,
    patches: int | None = None,
    batch_size: int | None = None,
    workers: int | None = None,
    device: str = "auto",
    precision: str = "auto",
    settings: Settings | None = None,
    config: str | Path | None = None,
    progress: bool = True,
) -> Predictions:
    """Ask a model about images: their classes, numbers, or what else the task of the model gives. For many
    calls make one `Predictor`.

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
        patches: take each image in its own aspect ratio, as at most so many patches (NaFlex), of a ViT with
            learned positions. By default every image is brought to the one size of the model.

    Returns:
        The answers, but for those that are in `out`.

    Raises:
        InputError: no such model, no image at all, or an option that the task does not have.
    """
    if patches is not None:
        if tta:
            raise InputError("`tta` changes images of one size: leave out `patches` or `tta`")
        fields = model_fields(settings_tree(settings, config), image_size)
        model = model_source.native_aspect(model, patches, fields)
        settings, config, image_size = None, None, None
    asked: dict[str, Any] = {"top": top, "threshold": threshold, "tta": tta or None}
    changed: dict[str, Any] = {"image_size": image_size, "settings": settings, "config": config}
    how: dict[str, Any] = {"batch_size": batch_size, "workers": workers, "device": device}
    predictor = Predictor(model, precision=precision, **how, **asked, **changed)
    use = predictor.use
    plain = threshold is None and not any((tta, out, engine, actors, image_size, settings, config))
    light = torchless(use) if plain else None
    if light is None:
        use.task.check_options("predict", **asked, **changed, out=out, workers=workers)
    table, folder = None, None
    if out is not None:
        writes_files = bool(use.task.about.answer_folder)
        if is_folder(out) and not writes_files:
            done = answer_parts.answer_parts(
                predictor, images, Path(out), engine=engine, actors=actors, progress=progress
            )
            return Predictions(use.task.name, (), done.reasons, done.images, out=Path(out))
        if writes_files and Path(out).suffix not in WRITERS:
            folder = Path(out)
        else:
            table = Path(out)
            check_answer_file(table)
    check_for_folder(engine, actors)
    listed, missing = image_list(images)
    opened = light if light and not light.is_slow_for(len(listed)) else model_engine(use, listed, folder)
    answers: list[Answer] = []
    failed: dict[str, str] = {}
    count = 0
    with (
        progress_bar("predicting", progress and len(listed) > FEW) as advance,
        answer_file(table) if table else nullcontext(answers.append) as add,
    ):
        for count, answer in enumerate(opened.answers(listed, failed), start=1):
            add(answer)
            advance(count + len(failed), len(listed))
    failed = {each.path: each.reason for each in missing} | failed
    return Predictions(opened.task_name, answers, failed, count, opened.about, table)


def torchless(use: ModelUse) -> TorchlessClassifier | None:
    """Return what classifies without PyTorch: an exported file that the model is, or that was chosen for it;
    None where PyTorch computes."""
    if not isinstance(use.model, str | Path) or use.device not in ("auto", "cpu"):
        return None
    if use.precision not in ("auto", "fp32"):
        return None
    file, sentence = Path(use.model), ""
    if not is_program(use.model):
        chosen = substitute(use.model) if use.precision == "auto" else None
        if chosen is None or chosen.file is None:
            return None
        file, sentence = chosen.file, chosen.sentence
    exported = open_torchless(file)
    if exported is None:
        return None
    if sentence:
        say(sentence)
    return TorchlessClassifier(exported, use.options["top"] or 5, use.batch_size, use.workers)


def model_engine(use: ModelUse, images: ImageList, folder: Path | None) -> engines.AnswerEngine:
    """Return a model of PyTorch that is asked once. Where its answers are files they go into `folder`, by
    default a new one; those of a model in memory stay there."""
    if folder is None and use.task.about.answer_folder and isinstance(use.model, str | Path):
        folder = runs.default_path(Path(use.model).name, root=Path(use.task.about.answer_folder))
    return engines.AnswerEngine(use, images, folder=folder, reused=False)
