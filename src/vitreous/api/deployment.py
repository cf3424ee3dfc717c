"""`vitreous.calibrate` and `export`: prepare a trained model for use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

from vitreous.api.arguments import (
    changed_fields,
    file_stem,
    model_name,
    path_of_run,
    progress_bar,
    say,
    settings_tree,
)
from vitreous.api.data_source import data_source
from vitreous.api.model_source import computation, resolve_model
from vitreous.api.options import CalibrateOptions, ExportOptions
from vitreous.checkpoints.files import model_folder
from vitreous.checkpoints.native import save_native
from vitreous.deployment.export import (
    WEIGHTS,
    ExportedFile,
    calibration_images,
    calibration_pixels,
    default_export_path,
    writer_of,
)
from vitreous.deployment.export import export as write_export
from vitreous.deployment.programs import check_weights, format_named
from vitreous.errors import InputError, Param, check_free, writing_to
from vitreous.evaluation.calibration import calibrate_model, write_thresholds
from vitreous.languages.terminal import said
from vitreous.outside import local_path
from vitreous.results import Result
from vitreous.tasks.answerer import open_answerer, task_of, task_or_classification
from vitreous.tasks.classification import Classification
from vitreous.training.options import ModelLike, with_options
from vitreous.whole_files import folder_for, whole


@dataclass(frozen=True)
class Calibrated(Result):
    """A fitted temperature, and the expected calibration error on the same images.

    Attributes:
        source, part, count: the images.
        temperature: the number by which the logits of the uncalibrated model are now divided.
        error_before, error_after: the expected calibration error.
        folder: the folder of the calibrated model.
        thresholds: the threshold with the largest F1 for each label, if an image may have several labels.
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


@with_options(CalibrateOptions)
def calibrate(model: ModelLike, data: object = None, **options: Unpack[CalibrateOptions]) -> Calibrated:
    """Fit a temperature for a classifier's probabilities, and store it with the model. The ranking of the
    classes does not change.

    Example:
        >>> found = vt.calibrate("runs/photos", "more-photos/", out="calibrated", progress=False)
        >>> vt.load("calibrated").temperature == found.temperature
        True

    Args:
        model: a run, whose model is replaced; or any checkpoint with a head, which is written to `out`.
        data: images that are used neither to train nor to evaluate the model, in any form that `train`
            takes; by default, those on which training fits the temperature.
        options: of `CalibrateOptions`.

    Raises:
        InputError: the model or the data does not exist, the task has no probabilities, or there are no
            images to calibrate on.
    """
    path, out = path_of_run(model), options["out"]
    how = computation(options["device"], options["batch_size"], options["workers"])
    if not isinstance(path, str | Path):
        raise InputError(
            f"the {type(model).__name__} is not saved: save it with vitreous.save, and pass that path"
        )
    spec, place = str(path), local_path(path)
    folder = Path(out) if out is not None else model_folder(place.parent if place.is_file() else place)
    if out is not None:
        check_free(folder)
    elif task_of(spec) is None or not (folder / "config.json").is_file():
        raise InputError(
            f"{spec} cannot be changed in place: name a folder for the model with {Param('out')}"
        )
    tree = settings_tree(options["settings"], options["config"])
    answerer, held = open_classifier(spec, "probabilities", data, tree)
    with progress_bar("calibrating", options["progress"]) as advance:
        answerer = answerer.to(how["device"])
        before, after = calibrate_model(
            answerer, held.examples, learned=held.learned, progress=advance, **how
        )
    with ExitStack() as writing:
        place = folder
        if out is not None:
            writing.enter_context(writing_to(folder))
            writing.enter_context(folder_for(folder))
            place = writing.enter_context(whole(folder, new=True))
        save_native(answerer, place)
        thresholds = write_thresholds(place, after)
    errors = before.calibration.ece, after.calibration.ece
    facts = held.source, held.part, after.count, answerer.temperature, *errors, folder, thresholds
    return Calibrated(spec, *facts)


@with_options(ExportOptions)
def export(model: ModelLike, out: str | Path | None = None, **options: Unpack[ExportOptions]) -> ExportedFile:
    """Export a model to a file for other programs, and compare its outputs with those of the model.

    The exported program takes any number of normalized images of one size ("images") and returns "logits"
    and "features". The file also contains the labels, the task, the preprocessing and the license.

    Example:
        >>> file = vt.export("runs/photos", "photos.onnx")
        >>> file.format, file.max_abs_difference < 1e-4
        ('onnx', True)
        >>> vt.predict("photos.onnx", "photo.jpg")[0].label in ("apples", "pears")
        True

    Args:
        model: a run, a checkpoint in any format, a model name, or a model.
        out: .onnx (ONNX), .pt2 (torch.export), .safetensors (weights for JavaScript), or a format of an
            add-on; by default the model's name with .onnx.
        options: of `ExportOptions`.

    Raises:
        InputError: the format or the suffix is unknown, a package is missing, the model is too large for the
            format, or the outputs of the exported program differ.
    """
    format, precision, data = options["format"], options["precision"], options["data"]
    with_preprocessing, fields = options["with_preprocessing"], changed_fields(options)
    path = Path(out) if out else default_export_path(file_stem(model_name(model)), format)
    check_weights(model, "export")
    check_free(path)
    weights = path.suffix == ".safetensors" and format in (None, WEIGHTS)
    format = WEIGHTS if weights else format_named(path, format).name
    calibrated = writer_of(format, precision, with_preprocessing).calibrated
    if data is not None and not calibrated:
        raise InputError(
            f"{Param('data')} calibrates a lower precision, and has no effect on {format} in {precision}: "
            "leave it out"
        )
    # A model that cannot be exported is refused when it is opened.
    opened: Any = resolve_model(model, **fields)
    samples: Sequence[Any] = ()
    if calibrated:  # on images of DATA, or of a run's validation set
        task: Any = task_or_classification(opened)
        source = None if data is None else data_source(data, task.info.targets)
        held = task.to_calibrate(model_name(model), opened, source, {})
        chosen = calibration_pixels if with_preprocessing else calibration_images
        samples = chosen(opened, held.examples)
    if options["progress"]:
        say(said("tracing the model and writing {path} ...", path=path))
    how: Any = {"precision": precision, "samples": samples, "with_preprocessing": with_preprocessing}
    return write_export(opened, path, format, new=True, **how)


def open_classifier(spec: str, wanted: str, data: object, settings: dict[str, object]) -> tuple[Any, Any]:
    """Return MODEL's classifier, and images that it was not trained on. Raises InputError: it has no classes,
    or there are no such images."""
    task, answerer = open_answerer(spec)
    if not isinstance(task, Classification):
        raise InputError(f"{task.info.noun} has no {wanted}: pass a classifier")
    source = None if data is None else data_source(data)
    return answerer, task.to_calibrate(spec, answerer, source, settings)
