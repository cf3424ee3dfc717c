"""`vitreous.predict`: the predictions of a trained model for images."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from vitreous.api.arguments import progress_bar
from vitreous.api.options import PredictOptions
from vitreous.api.predictor import predictor_for
from vitreous.data.image_list import image_list
from vitreous.deployment.answers import WRITERS, Predictions, check_answer_file, is_folder, write_answers
from vitreous.errors import InputError, LazyModule, Param
from vitreous.training.options import ModelLike, options_of, with_options

if TYPE_CHECKING:
    from vitreous.api import answer_parts
    from vitreous.results import Answer
    from vitreous.tasks import task as tasks
    from vitreous.training import run as runs
else:  # they import PyTorch, without which an exported file answers
    answer_parts = LazyModule("vitreous.api.answer_parts")
    runs = LazyModule("vitreous.training.run")
    tasks = LazyModule("vitreous.tasks.task")

OF_SOME_TASKS = {name for name, option in options_of(PredictOptions).items() if option.of}
FEW = 8  # images, whose progress is not shown


@with_options(PredictOptions)
def predict(model: ModelLike, images: object, **options: Unpack[PredictOptions]) -> Predictions:
    """Predict the classes or numbers of images, or whatever else the model's task predicts. For many calls,
    create one `Predictor`.

    Example:
        >>> answers = vt.predict("runs/photos", ["photo.jpg", "photos/pears/0.jpg"], progress=False)
        >>> len(answers), answers[0].label in ("apples", "pears")
        (2, True)
        >>> rows = vt.predict("runs/photos", "photos/", out="answers.csv", progress=False)

    Args:
        model: a run, any checkpoint with a head, or a model.
        images: one or more paths, folders, globs, PIL images, arrays or tensors. If `out` is a folder, also
            any DATA: folders, manifests, tar shards, Parquet files, URLs.
        options: of `PredictOptions`.

    Returns:
        One prediction per image, in the order given, unless they are written to `out`. If an image cannot be
        read or is damaged, its entry says so.

    Raises:
        InputError: the model does not exist, there are no images, or the task does not have an option.
    """
    asked: dict[str, Any] = {**options, "tta": options["tta"] or None}
    out, progress = asked.pop("out"), asked.pop("progress")
    if asked["tta"] and asked["patches"] is not None:
        raise InputError(
            f"{Param('tta')} needs images of one size: leave out {Param('patches')} or {Param('tta')}"
        )
    predictor = predictor_for(model, "labels", **asked)
    use, table, folder = predictor.use, None, None
    in_parts = out is not None and is_folder(out)
    light = not in_parts and predictor.light is not None
    if not light:
        given = {name: value for name, value in asked.items() if name in OF_SOME_TASKS}
        tasks.check_options(use.task, "predict", **given, out=out)
    writes_files = not light and bool(use.task.info.answer_folder)
    if out is not None and in_parts and not writes_files:
        done = answer_parts.answer_parts(predictor, images, Path(out), progress=progress)
        return Predictions(use.task.name, (), done.failed, done.images, out=Path(out), damaged=done.damaged)
    if out is not None and writes_files and Path(out).suffix not in WRITERS:
        folder = Path(out)
    elif out is not None:
        table = Path(out)
        check_answer_file(table)
    elif writes_files and isinstance(use.model, str | Path):
        # The answers of a model in memory stay in memory.
        folder = runs.default_run_path(Path(use.model).name, root=Path(use.task.info.answer_folder))
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
