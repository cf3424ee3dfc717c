"""`vitreous.predict`: what a trained model answers to images."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitreous.api.arguments import (
    ImageSize,
    ModelLike,
    Settings,
    Threshold,
    model_fields,
    progress_bar,
    settings_tree,
)
from vitreous.api.predictor import Predictor, latest
from vitreous.data.image_list import image_list
from vitreous.deployment.answers import (
    WRITERS,
    Predictions,
    check_answer_file,
    is_folder,
    write_answers,
)
from vitreous.errors import InputError, LazyModule, Param

if TYPE_CHECKING:
    from vitreous.api import answer_parts, model_source
    from vitreous.api.model_use import ModelUse
    from vitreous.results import Answer
    from vitreous.training import run as runs
else:  # they import PyTorch, without which an exported file answers
    answer_parts = LazyModule("vitreous.api.answer_parts")
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
            "best": of each label the one with the largest F1 on the validation set.
        tta: test-time augmentation: the mean answer to an image, its corners and, if the model was trained
            with them, mirror images; five or ten times the work.
        out: where to write the answers: a new .csv, .jsonl or .parquet file, which gets a row for each image
            as it is answered; or a folder, which gets a Parquet file for each part of the images, and is
            continued where it has some. Of a task that writes images: the folder for them, by default a new
            one.
        image_size: pixels of the images that the model takes: 384, or (height, width); by default its own.
        patches: take each image in its own aspect ratio, as at most so many patches (NaFlex), of a ViT with
            learned positions. By default every image is brought to the one size of the model.
        batch_size: images that are computed together; by default 16 on a CPU, 64 on a GPU.
        workers: threads that decode images; by default one for each core.
        device: auto, cpu, cuda, cuda:N or mps; auto is a GPU where there is one.
        precision: fp32; bf16; auto: bf16 where that is faster and gives the same answers.
        settings, config: fields of the model's configuration, {"model.heads": 12}; and a TOML file of them.
        progress: show a progress bar on stderr.

    Returns:
        An answer for each image, in the order in which they were named, as often as they were; but for those
        that are in `out`. An image that cannot be read, or that is damaged, says so in its place.

    Raises:
        InputError: no such model, no image at all, or an option that the task does not have.
    """
    if patches is not None:
        if tta:
            raise InputError(
                f"{Param('tta')} changes images of one size: leave out {Param('patches')} or {Param('tta')}"
            )
        fields = model_fields(settings_tree(settings, config), image_size)
        model = model_source.native_aspect(model, patches, fields)
        settings, config, image_size = None, None, None
    asked: dict[str, Any] = {"top": top, "threshold": threshold, "tta": tta or None}
    changed: dict[str, Any] = {"image_size": image_size, "settings": settings, "config": config}
    how: dict[str, Any] = {"batch_size": batch_size, "workers": workers, "device": device}
    predictor = latest(Predictor(model, precision=precision, **how, **asked, **changed))
    use, table, folder = predictor.use, None, None
    in_parts = out is not None and is_folder(out)
    light = not in_parts and predictor.light is not None
    if not light:
        use.task.check_options("predict", **asked, **changed, out=out, workers=workers)
    writes_files = not light and bool(use.task.info.answer_folder)
    if out is not None and in_parts and not writes_files:
        done = answer_parts.answer_parts(predictor, images, Path(out), progress=progress)
        return Predictions(use.task.name, (), done.failed, done.images, out=Path(out), damaged=done.damaged)
    if out is not None and writes_files and Path(out).suffix not in WRITERS:
        folder = Path(out)
    elif out is not None:
        table = Path(out)
        check_answer_file(table)
    elif writes_files and isinstance(use.model, str | Path):  # those of a model in memory stay there
        folder = answer_folder(use)
    listed = image_list(images)
    opened = predictor.begin(listed, folder)
    failed: dict[str, str] = {}
    damaged: dict[str, str] = {}

    def counted() -> Iterator[Answer]:
        with progress_bar("predicting", progress and len(listed) > FEW) as advance:
            for done, answer in enumerate(predictor.answers(listed), start=1):
                if error := getattr(answer, "error", None):
                    failed[answer.path] = error
                if missing := getattr(answer, "damaged", None):
                    damaged[answer.path] = missing
                yield answer
                advance(done, len(listed))

    if table is not None:
        write_answers(counted(), table)
        return Predictions(opened.task_name, (), failed, len(listed), opened.about, table, damaged)
    answers = list(counted())
    return Predictions(opened.task_name, answers, failed, len(listed), opened.about, None, damaged)


def answer_folder(use: ModelUse) -> Path:
    """Return a new folder for the answers of a task whose answers are files."""
    return runs.default_path(Path(str(use.model)).name, root=Path(use.task.info.answer_folder))
